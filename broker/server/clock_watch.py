"""The wall clock of a running node, whose times the store writes.

Cores know monotonic time alone; the node knows how far the wall clock is ahead of it. Where somebody sets the clock (NTP, on a
machine that starts with a wrong one), and where the machine was suspended, this is another number from then on. Records
say wall time: with the former number the next start would take what waits in the store for older than it is, or newer.
"""

# not a core: reads the clock, has timers
from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from broker.server.logging import get_logger
from broker.store.records import all_contents

if TYPE_CHECKING:
    from broker.server.host import Host

LOOK_SECONDS: Final = 30.0
STEP_SECONDS: Final = 10.0  # less than that, and slower, is how a clock is kept right


class ClockWatch:
    """`start` is called when the node serves."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._log = get_logger("server")
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._host.loop.call_later(LOOK_SECONDS, self._look_again)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_again(self) -> None:
        self.look()
        self.start()

    def look(self) -> None:
        """Where the clock was set: tell all times by the new one from now on, also those in the store."""
        host = self._host
        broker = host.broker
        offset = time.time() - host.loop.time()
        moved = offset - broker.wall_offset
        if abs(moved) < STEP_SECONDS:
            return
        broker.wall_offset = offset
        self._log.warning("the clock of this machine was set; times in the store follow it", seconds=round(moved, 1))
        journal = broker.commits.journal
        if journal is not None:
            journal.changes = {**all_contents(broker), **journal.changes}
            host.flush_soon()
