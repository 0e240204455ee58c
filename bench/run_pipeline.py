"""Measure the data pipeline: what Spark reads from the event logs of two live nodes beside its own file source, the sink
beside the load generator, a publisher beside a full-speed read, and the memory of a node that serves a large log.

Rounds alternate, and their order turns around from round to round. Starting Spark and the nodes is not counted, nor is the
first round of each. Measure on a quiet machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cluster import LOOPBACK, ROOT, BenchFailed, Ports
from memory import anonymous_bytes, peaks
from mqtt_load import MQTT5, MQTT311, cpu_seconds
from pipeline_kafka import JARS, bad_clients, fetch_by_spark, fetch_natively
from pipeline_nodes import (
    QOS_0,
    QOS_1,
    SETTINGS,
    DataSet,
    LoggingNodes,
    result_of,
    start_program,
)
from pipeline_report import BEGIN, END, Line, report, write
from pipeline_rows import (
    FILES,
    ONLY_HOUR,
    Place,
    WrongRows,
    aggregate,
    aggregate_hour,
    aggregate_messages,
    one_hour,
    publish_by_sink,
    stream_to_parquet,
    to_parquet,
    write_files,
)
from report import replace_table
from revision import git
from rows import THIS
from run_bench import describe, interrupt, positive, progress

from pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN: Final = ROOT / "run" / "bench"
MASTER: Final = "local[2]"
MESSAGES: Final = 1_000_000
ROUNDS: Final = 5
QUICK_MESSAGES: Final = 100_000
QUICK_ROUNDS: Final = 2
LOG_GB: Final = 10.0
PUBLISH_SECONDS: Final = 3.0
MESSAGES_A_SECOND_MAX: Final = 1_000_000  # more than a publisher reaches
GENERATOR: Final = "load generator"  # mqtt_load.py, whose messages have subscribers
PUBLISHERS: Final = "publishers alone"  # mqtt_publish.py
NO_READER: Final = "no reader"
GENERATOR_CLIENTS: Final = DataSet("10 clients", 1, 10, 1000, 50)
# Messages that fill a log fast; a reader's memory goes with bytes, not with messages.
LARGE: Final = DataSet("4 kB, QoS 0", 0, 10, 1000, 50)
LARGE_BYTES: Final = 4096
MEMORY_MB: Final = 100
SAMPLE_SECONDS: Final = 0.02
READERS: Final = 2  # as many tasks as `local[2]` runs at once

Measure = Callable[[str], float]  # participant -> seconds
Fetch = Callable[[Place, LoggingNodes], float]  # -> seconds


@dataclass(frozen=True)
class SparkRow:
    """Work that is done on the logs and on the files."""

    name: str
    work: Callable[[Place, str], float]
    mark: float  # smallest ratio of rows a second


SPARK_ROWS: Final = (
    SparkRow("batch read, aggregated", aggregate, 0.3),
    SparkRow("batch read, to Parquet", to_parquet, 0.55),
    SparkRow("stream availableNow, to Parquet", stream_to_parquet, 0.45),
)
FETCH: Final = "batch read over Kafka's protocol, topics and payloads aggregated"
FETCH_MARK: Final = 1.0
NATIVE: Final = "read over Kafka's protocol by a native client"
NATIVE_CPU: Final = "the node's CPU for that"
FETCH_CPU: Final = "the node's CPU for it"
FETCH_CPU_MARK: Final = 1.0
PYTHON_SOURCE: Final = "data source mqtt"
HOUR: Final = "one of 24 hours by a filter of time, aggregated"
HOUR_MARK: Final = 0.67  # 1.5 times the cost of these records alone
SINK: Final = "sink publishes"
REPLAY: Final = "replay by a subscription to $stream, beside a plain one"
PUBLISHER: Final = "publisher while a reader reads at full speed"
MEMORY: Final = "memory of a node that serves a large log to two readers"
SINK_MARK: Final = 0.3
PLAIN: Final = "plain subscription"
BAD: Final = "PUBACK of a publisher beside bad Kafka clients"
NO_BAD: Final = "no bad clients"
BAD_ELSEWHERE: Final = "the same beside bad Kafka clients of another node: what the machine costs"
BAD_MARK: Final = 0.83  # 1.2 times the time
BAD_SECONDS: Final = 4.0
REPLAY_MARK: Final = 0.67  # 1.5 times the CPU
PUBLISHER_MARK: Final = 0.75
ROW_NAMES: Final = (*(row.name for row in SPARK_ROWS), FETCH, NATIVE, HOUR, SINK, PUBLISHER, BAD, REPLAY, MEMORY)


@dataclass
class Bench:
    command: Path
    folder: Path
    messages: int
    rounds: int
    log_gb: float
    rows: Sequence[str]
    ports: Ports = field(default_factory=Ports)
    lines: list[Line] = field(default_factory=list)

    def alternate(
        self, name: str, data: str, unit: str, count: float, beside: str, mark: float, measure: Measure
    ) -> None:
        """Add the line of a ratio: `count` / seconds of this checkout and of `beside`."""
        found: dict[str, list[float]] = {THIS: [], beside: []}
        fault = ""
        try:
            for number in range(self.rounds + 1):
                for participant in (THIS, beside)[:: 1 if number % 2 else -1]:
                    value = count / measure(participant)
                    progress(f"{name}, {data}: round {number}, {participant}: {value:,.0f} {unit}")
                    if number:
                        found[participant].append(value)
        except (WrongRows, BenchFailed) as error:
            fault = str(error).splitlines()[0]
            progress(f"{name}, {data}: {error}")
        rounds = min(map(len, found.values()))
        self.lines.append(Line(name, data, unit, found[THIS][:rounds], beside, found[beside][:rounds], mark, fault))

    # --- the parts

    def measure_spark(self, spark: SparkSession, data: DataSet) -> None:
        wanted = [row for row in SPARK_ROWS if row.name in self.rows]
        others = [name for name in (HOUR, SINK, PUBLISHER) if name in self.rows and data is QOS_1]
        others += [name for name in (FETCH, NATIVE) if name in self.rows]
        if not wanted and not others:
            return
        folder = self.folder / f"qos{data.qos}"
        with LoggingNodes(self.command, folder, self.ports) as nodes:
            start = time.monotonic()
            extents = nodes.publish(data, self.messages)
            progress(f"{data.name}: {self.messages:,} messages published in {time.monotonic() - start:.0f} s")
            place = Place(spark, ",".join(nodes.api), extents, folder / "files", folder)
            write_files(place)
            for row in wanted:
                measure = self._of_place(row.work, place)
                self.alternate(row.name, data.name, "rows/s", place.rows, FILES, row.mark, measure)
            if FETCH in others:
                self.measure_fetch(place, nodes, data, FETCH, FETCH_CPU, fetch_by_spark)
            if NATIVE in others:
                self.measure_fetch(place, nodes, data, NATIVE, NATIVE_CPU, fetch_natively)
            if HOUR in others:
                hour, there = one_hour(place)
                measure = partial(aggregate_hour, hour, there)
                self.alternate(HOUR, data.name, "rows/s", there.rows, ONLY_HOUR, HOUR_MARK, measure)
            if SINK in others:
                self.measure_sink(place, nodes)
            if PUBLISHER in others:
                self.measure_publisher(nodes)
        shutil.rmtree(folder)

    def _of_place(self, work: Callable[[Place, str], float], place: Place) -> Measure:
        return lambda participant: work(place, participant)

    def measure_fetch(
        self, place: Place, nodes: LoggingNodes, data: DataSet, name: str, cpu_name: str, fetch: Fetch
    ) -> None:
        """Add the line of a Kafka client beside the data source, and of what the nodes use for each of its records."""
        micros: list[float] = []

        def measure(participant: str) -> float:
            if participant != THIS:
                return aggregate_messages(place, participant, "")
            before = nodes.cpu_seconds()
            seconds = fetch(place, nodes)
            micros.append((nodes.cpu_seconds() - before) / place.rows * 1e6)
            return seconds

        self.alternate(name, data.name, "rows/s", place.rows, PYTHON_SOURCE, FETCH_MARK, measure)
        fault = self.lines[-1].fault
        self.lines.append(Line(cpu_name, data.name, "µs/record", micros[1:], "", (), FETCH_CPU_MARK, fault))

    def measure_sink(self, place: Place, nodes: LoggingNodes) -> None:
        rows = place.rows
        jobs = itertools.count()

        def measure(participant: str) -> float:
            if participant == THIS:
                return publish_by_sink(place, f"bench-{next(jobs)}", rows)
            if participant == PUBLISHERS:
                return publish(nodes, GENERATOR_CLIENTS, "--messages", rows)["seconds"]
            before = nodes.extents()
            result = result_of(start_program("mqtt_load.py", "--pub", nodes.mqtt[0], "--qos", 1, "--messages", rows))
            nodes.wait_until_logged(before, rows)
            return float(result["seconds"])

        self.alternate(SINK, "QoS 1", "messages/s", rows, GENERATOR, SINK_MARK, measure)
        self.alternate(SINK, "QoS 1", "messages/s", rows, PUBLISHERS, 0.0, measure)

    def measure_publisher(self, nodes: LoggingNodes) -> None:
        for data in (QOS_0, GENERATOR_CLIENTS):

            def measure(participant: str, data: DataSet = data) -> float:
                limit = round(PUBLISH_SECONDS * MESSAGES_A_SECOND_MAX)
                arguments = ("--messages", limit, "--seconds", PUBLISH_SECONDS)
                if participant == NO_READER:
                    return 1 / publish(nodes, data, *arguments)["per_s"]
                with reader(nodes.api[0]):
                    return 1 / publish(nodes, data, *arguments)["per_s"]

            self.alternate(PUBLISHER, f"QoS {data.qos}", "messages/s", 1, NO_READER, PUBLISHER_MARK, measure)

    def measure_bad(self) -> None:
        """Add the lines of the time within which 99 of 100 messages of a publisher are acknowledged, as its inverse."""
        if BAD not in self.rows:
            return
        folder = self.folder / "bad"
        with LoggingNodes(self.command, folder, self.ports) as nodes:
            nodes.publish(QOS_1, self.messages)
            for name, kafka, mark in ((BAD, nodes.kafka[0], BAD_MARK), (BAD_ELSEWHERE, nodes.kafka[1], 0.0)):

                def measure(participant: str, kafka: str = kafka) -> float:
                    with bad_clients(kafka) if participant == THIS else nullcontext():
                        arguments = ("--to", nodes.mqtt[0], "--seconds", BAD_SECONDS)
                        return float(result_of(start_program("mqtt_puback.py", *arguments))["p99_ms"])

                self.alternate(name, QOS_1.name, "1/p99 (1/s)", 1e3, NO_BAD, mark, measure)
        shutil.rmtree(folder)

    def measure_replay(self) -> None:
        """Add the lines of the CPU of a node for a message: taken from the log by one subscriber; published, logged and
        delivered to one subscriber."""
        if REPLAY not in self.rows:
            return
        for data in (QOS_0, QOS_1):
            folder = self.folder / f"replay{data.qos}"
            with LoggingNodes(self.command, folder, self.ports, nodes=1) as nodes:
                publish(nodes, data, "--messages", self.messages)
                for version, name in ((MQTT311, data.name), (MQTT5, f"{data.name}, to MQTT 5")):
                    measure = partial(replay, nodes, data, self.messages, version)
                    self.alternate(REPLAY, name, "messages/CPU s", self.messages, PLAIN, REPLAY_MARK, measure)
            shutil.rmtree(folder)

    def measure_memory(self) -> None:
        """Add the lines of the most anonymous memory above that of the node with an empty log: in the process that was filled
        at full speed, whose heap keeps room for that, and after a restart."""
        if MEMORY not in self.rows:
            return
        folder = self.folder / "memory"
        messages = round(self.log_gb * 1e9 / LARGE_BYTES)
        found: dict[str, list[float]] = {"just filled": [], "started again": []}
        fault = ""
        try:
            nodes = LoggingNodes(self.command, folder, self.ports, nodes=1)
            for state, above in found.items():
                with nodes:
                    if state == "just filled":
                        idle = anonymous_bytes(nodes.cluster.pids)
                        publish(nodes, LARGE, "--messages", messages, "--size", LARGE_BYTES)
                    above.append((serve(nodes, messages * LARGE_BYTES) - idle) / 1e6)
                progress(f"{MEMORY}, {state}: {above[0]:.0f} MB above {idle / 1e6:.0f} MB")
        except (WrongRows, BenchFailed) as error:
            fault = str(error).splitlines()[0]
            progress(f"{MEMORY}: {error}")
        for state, above in found.items():
            data = f"{self.log_gb:g} GB, {state}"
            self.lines.append(Line(MEMORY, data, "MB anonymous memory above idle", above, "", (), MEMORY_MB, fault))
        shutil.rmtree(folder)


def serve(nodes: LoggingNodes, least: int) -> int:
    """Read all of the first node's log, `least` bytes or more, by READERS at once. Returns the most anonymous memory of the
    node meanwhile, in bytes."""
    pids = nodes.cluster.pids
    with peaks({"node": lambda: anonymous_bytes(pids)}, SAMPLE_SECONDS) as found:
        programs = [start_program("log_read.py", "--api", nodes.api[0], "--once") for _ in range(READERS)]
        results = [result_of(program) for program in programs]
    nodes.cluster.check_alive()
    if any(result["bytes"] < least for result in results):
        raise WrongRows(f"the readers got {[result['bytes'] for result in results]} of {least} bytes")
    return found["node"]


def publish(nodes: LoggingNodes, data: DataSet, *arguments: object) -> dict[str, float]:
    """Publish on the first node, and wait until its log has everything."""
    before = nodes.extents()
    found: dict[str, float] = result_of(
        start_program("mqtt_publish.py", "--to", nodes.mqtt[0], *data.arguments(), *arguments)
    )
    nodes.wait_until_logged(before, int(found["messages"]))
    return found


@contextmanager
def reader(api: str) -> Iterator[None]:
    """A process that reads the node's log at full speed meanwhile."""
    program = start_program("log_read.py", "--api", api)
    assert program.stdout is not None
    program.stdout.readline()  # it reads, or it failed
    try:
        yield
    finally:
        result = result_of(program)  # closes its standard input, which ends it
        progress(f"the reader got {result['bytes_per_s'] / 1e6:,.0f} MB/s")


