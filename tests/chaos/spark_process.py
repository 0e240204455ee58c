"""A Spark driver as a process group of its own, and the Python workers below it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from reader_process import OwnReader, Position, ReaderProcess

BUSY_LOOK_SECONDS: Final = 0.02
BUSY_SECONDS: Final = 5.0
TASK: Final = "pyspark.worker"
PLANNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"


class SparkDriver(ReaderProcess):
    """A driver, with the processes below it."""

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


class SparkProcess(SparkDriver):
    """One streaming query. `checkpoint` is the folder of its checkpoint."""

    def position(self) -> dict[str, Position]:
        """Of each node, after the last batch that was committed."""
        return {node: (found["log"], found["offset"]) for node, found in self.offsets().items()}

    def offsets(self) -> dict[str, Any]:
        """Where the source of the query is, after the last batch that was committed."""
        batches = self.batches()
        if not batches:
            return {}
        *_, offsets = (self.checkpoint / "offsets" / str(batches - 1)).read_text().splitlines()
        found: dict[str, Any] = json.loads(offsets)
        return found

    def has_read(self, ends: Mapping[str, Position]) -> bool:
        position = self.position()
        return all(position.get(node) == end for node, end in ends.items())


class KafkaProcess(SparkProcess):
    """A query over Spark's Kafka source. Partition N is the node with index N of `nodes`."""

    def __init__(self, name: str, command: list[str], checkpoint: Path, log_path: Path, nodes: Sequence[str]) -> None:
        super().__init__(name, command, checkpoint, log_path)
        self._nodes = nodes

    def has_read(self, ends: Mapping[str, Position]) -> bool:
        partitions: dict[str, int] = next(iter(self.offsets().values()), {})
        return all(partitions.get(str(self._nodes.index(node))) == offset for node, (_, offset) in ends.items())


class PushdownProcess(OwnReader, SparkDriver):
    """Batch queries of a program that keeps its batches itself."""


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
