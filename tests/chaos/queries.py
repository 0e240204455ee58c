"""The two Spark queries of a chaos run, as the commands that run them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from spark_process import SparkProcess

SINK_QUERY: Final = Path(__file__).with_name("sink_query.py")
GMQTTCTL: Final = Path(sys.executable).with_name("gmqttctl")
MASTER: Final = "local[2,4]"  # a task is tried four times: the kill of a Python worker ends no query


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