def replay(nodes: LoggingNodes, data: DataSet, messages: int, version: int, participant: str) -> float:
    """CPU seconds of the node for so many messages to one subscriber: the last ones of the log, or new ones."""
    pids = nodes.cluster.pids
    options = ("--qos", data.qos, "--version", version, "--messages", messages)
    if participant == THIS:
        (extent,) = nodes.extents().values()
        start = json.dumps({nodes.names[0]: extent.end - messages})
        before = cpu_seconds(pids)
        with receiver(nodes, f"$stream/{start}/#", *options):
            pass
    else:
        with receiver(nodes, "#", *options):
            before = cpu_seconds(pids)
            publish(nodes, data, "--messages", messages)
    return cpu_seconds(pids) - before


@contextmanager
def receiver(nodes: LoggingNodes, topic_filter: str, *arguments: object) -> Iterator[None]:
    """A subscriber of the first node, which is there at the begin and has all of its messages at the end."""
    program = start_program("mqtt_receive.py", "--to", nodes.mqtt[0], "--filter", topic_filter, *arguments)
    assert program.stdout is not None
    program.stdout.readline()
    yield
    result = result_of(program)
    if result["repeated"]:
        raise WrongRows(f"{result['repeated']} messages came twice")


# --- the whole


def chosen(patterns: Sequence[str]) -> list[str]:
    names = [name for name in ROW_NAMES if not patterns or any(text.lower() in name.lower() for text in patterns)]
    if not names:
        known = "\n  ".join(ROW_NAMES)
        raise BenchFailed(f"--rows {' '.join(patterns)}: no row has one of these in its name. There are:\n  {known}")
    return names


