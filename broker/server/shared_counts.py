"""Numbers that all workers of a node see, in memory that they share and that outlives their processes: of connections, of
starts, of drains, of copies of the stores."""

from __future__ import annotations

import mmap
from typing import Final

from broker.config.settings import WORKERS_MAX
from broker.server.copy_moment import CopyMoment

NUMBER_BYTES: Final = 8
ABSENT: Final = 2**63  # in place of the number of a worker that takes no connections
QUIET_SECONDS_MAX: Final = 2.5  # after so long without a sign of life, one a second, a worker is passed no connections


class SharedCounts:
    """Made by the supervisor before the workers. Each worker writes its own number; a number that is read may be a moment
    old.

    copies  the moment of copies of all stores
    """

    def __init__(self, count: int) -> None:
        numbers = memoryview(mmap.mmap(-1, (5 * WORKERS_MAX + 1) * NUMBER_BYTES)).cast("Q")
        self._numbers = numbers[:count]
        self._restarts = numbers[WORKERS_MAX : WORKERS_MAX + count]
        self._drain_rates = numbers[2 * WORKERS_MAX : 2 * WORKERS_MAX + count]
        self.copies = CopyMoment(numbers[3 * WORKERS_MAX : 3 * WORKERS_MAX + 1 + count])
        self._lived_at = numbers[4 * WORKERS_MAX + 1 : 4 * WORKERS_MAX + 1 + count]  # in milliseconds
        for index in range(count):
            self._numbers[index] = ABSENT

    def set(self, index: int, number: int) -> None:
        if index < len(self._numbers):  # not of a worker that leaves
            self._numbers[index] = number

    def lives(self, index: int, now: float) -> None:
        """By the worker, each second. now: monotonic seconds of the system."""
        if index < len(self._lived_at):
            self._lived_at[index] = int(now * 1000)

    def set_restarts(self, index: int, number: int) -> None:
        """By the supervisor."""
        if index < len(self._restarts):
            self._restarts[index] = number

    def restarts(self) -> list[int]:
        """Return how often each worker was started after its process had ended."""
        return list(self._restarts)

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

    def least(self, now: float) -> tuple[int, int]:
        """Return (index, number) of the worker with the fewest, of those that live as far as is known; the number is ABSENT for
        none. One that hangs would get all connections: it does not count what it is given."""
        first = int((now - QUIET_SECONDS_MAX) * 1000)
        living = [found for found in enumerate(self._numbers) if self._lived_at[found[0]] >= first]
        return min(living, key=lambda found: found[1], default=(0, ABSENT))
