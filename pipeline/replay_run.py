"""Runs a replay: Spark sorts the messages, the sink of one node publishes them."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from broker.event_log.pb import event_log_pb2 as pb
from broker.event_log.staged_rows import MARKER
from gmqttctl.text import instant
from pipeline.client import NodeClient
from pipeline.errors import NodeError, OptionError, PipelineError
from pipeline.jobs.archive import FOLDER as ARCHIVE
from pipeline.jobs.archive import read_archive
from pipeline.options import SinkOptions, read_batch_options
from pipeline.replay import (
    NANOSECONDS,
    SLICE_SECONDS,
    Key,
    Message,
    ReplayState,
    TopicMap,
    batches,
    due,
    read_state,
)
from pipeline.rows import BLOCK_ROWS, RowError, Rows
from pipeline.runner import cause_of, locked, make_folder
from pipeline.schema import USER_PROPERTIES
from pipeline.session import quiet_session
from pipeline.sink import kept_node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER: Final = "replays"
NODE_PATIENCE_SECONDS: Final = 60.0
JOB: Final = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
MILLISECOND: Final = 1_000_000
# Each partition of the sorted messages goes through the driver as a whole.
PARTITIONS: Final = 64

Progress = Callable[[int, int], None]  # time of the last message that was published, number of messages


@dataclass(frozen=True)
class Replay:
    """start_ns, end_ns  messages from the first and before the second, by their time
    source    "log" or "archive"
    speed     1 for the pace of the messages, 10 for ten times that, 0 for no pauses
    """

    job: str
    folder: Path
    connection: Mapping[str, str]
    start_ns: int
    end_ns: int
    source: str
    topics: tuple[str, ...]
    topic_map: tuple[str, ...]
    speed: float
    node: str = ""
    master: str = "local[2]"

    def parameters(self) -> dict[str, Any]:
        """Return what a resumed run must have in common with the first one."""
        return {
            "from": self.start_ns,
            "to": self.end_ns,
            "source": self.source,
            "topics": list(self.topics),
            "topic-map": list(self.topic_map),
        }


def replay(wanted: Replay, stop: threading.Event, progress: Progress) -> ReplayState:
    """Publish the messages, or the rest of them; the state when done or stopped. Raises PipelineError."""
    if not wanted.start_ns < wanted.end_ns:
        raise OptionError("--to", instant(wanted.end_ns), f"is not after --from, which is {instant(wanted.start_ns)}")
    if not JOB.fullmatch(wanted.job):
        raise OptionError("--job", wanted.job, "is no name of letters, digits, dots, dashes and underscores")
    if wanted.topics and wanted.source != "log":
        raise OptionError("--topics", ", ".join(wanted.topics), "is of --source log only")
    topic_map = TopicMap(wanted.topic_map)
    options = read_batch_options({**wanted.connection, "topics": ",".join(wanted.topics)})
    place = wanted.folder / FOLDER
    make_folder(wanted.folder)
    place.mkdir(exist_ok=True)
    with locked(place, wanted.job):
        path = place / f"{wanted.job}.json"
        state = read_state(path, wanted.parameters())
        node, address = kept_node(
            SinkOptions(options.connection, state.node if state else wanted.node, wanted.job, 0, "")
        )
        state = state or ReplayState(wanted.parameters(), node)
        spark = quiet_session(
            f"gmqttd replay {wanted.job}", wanted.master, {"spark.sql.shuffle.partitions": str(PARTITIONS)}
        )
        try:
            found = messages(sorted_rows(spark, wanted, state), topic_map)
            with NodeClient(address, options.connection, node, NODE_PATIENCE_SECONDS) as client:
                publish(client, found, state, path, wanted.speed, stop, progress)
        except PySparkException as error:
            raise PipelineError(cause_of(error)) from error
        finally:
            spark.stop()
    return state


def sorted_rows(spark: SparkSession, wanted: Replay, state: ReplayState) -> DataFrame:
    """The messages that are left, in the order of a replay."""
    start_ns = state.last.time if state.last else wanted.start_ns
    if wanted.source == "archive":
        rows = read_archive(spark, str(wanted.folder / ARCHIVE))
    else:
        options = {
            **wanted.connection,
            "topics": ",".join(wanted.topics),
            "startingTimestamp": str(start_ns // MILLISECOND),
            "endingTimestamp": str(-(-wanted.end_ns // MILLISECOND)),
        }
        rows = spark.read.format("mqtt").options(**options).load()
    return (
        rows.where((F.col("time") >= start_ns) & (F.col("time") < wanted.end_ns))
        .select("time", "node", "offset", "topic", "payload", "qos", "retain", "user_properties")
        .orderBy("time", "node", "offset")
    )


def messages(rows: DataFrame, topic_map: TopicMap) -> Iterator[Message]:
    for row in rows.toLocalIterator(prefetchPartitions=True):
        properties = tuple(
            (each["key"], each["value"]) for each in row["user_properties"] or () if each["key"] != MARKER
        )
        yield Message(
            Key(row["time"], row["node"], row["offset"]),
            topic_map.map(row["topic"]),
            bytes(row["payload"]),
            row["qos"],
            row["retain"],
            properties,
        )


def publish(
    client: NodeClient,
    found: Iterator[Message],
    state: ReplayState,
    path: Path,
    speed: float,
    stop: threading.Event,
    progress: Progress,
) -> None:
    """Publish batch after batch, each when it is due, until none is left or `stop` is set."""
    left: Iterator[Message] = (message for message in found if state.last is None or message.key > state.last)
    if state.pending is not None:
        left = repeat_pending(client, left, state, path)
    begin = first_ns = None
    for batch in batches(left, round(SLICE_SECONDS * speed * NANOSECONDS)):
        time_ns = batch[0].key.time
        if begin is None or first_ns is None:
            begin, first_ns = time.monotonic(), time_ns
        if stop.wait(max(0.0, due(time_ns, first_ns, begin, speed) - time.monotonic())):
            return
        commit(client, batch, state, path)
        progress(batch[-1].key.time, state.rows)
    state.done = True
    state.write(path)


def repeat_pending(client: NodeClient, left: Iterator[Message], state: ReplayState, path: Path) -> Iterator[Message]:
    """Commit the batch that a run began and may not have finished; what comes after it."""
    batch: list[Message] = []
    for message in left:
        if state.pending is None or message.key > state.pending:
            commit(client, batch, state, path)
            yield message
            break
        batch.append(message)
    else:
        commit(client, batch, state, path)
    yield from left


def commit(client: NodeClient, batch: list[Message], state: ReplayState, path: Path) -> None:
    """Publish one batch, once. The node may have it already: where a run ended in the middle of it, or an answer was lost."""
    if batch:
        query = state.begin(batch[-1].key, path.stem)
        state.write(path)
        attempt = secrets.randbits(63)
        try:
            client.stage(query, state.batch, 0, attempt, blocks_of(batch))
        except (RowError, NodeError) as error:
            raise PipelineError(f"{error}. Rows are the messages from {_moment(batch[0].key)} on") from error
        staged = pb.StagedPartition(partition=0, attempt=attempt, rows=len(batch))
        client.commit(pb.CommitRequest(query=query, batch=state.batch, partitions=[staged]))
    state.finish(len(batch))
    state.write(path)


def blocks_of(batch: list[Message]) -> Iterator[bytes]:
    """Blocks of rows as the sink takes them. Raises RowError."""
    rows = Rows("the replay")
    for at in range(0, len(batch), BLOCK_ROWS):
        part = batch[at : at + BLOCK_ROWS]
        columns = {
            "topic": pa.array([each.topic for each in part], pa.string()),
            "payload": pa.array([each.payload for each in part], pa.large_binary()),
            "qos": pa.array([each.qos for each in part], pa.int32()),
            "retain": pa.array([each.retain for each in part], pa.bool_()),
            "properties": pa.array(
                [[{"key": key, "value": value} for key, value in each.properties] for each in part], USER_PROPERTIES
            ),
        }
        yield from rows.blocks(iter([pa.RecordBatch.from_pydict(columns)]))


def _moment(key: Key) -> str:
    return f"offset {key.offset} of node {key.node}, {instant(key.time)},"
