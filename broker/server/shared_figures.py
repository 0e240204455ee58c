"""The last figures of each worker of a node, in memory that they share and that outlives their processes."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from typing import Final

SLOT_BYTES: Final = 2 * 2**20  # of the figures of one worker; pages that are never written take no memory
NUMBER_BYTES: Final = 8  # before the slots: how often the place was written; before a text: its length
READS_MAX: Final = 100  # of one place, until it was not written meanwhile


class Place:
    """Two slots, of which the newer one is read while the other one is written."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE + 2 * SLOT_BYTES)
        self._written = memoryview(self._memory)[:NUMBER_BYTES].cast("Q")

    def _start(self, number: int) -> int:
        return mmap.PAGESIZE + number % 2 * SLOT_BYTES

    def write(self, text: bytes) -> bool:
        """By one process at a time. False: it is too long, and what was there stays."""
        if len(text) > SLOT_BYTES - NUMBER_BYTES:
            return False
        number = self._written[0] + 1
        start = self._start(number)
        self._memory[start : start + NUMBER_BYTES] = len(text).to_bytes(NUMBER_BYTES, "little")
        self._memory[start + NUMBER_BYTES : start + NUMBER_BYTES + len(text)] = text
        self._written[0] = number
        return True

    def read(self) -> bytes:
        """Return what was written last; b"" where that is nothing, or the place is written all the time."""
        for _ in range(READS_MAX):
            number = self._written[0]
            if number == 0:
                return b""
            start = self._start(number)
            length = int.from_bytes(self._memory[start : start + NUMBER_BYTES], "little")
            text = self._memory[start + NUMBER_BYTES : start + NUMBER_BYTES + length]
            if self._written[0] == number:
                return text
        return b""


class SharedFigures:
    """Made by the supervisor before the workers. Each worker writes its own place, and the supervisor that of one that has
    ended."""

    def __init__(self, indexes: Iterable[int]) -> None:
        self._places = {index: Place() for index in indexes}

    @property
    def indexes(self) -> list[int]:
        return list(self._places)

    def write(self, index: int, text: bytes) -> bool:
        """False: it is too long, and what was told before stays."""
        return self._places[index].write(text)

    def read(self, index: int) -> bytes:
        return self._places[index].read()
