"""A standalone Spark cluster on loopback: a master and workers, started by `spark-class` as docs/pipeline-jobs.md shows."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import pyspark
from cluster import LOOPBACK, BenchFailed, Ports

from pipeline.session import prepare_environment

SPARK_CLASS: Final = Path(pyspark.__file__).parent / "bin" / "spark-class"
PACKAGE: Final = "org.apache.spark.deploy"
REGISTERED: Final = "Successfully registered with master"
ENDS_SECONDS: Final = 30
STARTS_SECONDS: Final = 300.0  # of three JVMs on a busy machine
LOG: Final = "cluster.log"


@dataclass(frozen=True)
class SparkCluster:
    """master: its URL. workers: process ids, whose children are the executors."""

    master: str
    workers: list[int]


@contextmanager
def spark_cluster(folder: Path, ports: Ports, workers: int = 2) -> Iterator[SparkCluster]:
    """A cluster whose workers, with one core and 1 GB each, are registered. All processes end with the block."""
    prepare_environment()
    folder.mkdir()
    port = ports.take()
    url = f"spark://{LOOPBACK}:{port}"
    started: list[subprocess.Popen[bytes]] = []
    log = (folder / LOG).open("wb")
    try:
        master = ["--host", LOOPBACK, "--port", str(port), "--webui-port", str(ports.take())]
        started.append(_start(f"{PACKAGE}.master.Master", master, folder, log))
        # Workers try again until the master is there.
        for number in range(workers):
            place = folder / f"worker{number}"
            worker = ["--host", LOOPBACK, "--cores", "1", "--memory", "1g", "--work-dir", str(place)]
            worker += ["--webui-port", str(ports.take()), url]
            started.append(_start(f"{PACKAGE}.worker.Worker", worker, folder, log))
        _wait_until_registered(folder / LOG, workers, started)
        yield SparkCluster(url, [process.pid for process in started[1:]])
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
        "SPARK_LOCAL_IP": LOOPBACK,
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


def _wait_until_registered(log: Path, workers: int, processes: list[subprocess.Popen[bytes]]) -> None:
    until = time.monotonic() + STARTS_SECONDS
    while log.read_text().count(REGISTERED) < workers:
        if any(process.poll() is not None for process in processes) or time.monotonic() > until:
            raise BenchFailed(f"the Spark cluster is not ready\n{log.read_text()}")
        time.sleep(0.1)
