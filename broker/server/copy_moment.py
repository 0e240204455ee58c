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
HELD_SECONDS_MAX: Final = 2.0  # without commits, until the others hold, too; what waits for the store waits so long
STEPS: Final = 2  # near the end of its copy, and without commits


class CopyMoment:
    """numbers: of the newest copy, then of the step that each worker has reached: STEPS of each copy."""

    def __init__(self, numbers: memoryview[int]) -> None:
        self._numbers = numbers

    def begin(self) -> None:
        """Begin a copy, or end one that is not over: who waits for its moment is told so. By worker 0."""
        self._numbers[0] += 1

    def wait(self, index: int, pause: Callable[[], bool], now: Callable[[], float] = time.monotonic) -> None:
        """In the thread that writes, where the copy of worker `index` is near its end: return at the moment. `pause` commits
        what waits, until all are near. Raises StoreFault when the copy is over."""
        copy = self._numbers[0]
        self._numbers[1 + index] = STEPS * copy
        while not self._have_all(copy, STEPS * copy):
            if not pause():
                raise StoreFault("the copy was ended: the node stops")
            time.sleep(LOOK_SECONDS)
        self._numbers[1 + index] = STEPS * copy + 1
        until = now() + HELD_SECONDS_MAX
        while not self._have_all(copy, STEPS * copy + 1):
            if now() >= until:
                raise StoreFault(f"another worker did not come to the moment of the copy within {HELD_SECONDS_MAX:g} s")
            time.sleep(LOOK_SECONDS)

    def _have_all(self, copy: int, step: int) -> bool:
        """Raises StoreFault."""
        if self._numbers[0] != copy:
            raise StoreFault("the copy was ended: that of another worker has failed, or nobody reads it any more")
        return all(number >= step for number in self._numbers[1:])
