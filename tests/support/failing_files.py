"""The event log's files with faults: a disk that is full, that loses its end of a write, or that reports errors."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from broker.event_log.files import Files


class FailingFiles(Files):
    """fault     errno of every operation that would take space, 0 for none
    room      bytes that writes take before they fail with ENOSPC; None for any number
    truncates  whether `truncate` works during a fault
    attempts  number of operations that failed
    """

    def __init__(self) -> None:
        self.fault = 0
        self.room: int | None = None
        self.truncates = True
        self.attempts = 0

    def fail(self) -> None:
        if self.fault:
            self.attempts += 1
            raise OSError(self.fault, os.strerror(self.fault))

    def create(self, path: Path, data: bytes) -> int:
        self.fail()
        return super().create(path, data)

    def write(self, descriptor: int, parts: Sequence[bytes], position: int, synced: bool) -> None:
        if self.room is None:
            self.fail()
            super().write(descriptor, parts, position, synced)
            return
        data = b"".join(parts)
        taken = data[: self.room]
        super().write(descriptor, [taken], position, synced)
        self.room -= len(taken)
        if len(taken) < len(data):
            self.attempts += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def truncate(self, descriptor: int, size: int) -> None:
        if not self.truncates:
            self.fail()
        super().truncate(descriptor, size)
