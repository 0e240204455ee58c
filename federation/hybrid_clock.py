"""Hybrid logical clocks: times that never go back, and that are behind everything that their node has seen.

A clock is Unix milliseconds << COUNTER_BITS; the counter orders changes of one millisecond, and those of a node whose own
clock is behind one that it has seen.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

COUNTER_BITS: Final = 16
CLOCK_MAX: Final = 2**60
CLOCK_LATEST: Final = 2**59
"""The year 2248: the latest clock that the time of a node gives. Up to CLOCK_MAX there is space for the changes after it."""
AHEAD_MAX: Final = 600.0
"""Seconds that a clock of another node may be ahead. Raising it lets a wrong clock win for longer."""


def seconds_of(clock: int) -> float:
    """Unix seconds."""
    return (clock >> COUNTER_BITS) / 1000


class HybridClock:
    """latest  the greatest clock that was given or seen"""

    def __init__(self) -> None:
        self.latest = 0

    def next(self, time: float) -> int:
        """A clock behind all others. `time` is Unix seconds."""
        self.latest = max(int(time * 1000) << COUNTER_BITS, self.latest + 1)
        return self.latest

    def saw(self, clock: int) -> None:
        """Another node has given this clock, or this one before its start."""
        self.latest = max(self.latest, clock)
