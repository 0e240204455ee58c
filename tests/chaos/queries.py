"""The queries and readers of a chaos run, as the commands that run them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from batch_files import BatchFiles
from reader_process import OwnReader, ReaderProcess
from records import archive_files
from schedule import Reader
from spark_process import KafkaProcess, PushdownProcess, SparkProcess

HERE: Final = Path(__file__).parent
SINK_QUERY: Final = Path(__file__).with_name("sink_query.py")
GMQTTCTL: Final = Path(sys.executable).with_name("gmqttctl")
MASTER: Final = "local[2,4]"  # a task is tried four times: the kill of a Python worker ends no query
KAFKA_TOPIC: Final = "chaos"
ROWS: Final = "rows"
CHECKPOINT: Final = "checkpoint"


def reader_process(
    reader: Reader, directory: Path, servers: list[str], kafka: list[str], ports: list[int], nodes: list[str]
) -> ReaderProcess:
    """What reads the logs.

    servers, kafka, ports  of the APIs, of the plugins `kafka`, of the MQTT listeners of the nodes
    """
    if reader is Reader.SOURCE:
        return archive_process(directory, servers)
    folder = directory / reader
    log = directory / f"{reader}.log"
    if reader is Reader.KAFKA:
        command = [sys.executable, str(HERE / "kafka_query.py"), "--servers", ",".join(kafka), "--topic", KAFKA_TOPIC]
        return KafkaProcess(reader, [*command, "--dir", str(folder)], folder / CHECKPOINT, log, nodes)
    if reader is Reader.PUSHDOWN:
        command = [sys.executable, str(HERE / "pushdown_reader.py"), "--servers", ",".join(servers)]
        return PushdownProcess(reader, [*command, "--dir", str(folder)], folder, log)
    command = [sys.executable, str(HERE / "replay_reader.py"), "--ports", ",".join(map(str, ports))]
    return OwnReader(reader, [*command, "--dir", str(folder)], folder, log)


def files_read(reader: Reader, directory: Path) -> list[Path]:
    """The Parquet files with what a reader other than the archive has read."""
    folder = directory / reader
    return archive_files(folder / ROWS) if reader is Reader.KAFKA else BatchFiles(folder).files()


def archive_process(directory: Path, servers: list[str]) -> SparkProcess:
    """gmqttctl pipeline run archive; its tables and checkpoints are in the folder `pipelines`."""
    folder = directory / "pipelines"
    command = [str(GMQTTCTL), "pipeline", "run", "archive", "--servers", ",".join(servers)]
    command += ["--dir", str(folder), "--every", "1s", "--master", MASTER]
    return SparkProcess("archive", command, folder / "checkpoints" / "archive", directory / "archive.log")


def sink_process(directory: Path, servers: list[str], node: str) -> SparkProcess:
    """The query that copies each record through the sink; `node` is the one that publishes."""
    checkpoint = directory / "sink-checkpoint"
    command = [sys.executable, str(SINK_QUERY), "--servers", ",".join(servers), "--node", node]
    command += ["--checkpoint", str(checkpoint)]
    return SparkProcess("sink", command, checkpoint, directory / "sink.log")
