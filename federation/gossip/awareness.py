"""Local health: a node that misses acks may be slow itself, so it probes more slowly (wire-gossip 6.2)."""

from __future__ import annotations


class Awareness:
    """`score` 0 is healthy; the highest score is `max_multiplier` - 1."""

    def __init__(self, max_multiplier: int) -> None:
        assert max_multiplier >= 1
        self._maximum = max_multiplier - 1
        self.score = 0

    def adjust(self, delta: int) -> None:
        """Change the score within its range."""
        self.score = min(self._maximum, max(0, self.score + delta))

    def scale(self, interval: float) -> float:
        """The interval at the present score, in the unit of `interval`."""
        return interval * (self.score + 1)
