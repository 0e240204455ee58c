"""Logs the exceptions of plugins in calls of the core. They are counted as `plugin_faults`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.faults import Faults
from broker.server.logging import get_logger

QUIET_SECONDS: Final = 60.0  # between two lines about one call, so that a fault in every message does not fill the disk


class LoggedFaults(Faults):
    """A line with the traceback for each call, then at most one every QUIET_SECONDS; `left_out_before` is the number of
    faults of the call without a line."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._log = get_logger("plugins")
        self._next_at: dict[str, float] = {}  # by call: as many as there are hooks
        self._left_out: dict[str, int] = {}

    def plugin_failed(self, call: str, error: Exception) -> None:
        now = self._time()
        if now < self._next_at.get(call, now):
            self._left_out[call] = self._left_out.get(call, 0) + 1
            return
        self._next_at[call] = now + QUIET_SECONDS
        left_out = self._left_out.pop(call, 0)
        more = {"left_out_before": left_out} if left_out else {}
        self._log.error("fault in a plugin", call=call, exc_info=error, **more)
