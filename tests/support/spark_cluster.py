"""A standalone Spark cluster on loopback: a master and workers, started by `spark-class` as docs/pipeline-jobs.md shows."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Final

import pyspark

from node_process import free_port
from pipeline.session import prepare_environment
from waiting import eventually

SPARK_CLASS: Final = Path(pyspark.__file__).parent / "bin" / "spark-class"
SPARK_SUBMIT: Final = SPARK_CLASS.with_name("spark-submit")
PACKAGE: Final = "org.apache.spark.deploy"
ENDS_SECONDS: Final = 30
STARTS_SECONDS: Final = 120.0  # of three JVMs on a busy machine
LOG: Final = "cluster.log"


@asynccontextmanager
async def spark_cluster(folder: Path, workers: int = 2) -> AsyncIterator[str]:
    """The URL of the master, once all workers are registered. All processes end with the block."""
    prepare_environment()
    folder.mkdir()  # noqa: ASYNC240
    port, page = free_port(), free_port()
    url = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []
    log = (folder / LOG).open("wb")
    try:
        master = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]
        started.append(_start(f"{PACKAGE}.master.Master", master, folder, log))
        # Workers try again until the master is there.
        for number in range(workers):
            place = folder / f"worker{number}"
            worker = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--work-dir", str(place)]
            worker += ["--webui-port", str(free_port()), url]
            started.append(_start(f"{PACKAGE}.worker.Worker", worker, folder, log))
        await _until(folder / LOG, "Successfully registered with master", workers, started)
        yield url
    finally:
        for process in reversed(started):
            # spark-class replaces itself by the JVM; executors end with their worker.
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(ENDS_SECONDS)
        log.close()


def _start(name: str, arguments: list[str], folder: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    return subprocess.Popen(
        [SPARK_CLASS, name, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
    )


async def _until(log: Path, text: str, count: int, processes: list[subprocess.Popen[bytes]]) -> None:
    """Wait until the cluster's log has this text so often."""

    def is_there() -> bool:
        assert all(process.poll() is None for process in processes), log.read_text()
        return log.read_text().count(text) >= count

    await eventually(is_there, f"the cluster says {text!r} {count} times", STARTS_SECONDS)
