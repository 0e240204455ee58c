"""Numbers of connections that all workers of a node see, in memory that they share."""

from __future__ import annotations

import mmap
from typing import Final

from broker.config.settings import WORKERS_MAX

NUMBER_BYTES: Final = 8
ABSENT: Final = 2**63  # in place of the number of a worker that takes no connections


class SharedCounts:
    """Made by the supervisor before the workers. Each worker writes its own number; a number that is read may be a moment
    old."""

    def __init__(self, count: int) -> None:
        self._numbers = memoryview(mmap.mmap(-1, WORKERS_MAX * NUMBER_BYTES)).cast("Q")[:count]
        for index in range(count):
            self._numbers[index] = ABSENT

    def set(self, index: int, number: int) -> None:
        if index < len(self._numbers):  # not of a worker that leaves
            self._numbers[index] = number

    def of_others(self, index: int) -> int:
        """Return how many connections the other workers have."""
        return sum(number for other, number in enumerate(self._numbers) if other != index and number != ABSENT)

    def least(self) -> tuple[int, int]:
        """Return (index, number) of the worker with the fewest."""
        return min(enumerate(self._numbers), key=lambda found: found[1])
