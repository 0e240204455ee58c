"""The time that definitions and retained messages are stamped with and judged by: the median of the clocks of the nodes of a
cluster.

A node whose clock is near the median uses its own, another one uses the median. Of two clocks the later one is the median, so
that a node that begins in 1970 takes what the other one has.
"""

# compiled with mypyc
from __future__ import annotations

from collections.abc import Collection
from typing import Final

from federation.hybrid_clock import CLOCK_LATEST, seconds_of

DIFFERENCE_MAX: Final = 60.0
"""Seconds between a node's clock and the median. Nodes below it differ by at most twice as much, far less than AHEAD_MAX."""
TIME_LATEST: Final = seconds_of(CLOCK_LATEST)


class ClusterClock:
    """`heard` with the clock of each other node; all times are Unix seconds."""

    def __init__(self) -> None:
        self._differences: dict[str, float] = {}  # node -> its clock minus the one of this node

    def heard(self, node: str, time: float, own: float) -> None:
        """A node has told its clock; `own` is the one of this node at that instant."""
        self._differences[node] = time - own

    def set_members(self, names: Collection[str]) -> None:
        """The other nodes that live now. Those that are gone have no part in the median."""
        self._differences = {name: found for name, found in self._differences.items() if name in names}

    def time(self, own: float) -> float:
        """The time to stamp with when the clock of this node is at `own`."""
        return min(own + self.correction(), TIME_LATEST)

    def correction(self) -> float:
        """Seconds from the clock of this node to the one it stamps with; 0.0 for its own."""
        median = self._median()
        return median if abs(median) > DIFFERENCE_MAX else 0.0

    def differing(self) -> dict[str, float]:
        """Other nodes whose clocks are not near the median, with the seconds that they are ahead of it."""
        median = self._median()
        return {
            name: found - median
            for name, found in sorted(self._differences.items())
            if abs(found - median) > DIFFERENCE_MAX
        }

    def _median(self) -> float:
        clocks = sorted([0.0, *self._differences.values()])
        return clocks[len(clocks) // 2]
