"""The lag of the event loop: a timer that is due every second measures how long after that it is called."""

# not a core: measures the loop
from __future__ import annotations

import asyncio
from typing import Final

INTERVAL_SECONDS: Final = 1.0
WINDOW_SECONDS: Final = 30.0  # `longest` looks back between one and two windows


class LoopLag:
    """Seconds of lateness: of the last second, and the longest of the last 30 to 60 seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.last = 0.0
        self._loop = loop
        self._longest = 0.0  # of this window
        self._longest_before = 0.0
        self._window_ends_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def longest(self) -> float:
        return max(self._longest, self._longest_before)

    def start(self) -> None:
        self._window_ends_at = self._loop.time() + WINDOW_SECONDS
        self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        due_at = self._loop.time() + INTERVAL_SECONDS
        self._timer = self._loop.call_at(due_at, self._measure, due_at)

    def _measure(self, due_at: float) -> None:
        now = self._loop.time()
        self.last = max(0.0, now - due_at)
        if now >= self._window_ends_at:
            self._longest_before = self._longest
            self._longest = 0.0
            self._window_ends_at = now + WINDOW_SECONDS
        self._longest = max(self._longest, self.last)
        self._arm()
