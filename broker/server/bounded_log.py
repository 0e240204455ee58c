"""Lines of the log whose number is bounded: of clients, of faults in plugins, of counters that rise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from broker.faults import Faults
from broker.hooks import ClientObserver
from broker.message import NEVER
from broker.server.logging import get_logger

CHECK_SECONDS: Final = 10.0
LINES_MAX: Final = 100  # a second at the level info, so that clients that reconnect all the time do not fill the disk
LASTING_SECONDS: Final = 3600.0  # longest time between two lines about counters that rise all the time
QUIET_SECONDS: Final = 60.0  # shortest time between two lines of one kind, or about one call of plugins


class CounterLog:
    """One kind of line, about counters of dropped messages or refused input. One line covers all reasons. The first one of an
    episode comes within CHECK_SECONDS, the last one when nothing has risen for QUIET_SECONDS. Between them each waits twice as
    long as the one before, up to LASTING_SECONDS, unless there is a further reason.

    totals   returns counters by reason
    details  returns further fields for a line
    """

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
        self._told = self._seen = totals()
        self._told_at = self._risen_at = now
        self._reasons: set[str] = set()  # of the lines of this episode
        self._wait = 0.0

    def check(self, now: float, is_last: bool = False) -> None:
        """Write a line with what the counters rose by since the last one, where it is due."""
        totals = self._totals()
        if totals != self._seen:
            self._seen = totals
            self._risen_at = now
        is_over = now - self._risen_at >= QUIET_SECONDS
        risen = {
            name: total - self._told.get(name, 0) for name, total in totals.items() if total > self._told.get(name, 0)
        }
        is_new = not self._reasons.issuperset(risen)
        if risen and (is_last or is_over or now - self._told_at >= min(self._wait, QUIET_SECONDS if is_new else NEVER)):
            self._write(self._event, within_seconds=round(now - self._told_at), counts=risen, **self._details())
            self._wait = QUIET_SECONDS if is_new else min(2 * self._wait, LASTING_SECONDS)
            self._reasons.update(risen)
            self._told_at = now
            self._told = totals
        elif not risen:
            self._told = totals  # the counters of a node that joined again start at 0
        if is_over:
            self._reasons.clear()
            self._wait = 0.0


class CounterLogs:
    """Checks all kinds of lines every CHECK_SECONDS."""

    def __init__(self, loop: asyncio.AbstractEventLoop, logs: list[CounterLog]) -> None:
        self._loop = loop
        self._logs = logs
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._loop.call_later(CHECK_SECONDS, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            for log in self._logs:
                log.check(self._loop.time(), is_last=True)

    def _check(self) -> None:
        for log in self._logs:
            log.check(self._loop.time())
        self.start()


class ClientLog(ClientObserver):
    """Writes at most LINES_MAX lines a second, or every line at the level debug. `left_out_before` in the next line is the
    number of omitted lines."""

    def __init__(self, time: Callable[[], float], level: str) -> None:
        self._time = time
        self._is_bounded = level != "debug"
        self._log = get_logger("client")
        self._second_began_at = time()
        self._lines = 0  # in that second
        self._left_out = 0

    def client_connected(self, client_id: str, addr: str, version: int, username: str, keep_alive: int) -> None:
        self._write(
            "connected", client_id=client_id, addr=addr, version=version, username=username, keep_alive=keep_alive
        )

    def client_disconnected(self, client_id: str, addr: str, reason: str) -> None:
        self._write("disconnected", client_id=client_id, addr=addr, reason=reason)

    def client_refused(self, client_id: str, addr: str, username: str, reason: str) -> None:
        self._write("refused", client_id=client_id, addr=addr, username=username, reason=reason)

    def subscription_refused(self, client_id: str, full_filter: bytes, reason: str) -> None:
        self._write("subscription refused", client_id=client_id, filter=full_filter, reason=reason)

    def _write(self, event: str, **fields: Any) -> None:
        now = self._time()
        if now - self._second_began_at >= 1.0:
            self._second_began_at = now
            self._lines = 0
        self._lines += 1
        if self._is_bounded and self._lines > LINES_MAX:
            self._left_out += 1
            return
        if self._left_out:
            fields["left_out_before"] = self._left_out
            self._left_out = 0
        self._log.info(event, **fields)


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