def run(arguments: argparse.Namespace) -> int:
    started_at = time.monotonic()
    names = chosen(arguments.rows)
    command = ROOT / (".venv" if arguments.interpreted else ".venv-fast") / "bin" / "gmqttd"
    if not command.exists():
        raise BenchFailed(f"{command.relative_to(ROOT)} is missing: scripts/setup and scripts/build_fast make it")
    messages = arguments.messages or (QUICK_MESSAGES if arguments.quick else MESSAGES)
    rounds = arguments.rounds or (QUICK_ROUNDS if arguments.quick else ROUNDS)
    subject = {
        THIS: git("describe", "--always", "--dirty") + (" interpreted" if arguments.interpreted else ""),
        "rounds": str(rounds),
        "data": f"{messages:,} messages of 100 random bytes on two nodes; files: {FILES} on zstd Parquet that Spark wrote",
        "Spark": f"{MASTER}, pyspark {spark_version()}",
    }
    facts: dict[str, str] = {**describe({THIS: command}, subject), "settings": SETTINGS}
    with tempfile.TemporaryDirectory(prefix="gmqttd-bench-", dir=arguments.dir) as folder:
        bench = Bench(command, Path(folder), messages, rounds, arguments.log_gb, names)
        if set(names) - {BAD, MEMORY, REPLAY}:
            with session(Path(folder)) as spark:
                for data in (QOS_0, QOS_1):
                    bench.measure_spark(spark, data)
        bench.measure_bad()
        bench.measure_replay()
        bench.measure_memory()
    text = report(bench.lines, facts)
    # A part does not replace the figures of a whole run.
    is_whole = (
        names == list(ROW_NAMES)
        and not arguments.interpreted
        and (messages, arguments.log_gb) == (MESSAGES, LOG_GB)
        and rounds >= ROUNDS
    )
    target = ROOT / "bench" / "results" if is_whole else RUN
    write(target, "pipeline", text, bench.lines, facts)
    if is_whole:
        replace_table(ROOT / "docs" / "performance.md", text, BEGIN, END)
    print(f"{text}\nWritten: {(target / 'pipeline').relative_to(ROOT)}.md and .json")
    progress(f"{time.monotonic() - started_at:.0f} s")
    if any(line.fault for line in bench.lines):
        return 2
    return 0 if all(line.is_met for line in bench.lines) else 1


