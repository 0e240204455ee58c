"""The time by which records age: the wall clock, but not one that jumps far ahead, until it has stayed there.

A machine may start with any clock, until NTP has set it; a clock may be set wrong, and right again. What is removed for such a
time does not come back.
"""

from __future__ import annotations

from typing import Final

AHEAD_SECONDS_MAX: Final = 86_400.0  # of the time that has passed since the clock was believed
UNSURE_SECONDS: Final = 600.0  # so long a clock that is further ahead has to stay so


class AgingClock:
    """Begins with the time of the newest record, in Unix ns, at a start at `now`, in monotonic seconds."""

    def __init__(self, newest_ns: int, now: float) -> None:
        self._believed_ns = newest_ns
        self._believed_at = now
        self._ahead_since: float | None = None

    def look(self, wall_ns: int, now: float) -> int:
        """Return the time by which records age, in Unix ns."""
        expected_ns = self._believed_ns + round((now - self._believed_at) * 1e9)
        if wall_ns - expected_ns <= AHEAD_SECONDS_MAX * 1e9:
            self._ahead_since = None
        else:
            if self._ahead_since is None:
                self._ahead_since = now
            if now < self._ahead_since + UNSURE_SECONDS:
                return expected_ns
        self._believed_ns = wall_ns
        self._believed_at = now
        return wall_ns
