"""A Spark driver as a process group of its own, and the Python workers below it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import psutil

from repository import ROOT
from waiting import eventually

CHAOS: Final = Path(__file__).resolve().parent
COMMIT_SECONDS: Final = 300.0  # from the start of a driver to its first batch, on a busy machine
BUSY_LOOK_SECONDS: Final = 0.02
BUSY_SECONDS: Final = 5.0
STOP_SECONDS: Final = 60.0
TASK: Final = "pyspark.worker"
PLANNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"


class SparkProcess:
    """One streaming query that a command runs until it is told to stop.

    checkpoint  folder of the query's checkpoint; its commits tell how far the query is
    ends        exit statuses of runs that ended by themselves
    """

    def __init__(self, name: str, command: list[str], checkpoint: Path, log_path: Path) -> None:
        self.name = name
        self.command = command
        self.checkpoint = checkpoint
        self.log_path = log_path
        self.ends: list[int] = []
        self.process: subprocess.Popen[bytes] | None = None
        self._batches_at_start = 0

    def start(self) -> None:
        self._batches_at_start = self.batches()
        temporary = self.log_path.parent / "tmp"  # a driver that is killed leaves its files
        temporary.mkdir(exist_ok=True)
        parts = [str(CHAOS)]
        if not sys.flags.safe_path:  # else the product is the compiled one, that is installed
            parts.append(str(ROOT))
        places = {
            "PYTHONPATH": os.pathsep.join(parts),
            "TMPDIR": str(temporary),
            "SPARK_LOCAL_DIRS": str(temporary),
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary}",
        }
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.log_path.parent,
                env={**os.environ, **places},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def batches(self) -> int:
        """How many batches the query has committed, by the number of the last."""
        try:
            return max((int(name) + 1 for name in os.listdir(self.checkpoint / "commits") if name.isdigit()), default=0)
        except FileNotFoundError:
            return 0

    def position(self) -> dict[str, tuple[str, int]]:
        """Log id and next offset of each node, of the last batch that was committed."""
        batches = self.batches()
        if not batches:
            return {}
        *_, offsets = (self.checkpoint / "offsets" / str(batches - 1)).read_text().splitlines()
        return {node: (found["log"], found["offset"]) for node, found in json.loads(offsets).items()}

    def restart_when_ended(self) -> bool:
        """Start again what has ended by itself, as a supervisor does."""
        if self.process is None or self.process.poll() is None:
            return False
        self.ends.append(self.process.returncode)
        self.start()
        return True

    def works(self) -> bool:
        """Whether this run has committed a batch."""
        self.restart_when_ended()
        return self.has_moved

    @property
    def has_moved(self) -> bool:
        """Whether a batch was committed since the last start."""
        return self.batches() > self._batches_at_start

    async def until_works(self) -> None:
        await eventually(self.works, f"{self.name} commits a batch, see {self.log_path}", COMMIT_SECONDS)

    def processes(self) -> list[psutil.Process]:
        if self.process is None:
            return []
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def workers(self) -> list[psutil.Process]:
        """Python workers of tasks. Spark's daemon forks them, so that both have the same command line."""
        return [process for process in self.processes() if _runs(process, TASK) and _runs(process.parent(), TASK)]

    def planners(self) -> list[psutil.Process]:
        """The Python process that asks the source for offsets and plans its batches."""
        return [process for process in self.processes() if _runs(process, PLANNER)]

    def kill(self) -> None:
        """kill -9 of the whole group: the command, its JVM. Python workers see the end of the JVM, as in a crash."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

    def busy_worker(self, choice: float) -> psutil.Process | None:
        """A worker that works now; when none does for BUSY_SECONDS, any; None when there is none."""
        until = time.monotonic() + BUSY_SECONDS
        while True:
            before = {worker: _cpu_seconds(worker) for worker in self.workers()}
            time.sleep(BUSY_LOOK_SECONDS)
            busy = [worker for worker, seconds in before.items() if _cpu_seconds(worker) > seconds]
            if busy:
                return busy[int(choice * len(busy))]
            if time.monotonic() > until:
                idle = list(before)
                return idle[int(choice * len(idle))] if idle else None

    async def stop(self) -> None:
        """SIGTERM to the command, and kill -9 of all that is left after STOP_SECONDS."""
        process = self.process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            try:
                await eventually(lambda: process.poll() is not None, f"end of {self.name}", STOP_SECONDS)
            except AssertionError:
                self.kill()
        self.process = None


def _runs(process: psutil.Process | None, module: str) -> bool:
    try:
        return process is not None and module in process.cmdline()
    except psutil.Error:
        return False


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