def spark_version() -> str:
    import pyspark

    return str(pyspark.__version__)


@contextmanager
def session(folder: Path, master: str = MASTER) -> Iterator[SparkSession]:
    configuration: Mapping[str, str] = {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "spark"),
        "spark.driver.host": LOOPBACK,
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
        "spark.jars": ",".join(str(jar) for jar in sorted(JARS.glob("*.jar"))),
    }
    spark = spark_session("bench", master, configuration)
    try:
        yield spark
    finally:
        spark.stop()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench pipeline", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=positive, help=f"of each data set: {MESSAGES:,}")
    parser.add_argument("--rounds", type=positive, help=f"measured rounds of each row: {ROUNDS}")
    parser.add_argument(
        "--rows", nargs="+", default=[], metavar="TEXT", help="only rows with one of these in their name"
    )
    parser.add_argument("--log-gb", type=float, default=LOG_GB, help=f"size of the large log, in GB: {LOG_GB:g}")
    parser.add_argument(
        "--dir", metavar="DIR", help="where logs and files are kept meanwhile: the system's temporary folder"
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_MESSAGES:,} messages, {QUICK_ROUNDS} rounds")
    parser.add_argument("--interpreted", action="store_true", help="measure .venv's gmqttd instead of the compiled one")
    signal.signal(signal.SIGTERM, interrupt)
    try:
        return run(parser.parse_args())
    except (BenchFailed, WrongRows) as fault:
        progress(f"bench: {fault}")
        return 2
    except KeyboardInterrupt:
        progress("bench: interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main())
