"""A node's suspicion of itself: it misses acks, so it may be slow, so it asks more slowly (section 6.2)."""

from __future__ import annotations


class Awareness:
    """`score` 0 is healthy; it stays below the multiplier's maximum."""

    __slots__ = ("_maximum", "score")

    def __init__(self, max_multiplier: int) -> None:
        assert max_multiplier >= 1
        self._maximum = max_multiplier - 1
        self.score = 0

    def adjust(self, delta: int) -> None:
        self.score = min(self._maximum, max(0, self.score + delta))

    def scale(self, interval: float) -> float:
        return interval * (self.score + 1)
