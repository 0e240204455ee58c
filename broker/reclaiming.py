"""Decides when a node asks its allocator to give free memory back to the system.

An allocator keeps what was freed for the next use, and returns only what lies at the end of its heap. A burst would stay for
ever in the memory of the process. To ask costs up to 0.1 s for each GB that is free, so it is asked only where that can help,
and rarely where it has not helped.
"""

from __future__ import annotations

from typing import Final

GROWN_BYTES: Final = 24 * 2**20  # more than at the start, from which on it is asked
SHORTEST_SECONDS: Final = 5.0  # between two times
LONGEST_SECONDS: Final = 60.0
PRESSED_SECONDS: Final = 1.0  # between two times while memory is short
SHARE: Final = 16  # part of the memory that makes a difference
PAUSE_FACTOR: Final = 20  # times of what it took


class Reclaiming:
    """`is_due` gets each measurement of the process's resident bytes. The owner then asks, and calls `asked`."""

    def __init__(self, resident: int, now: float) -> None:
        self._start = resident
        self._before = resident  # it was asked last
        self._after = resident
        self._interval = SHORTEST_SECONDS
        self._asked_at = now
        self._pause = 0.0

    def is_due(self, resident: int, now: float, is_pressed: bool = False) -> bool:
        """Return whether to ask now; `is_pressed` where the answer decides if clients are served."""
        waited = now - self._asked_at
        if waited < self._pause:
            return False
        if is_pressed:
            return waited >= PRESSED_SECONDS
        self._start = min(self._start, resident)
        if resident < self._start + GROWN_BYTES:
            return False
        if resident > self._before + self._before // SHARE or resident < self._after - self._after // SHARE:
            self._interval = SHORTEST_SECONDS  # something has happened since
        return waited >= self._interval

    def asked(self, before: int, after: int, now: float, seconds: float) -> None:
        """Memory went from `before` to `after`, and that took so long. Where little comes back, or the node took again what it
        had given, it is asked at longer intervals."""
        is_in_vain = before - after <= before // SHARE or abs(before - self._before) <= before // SHARE
        self._interval = min(2 * self._interval, LONGEST_SECONDS) if is_in_vain else SHORTEST_SECONDS
        self._before = before
        self._after = after
        self._asked_at = now
        self._pause = PAUSE_FACTOR * seconds
