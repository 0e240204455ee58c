"""Jobs whose driver is killed between the durable steps of a batch, and started again: each message counts once.

scripts/chaos jobs kills drivers at random moments. Here the steps are undone that a kill -9 leaves out, in one session.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from event_log_node import EventLogNode, event_log_nodes
from job_messages import NODES, JobMessage, job_logs
from pipeline.aside import METADATA
from pipeline.jobs.alerts import AlertOptions
from pipeline.jobs.episodes import Limits, Usual, watch
from pipeline.registry import Context, Pipeline, find
from pipeline.runner import make_folder, run_queries
from spark_limits import run_again

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a JVM starts within minutes on a busy machine
SEED = 11
MESSAGES = 900
DEVICES = 8
SPIKE = 0.01  # part of messages
PARTS = 2  # of the logs; the driver is killed after each one
WINDOW_NS = 10_000_000_000
HOUR_NS = 3_600_000_000_000
NEVER = threading.Event()


class Killed(IntEnum):
    """When the last batch was cut off. Its offsets were planned in each case, and its state was saved."""

    BEFORE_SINK_COMMIT = 0
    BEFORE_BATCH_COMMIT = 1
    AFTER_BATCH_COMMIT = 2


def kill(context: Context, query: str, node: EventLogNode, when: Killed) -> None:
    """Take back what had not happened yet."""
    commits = context.checkpoint(query) / "commits"
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    undone = [commits] if when < Killed.AFTER_BATCH_COMMIT else []
    if when is Killed.BEFORE_SINK_COMMIT:
        undone.append(Path(context.place(query), METADATA))
        name = json.loads((context.checkpoint(query) / "metadata").read_text())["id"]
        node.published.pop((name, last), None)
    for folder in undone:
        for path in (folder / str(last), folder / f".{last}.crc"):
            path.unlink(missing_ok=True)


def run(spark: SparkSession, folder: Path, job: str, **options: str) -> tuple[list[list[JobMessage]], EventLogNode]:
    """Run the job over the logs, part by part; the messages, and the node with what was published."""
    logs = job_logs(SEED, MESSAGES, DEVICES, SPIKE)
    random = Random(SEED)
    pipeline = find(job)
    with event_log_nodes(*(f"n{number}" for number in range(1, NODES + 1))) as nodes:
        own, source = pipeline.read_options({"servers": nodes[0].address, "startingOffsets": "earliest", **options})
        context = Context(lambda: spark, folder, source)
        make_folder(folder)
        for part in range(PARTS):
            for node, log in zip(nodes, logs, strict=True):
                node.append_records(log[len(log) * part // PARTS : len(log) * (part + 1) // PARTS])
            if part == PARTS - 1:
                # Closes all windows but its own.
                nodes[0].append_records([("end", b"", "end", logs[0][-1].time_ns + HOUR_NS)])
            read(pipeline, context, own)
            for checkpoint in sorted((folder / "checkpoints").iterdir()):
                if checkpoint.is_dir():
                    kill(context, checkpoint.name, nodes[0], random.choice(list(Killed)))
        read(pipeline, context, own)
        return logs, nodes[0]


def read(pipeline: Pipeline, context: Context, own: Any) -> None:
    """Run a job over what there is."""
    assert pipeline.queries is not None
    if pipeline.runs_once:
        run_again(lambda: run_queries(pipeline, context, own, 0.0, NEVER, lambda _: None))
        return
    for query in pipeline.queries(context, own):
        writer = query.rows.writeStream.format(query.format).queryName(query.name).options(**query.options)
        # availableNow never ends where a job waits for time to pass.
        writer = writer.option("checkpointLocation", str(context.checkpoint(query.name))).trigger(once=True)
        run_again(partial(start_and_wait, writer))


def start_and_wait(writer: DataStreamWriter) -> None:
    writer.start().awaitTermination()


def place(message: JobMessage) -> tuple[int, str]:
    """(start of the window in seconds, prefix)."""
    return (message.time_ns - message.time_ns % WINDOW_NS) // 1_000_000_000, "/".join(message.topic.split("/")[:2])


def total(rows: list[Any], *names: str) -> dict[tuple[int, str], tuple[int, ...]]:
    """Sums over in-time and late rows of each window and prefix."""
    sums: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0] * len(names))
    for row in rows:
        key = (round(row["start"].timestamp()), row["prefix"])
        sums[key] = [before + row[name] for before, name in zip(sums[key], names, strict=True)]
    return {key: tuple(values) for key, values in sums.items()}


def counted(
    logs: list[list[JobMessage]], values: Callable[[JobMessage, bool], tuple[int, ...]]
) -> dict[tuple[int, str], tuple[int, ...]]:
    """The same, from the messages. `values` takes a message, and whether its device had one before."""
    sums: dict[tuple[int, str], tuple[int, ...]] = {}
    seen = set()
    for message in (message for log in logs for message in log):
        found = values(message, message.client_id in seen)
        seen.add(message.client_id)
        before = sums.get(place(message), (0,) * len(found))
        sums[place(message)] = tuple(a + b for a, b in zip(before, found, strict=True))
    return sums


def value_of(payload: bytes) -> float | None:
    try:
        return float(json.loads(payload)["t"])
    except ValueError:
        return None


def test_a_rollup_counts_each_message_once(spark: SparkSession, tmp_path: Path) -> None:
    logs, _ = run(spark, tmp_path, "rollup", window="10s", delay="2s", maxOffsetsPerTrigger="500")
    rows = spark.read.parquet(str(tmp_path / "rollup-2-10s")).collect()
    expected = counted(logs, lambda message, is_known: (1, len(message.payload), int(is_known)))
    assert total(rows, "messages", "bytes", "gaps") == expected
    assert {row["arrival"] for row in rows} == {"in-time", "late"}


def test_payloads_are_kept_and_counted_once(spark: SparkSession, tmp_path: Path) -> None:
    columns = "t=$.t:double"
    logs, _ = run(spark, tmp_path, "payload", window="10s", delay="2s", columns=columns, maxOffsetsPerTrigger="500")
    rows = spark.read.parquet(str(tmp_path / "payload")).where("topic <> 'end'").collect()
    assert Counter((row["node"], row["offset"]) for row in rows) == Counter(
        (f"n{number}", offset) for number, log in enumerate(logs, 1) for offset in range(len(log))
    )
    assert {(row["node"], row["offset"]): row["t"] for row in rows} == {
        (f"n{number}", offset): value_of(message.payload)
        for number, log in enumerate(logs, 1)
        for offset, message in enumerate(log)
    }
    found = spark.read.parquet(str(tmp_path / "payload-statistics-2-10s"))

    def values(message: JobMessage, _: bool) -> tuple[int, ...]:
        is_number = value_of(message.payload) is not None
        return 1, int(not is_number), int(is_number)

    statistics = total(found.where("column = 't'").collect(), "messages", "rejected", "numbers")
    assert statistics == counted(logs, values)


def test_each_episode_is_told_once(spark: SparkSession, tmp_path: Path) -> None:
    logs, node = run(spark, tmp_path, "alerts", value="$.t", silent_after="0s")
    options = AlertOptions()
    limits = Limits(options.width, options.least, options.learn_after, options.memory, options.confirm)
    states: dict[str, Usual] = defaultdict(Usual)
    expected: dict[str, list[tuple[str, int, float]]] = defaultdict(list)
    for message in (message for log in logs for message in log):
        value = value_of(message.payload)
        if value is not None:
            states[message.topic], event = watch(states[message.topic], value, limits)
            if event:
                expected[message.topic].append((event, states[message.topic].episode, value))
    found: dict[str, list[tuple[str, int, float]]] = defaultdict(list)
    for rows in node.published.values():
        for topic, payload, *_ in rows:
            told = json.loads(payload)
            found[topic.removeprefix("alerts/range/")].append((told["state"], told["episode"], told["value"]))
    assert found == expected
    assert any(len(events) > 1 for events in found.values())
