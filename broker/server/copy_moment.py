"""The moment at which all workers of a node copy their stores, agreed on in memory that they share.

What is on its way between two workers is in the store of one until the other one has it: copies of what all stores had at one
moment are those of a node that was killed as a whole then, and nothing is missing or doubled. So no worker commits from before
the moment until its copy has what it had then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from broker.store.store import StoreFault

LOOK_SECONDS: Final = 0.001  # between two looks at the others, in the writer's thread
# Near the end of the copy of one worker, until those of the others are; it goes on to commit.
NEAR_SECONDS_MAX: Final = 600.0
HELD_SECONDS_MAX: Final = 2.0  # without commits, until the others hold, too; what waits for the store waits so long
STEPS: Final = 2  # near the end of its copy, and without commits


class CopyMoment:
    """numbers: of the newest copy, then of the step that each worker has reached: STEPS of each copy."""

    def __init__(self, numbers: memoryview[int]) -> None:
        self._numbers = numbers

    def begin(self) -> None:
        """Begin a copy, or end one that is not over: who takes part in it is told so. By worker 0."""
        self._numbers[0] += 1

    def join(self, index: int, pause: Callable[[], bool], now: Callable[[], float] = time.monotonic) -> CopyPart:
        """The worker takes part in the copy that began last. `pause` commits what waits."""
        return CopyPart(self._numbers, index, pause, now)


class CopyPart:
    """The part of one worker in a copy, in the thread that writes."""

    def __init__(
        self, numbers: memoryview[int], index: int, pause: Callable[[], bool], now: Callable[[], float]
    ) -> None:
        self._numbers = numbers
        self._copy = numbers[0]
        self._index = index
        self._pause = pause
        self._now = now
        self._near_until: float | None = None

    def pause(self) -> bool:
        """Commit what waits. False when the node stops. Raises StoreFault when the copy is over."""
        self._check()
        return self._pause()

    def is_reached(self) -> bool:
        """To be asked near the end of the copy of this worker, again and again. False while another worker is not near; True
        is the moment. Raises StoreFault when the copy is over, or another worker does not come to its moment."""
        if self._near_until is None:
            self._near_until = self._now() + NEAR_SECONDS_MAX
        if not self._have_all(STEPS * self._copy):
            self._wait(self._near_until, NEAR_SECONDS_MAX, "near the end of its copy")
            return False
        until = self._now() + HELD_SECONDS_MAX
        while not self._have_all(STEPS * self._copy + 1):
            self._wait(until, HELD_SECONDS_MAX, "to the moment of the copy")
        return True

    def _have_all(self, step: int) -> bool:
        """This worker has reached the step. Raises StoreFault when the copy is over."""
        self._check()
        self._numbers[1 + self._index] = step
        return all(number >= step for number in self._numbers[1:])

    def _wait(self, until: float, seconds: float, where: str) -> None:
        if self._now() >= until:
            raise StoreFault(f"another worker did not come {where} within {seconds:g} s")
        time.sleep(LOOK_SECONDS)

    def _check(self) -> None:
        if self._numbers[0] != self._copy:
            raise StoreFault("the copy was ended: that of another worker has failed, or nobody reads it any more")
