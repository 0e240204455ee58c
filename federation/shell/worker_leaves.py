"""A worker of an earlier start, which the node has no more: it gives its sessions to the other workers, and ends.

That is a drain (federation/sessions/drain.py) without clients. One that ends before it is over goes on at the next start. Its
folder is removed at the end, so it waits for what a drain leaves at its node, too: messages for a node that is away, in
queues of groups and links, and the copy of a store whose node is away, until its sessions are adopted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from federation.sessions.drain import DRAINED, RATE_MAX, SERVING, Drain, DrainRefused
from federation.shell.drain import DrainControl

LOOK_SECONDS: Final = 0.25
TOLD_SECONDS: Final = 2.0  # between two lines of the log
QUIET_SECONDS: Final = 2.0  # without a session, before it is over: one may have been on its way here


class WorkerLeaves:
    """`finish` is called once, when the other workers have all that this one had."""

    def __init__(self, control: DrainControl, finish: Callable[[str], None], log: Any) -> None:
        self._control = control
        self._finish = finish
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._told_at = 0.0

    def start(self) -> None:
        """Raises DrainRefused where sessions stay on their nodes."""
        self._look(self._control.drain)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, drain: Drain) -> None:
        now = self._loop.time()
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look, drain)
        fault = ""
        if drain.state == SERVING:
            try:
                self._control.begin(RATE_MAX)
            except DrainRefused as refused:  # the other workers are still starting
                fault = str(refused)
        is_over = drain.state == DRAINED and drain.since + QUIET_SECONDS <= now
        kept = drain.keeps() if is_over else ""
        if is_over and not kept:
            self.stop()
            self._control.over()
            self._finish("the other workers have all sessions of this one")
        elif (kept or drain.state != DRAINED) and self._told_at + TOLD_SECONDS <= now:
            self._told_at = now
            waits_for = fault or kept or drain.waits_for()
            left = {"sessions_left": drain.sessions_left(), "sessions_given": drain.sessions_given}
            self._log.info("sessions go to the other workers", waits_for=waits_for, **left)
