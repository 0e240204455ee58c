"""Numbers that all workers of a node see, in memory that they share and that outlives their processes: of connections, of
starts, of drains, of copies of the stores."""

from __future__ import annotations

import mmap
from typing import Final

from broker.config.settings import WORKERS_MAX
from broker.server.copy_moment import CopyMoment

NUMBER_BYTES: Final = 8
ABSENT: Final = 2**63  # in place of the number of a worker that takes no connections


class SharedCounts:
    """Made by the supervisor before the workers. Each worker writes its own number; a number that is read may be a moment
    old.

    copies  the moment of copies of all stores
    """

    def __init__(self, count: int) -> None:
        numbers = memoryview(mmap.mmap(-1, (6 * WORKERS_MAX + 1) * NUMBER_BYTES)).cast("Q")
        self._numbers = numbers[:count]
        self._restarts = numbers[WORKERS_MAX : WORKERS_MAX + count]
        self._drain_rates = numbers[2 * WORKERS_MAX : 2 * WORKERS_MAX + count]
        self._takes_until = numbers[3 * WORKERS_MAX : 3 * WORKERS_MAX + count]  # monotonic milliseconds
        self._loaded = numbers[4 * WORKERS_MAX : 4 * WORKERS_MAX + count]  # 1 when it has read its store
        self.copies = CopyMoment(numbers[5 * WORKERS_MAX : 5 * WORKERS_MAX + 1 + count])
        for index in range(count):
            self._numbers[index] = ABSENT

    def set(self, index: int, number: int) -> None:
        if index < len(self._numbers):  # not of a worker that leaves
            self._numbers[index] = number

    def set_restarts(self, index: int, number: int) -> None:
        """By the supervisor."""
        if index < len(self._restarts):
            self._restarts[index] = number

    def restarts(self) -> list[int]:
        """Return how often each worker was started after its process had ended."""
        return list(self._restarts)

    def has_loaded(self, index: int) -> None:
        """By the worker: it has read its store."""
        if index < len(self._loaded):
            self._loaded[index] = 1

    def is_loading(self) -> bool:
        """Return whether a worker reads its store for the first time since the node was started."""
        return any(not loaded and not restarts for loaded, restarts in zip(self._loaded, self._restarts, strict=True))

    def set_drain_rate(self, index: int, rate: int) -> None:
        """By the worker: it is to be drained at this rate; 0 for not at all."""
        self._drain_rates[index] = rate

    def set_drain_rates(self, rates: list[int]) -> None:
        """By worker 0: the workers are to be drained at these rates, by index."""
        for index, rate in enumerate(rates):
            self._drain_rates[index] = rate

    def drain_rate(self, index: int) -> int:
        return self._drain_rates[index]

    def of_others(self, index: int) -> int:
        """Return how many connections the other workers have."""
        return sum(number for other, number in enumerate(self._numbers) if other != index and number != ABSENT)

    def takes(self, index: int, until: float) -> None:
        """By the worker: it takes clients until then, in monotonic seconds, unless it says more; 0.0 for not now."""
        if index < len(self._takes_until):
            self._takes_until[index] = int(until * 1000)

    def least(self, now: float) -> tuple[int, int] | None:
        """Return (index, number) of the worker with the fewest connections of those that take clients; None for none."""
        found: tuple[int, int] | None = None
        for index, number in enumerate(self._numbers):
            if self._takes_until[index] > now * 1000 and number != ABSENT and (found is None or number < found[1]):
                found = index, number
        return found
