"""A node whose wall clock a test sets."""

from __future__ import annotations

import sys
from pathlib import Path

import offset_clock
from node_process import Node


class ClockNode(Node):
    """A node whose wall clock is ahead of the machine's by `set_clock` seconds."""

    def program(self) -> list[str]:
        if not self.clock_path.exists():
            self.set_clock(0.0)
        return [sys.executable, offset_clock.__file__]

    @property
    def clock_path(self) -> Path:
        return self.config_path.with_suffix(".clock")

    def set_clock(self, seconds: float) -> None:
        data = offset_clock.OFFSET.pack(int(seconds * 1e9))
        if not self.clock_path.exists():
            self.clock_path.write_bytes(data)
        with self.clock_path.open("r+b") as file:  # in place: the node has mapped the file
            file.write(data)
