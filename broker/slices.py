"""Slices: how much of a turn of the loop one client gets. The rest of its work goes on in later turns, in order.

Work is counted in steps: a packet, a delivery, a node of a tree that a topic is matched against, a retained topic that is
looked at, a subscription that is added or removed. Compiled, a step takes some 0.2 to 1 µs. So a client whose messages match
thousands of filters, or that subscribes to everything at once, keeps nobody else waiting for more than some milliseconds.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import mypyc_attr

SLICE_STEPS: Final = 2_000


@mypyc_attr(allow_interpreted_subclasses=True)
class Work:
    """Something that may take more than one slice."""

    def go_on(self, now: float) -> bool:
        """Do steps until it is done (True) or the slice is over (False). At least one step is done."""
        raise AssertionError("work without steps")


class Slices:
    """steps   used of the slice at hand; whoever does work adds to it
    cut     how often work was interrupted, since the start
    """

    __slots__ = ("_waiting", "cut", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.cut = 0
        self._waiting: deque[Work] = deque()

    def begin(self) -> None:
        """A client's chunk came: it gets a slice of its own."""
        self.steps = 0

    def is_over(self) -> bool:
        return self.steps >= SLICE_STEPS

    def later(self, work: Work) -> None:
        """Go on with it in a later turn. Each client has one place here at most."""
        self.cut += 1
        self._waiting.append(work)

    def has_work(self) -> bool:
        return len(self._waiting) > 0

    def go_on(self, now: float) -> None:
        """What one turn does of the work that waits: one slice, to those who have waited longest."""
        self.steps = 0
        waiting = self._waiting
        left = len(waiting)
        while left > 0 and self.steps < SLICE_STEPS:
            left -= 1
            work = waiting.popleft()
            if not work.go_on(now):
                waiting.append(work)
