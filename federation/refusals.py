"""Counts of connections and members that are refused for what they have not proved, and which of them are logged."""

# not compiled: called once for a connection
from __future__ import annotations

from typing import Final

from federation.trust import REFUSALS

QUIET_SECONDS: Final = 60.0  # shortest time between two lines about the same
REMEMBERED_MAX: Final = 256  # pairs of an address and a reason; the oldest is forgotten


class Refusals:
    """totals  by the words of `trust.REFUSALS`"""

    def __init__(self) -> None:
        self.totals: dict[str, int] = dict.fromkeys(REFUSALS, 0)
        self._lines: dict[tuple[str, str], tuple[float, int]] = {}  # when the last one was written, refused since

    def note(self, word: str, who: str, reason: str, now: float) -> int:
        """Count a refusal. Return how many of this kind had no line since the last one; -1 when there is no line now."""
        self.totals[word] += 1
        key = (who, reason)
        told_at, left_out = self._lines.pop(key, (now - QUIET_SECONDS, 0))
        if now - told_at < QUIET_SECONDS:
            self._lines[key] = (told_at, left_out + 1)
            return -1
        while len(self._lines) >= REMEMBERED_MAX:
            del self._lines[next(iter(self._lines))]
        self._lines[key] = (now, 0)
        return left_out
