"""Lines of the log for counters of dropped messages and refused input.

One line covers all reasons. The first comes within CHECK_SECONDS, further ones at most every QUIET_SECONDS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

CHECK_SECONDS: Final = 10.0
QUIET_SECONDS: Final = 60.0  # shortest time between two lines of one kind


class CounterLog:
    """One kind of line. `totals` returns counters by reason; `details` returns further fields for a line."""

    def __init__(
        self,
        write: Callable[..., Any],
        event: str,
        totals: Callable[[], dict[str, int]],
        now: float,
        details: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self._write = write
        self._event = event
        self._totals = totals
        self._details = details
        self._told = totals()
        self._told_at = now
        self._next_at = now

    def check(self, now: float, is_last: bool = False) -> None:
        """Write a line with what the counters rose by since the last one, unless that is less than QUIET_SECONDS ago."""
        if now < self._next_at and not is_last:
            return
        totals = self._totals()
        risen = {
            name: total - self._told.get(name, 0) for name, total in totals.items() if total > self._told.get(name, 0)
        }
        if not risen:
            self._told = totals  # the counters of a node that joined again start at 0
            return
        self._write(self._event, within_seconds=round(now - self._told_at), counts=risen, **self._details())
        self._told = totals
        self._told_at = now
        self._next_at = now + QUIET_SECONDS


class CounterLogs:
    """Checks all kinds of lines every CHECK_SECONDS."""

    def __init__(self, loop: asyncio.AbstractEventLoop, logs: list[CounterLog]) -> None:
        self._loop = loop
        self._logs = logs
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._loop.call_later(CHECK_SECONDS, self._check)

    def stop(self) -> None:
        """Write the last lines."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            for log in self._logs:
                log.check(self._loop.time(), is_last=True)

    def _check(self) -> None:
        for log in self._logs:
            log.check(self._loop.time())
        self.start()
