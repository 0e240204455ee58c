"""The serial numbers of blocks of messages."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

START_BITS: Final = 40  # of a serial number: those below count the blocks of one start


class Serials:
    """The serial numbers of blocks, for all outboxes of a process: none comes twice while its store lives, also where a node
    leaves and joins again. starts: StoreIdentity.starts."""

    def __init__(self, starts: int) -> None:
        self._last = starts << START_BITS

    def next(self) -> int:
        self._last += 1
        return self._last
