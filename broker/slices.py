"""Slices: the bounded part of a turn of the event loop that one client gets. The rest of its work follows in later turns, in
order.

Work is counted in steps. A step is a packet, a delivery, a node of a tree that a topic is matched against, a retained topic
or a member of a shared group that is looked at, an access rule that is compared, or an eighth of adding or removing a
subscription. It takes 0.2 to 1 µs in the compiled form. A client whose messages match thousands of filters, or that
subscribes to everything at once, delays the others by some milliseconds only.
"""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import mypyc_attr

SLICE_STEPS: Final = 2_000


@mypyc_attr(allow_interpreted_subclasses=True)
class Work:
    """A piece of work that may take more than one slice."""

    def go_on(self, now: float) -> bool:
        """Do at least one step. Returns True when the work is done, False when the slice is over before that."""
        raise AssertionError("a subclass implements this")


class Slices:
    """steps      number of steps in the present slice; the code that does the work adds them
    steps_max  of a slice
    """

    def __init__(self) -> None:
        self.steps = 0
        self.steps_max = SLICE_STEPS
        self._waiting: deque[Work] = deque()

    def begin(self) -> None:
        """Begin a slice for one client's chunk."""
        self.steps = 0

    def is_over(self) -> bool:
        return self.steps >= self.steps_max

    def later(self, work: Work) -> None:
        """Continue the work in a later turn. Each client has at most one work of each kind here, which bounds the queue."""
        self._waiting.append(work)

    def has_work(self) -> bool:
        return len(self._waiting) > 0

    def go_on(self, now: float) -> None:
        """Do one slice of the work that waits, oldest first."""
        self.steps = 0
        waiting = self._waiting
        left = len(waiting)
        while left > 0 and self.steps < self.steps_max:
            left -= 1
            work = waiting.popleft()
            if not work.go_on(now):
                waiting.append(work)
