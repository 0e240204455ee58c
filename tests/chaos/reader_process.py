"""A process that reads the logs in batches until it is told to stop, and is started again when it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from batch_files import BatchFiles
from repository import ROOT
from waiting import eventually

PARTS: Final = (str(Path(__file__).resolve().parent), str(ROOT / "tests" / "support"))
COMMIT_SECONDS: Final = 300.0  # from the start to the first batch, on a busy machine
STOP_SECONDS: Final = 60.0
Position = tuple[str, int]  # log id, offset of the next record


class ReaderProcess:
    """One reader that a command runs.

    checkpoint  a folder whose folder `commits` has a file for each batch that is done, named by its number
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
        self._log_at_start = 0

    def start(self) -> None:
        self._batches_at_start = self.batches()
        self._log_at_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        temporary = self.log_path.parent / "tmp"  # a driver that is killed leaves its files
        temporary.mkdir(exist_ok=True)
        parts = list(PARTS)
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

    def has_read(self, ends: Mapping[str, Position]) -> bool:
        """Whether the last batch that is done reaches these ends, by node."""
        raise AssertionError("a subclass implements this")

    def restart_when_ended(self) -> bool:
        """Start again what has ended by itself, as a supervisor does."""
        if self.process is None or self.process.poll() is None:
            return False
        self.ends.append(self.process.returncode)
        self.start()
        return True

    def said(self) -> str:
        """What this run has written to its log."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_at_start)
            return log.read().decode(errors="replace")

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

    def kill(self) -> None:
        """kill -9 of the whole group: the command, its JVM. Python workers see the end of the JVM, as in a crash."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

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


class OwnReader(ReaderProcess):
    """A program of this folder that keeps its batches as batch_files.py has them."""

    def has_read(self, ends: Mapping[str, Position]) -> bool:
        position = BatchFiles(self.checkpoint).position()
        return all(position.get(node, 0) == offset for node, (_, offset) in ends.items())
