"""Writes to other nodes at the end of each turn. Every message to another node passes here, so the module is compiled."""

# compiled with mypyc
from __future__ import annotations

from collections.abc import Callable

from broker.server.turns import TurnEnd
from federation.shell.direct_client import DirectConnection
from federation.stream.sender import Outlet, Outlets


class PeerWriter(Outlet):
    """Flushes the open stream of one sender.

    direct    the direct stream, None without one
    flush_go  flushes the Go broker's stream, None without one
    """

    def __init__(self) -> None:
        self.direct: DirectConnection | None = None
        self.flush_go: Callable[[float], None] | None = None

    def flush_at(self, now: float) -> None:
        direct = self.direct
        if direct is not None:
            direct.flush(now)
        elif self.flush_go is not None:
            self.flush_go(now)


class OutletFlush(TurnEnd):
    """Flushes the senders that have something to send.

    is_watched  a timer is set that checks all deadlines
    arm         sets the timer
    """

    def __init__(self, outlets: Outlets, arm: Callable[[], None]) -> None:
        self.is_watched = False
        self._outlets = outlets
        self._arm = arm

    def turn_ended(self, now: float) -> None:
        """Flush the outlets; set the timer when a new deadline may be near."""
        gathers = False
        outlets = self._outlets
        for sender in outlets.take_ready():
            outlet = sender.outlet
            if outlet is not None:
                outlet.flush_at(now)
            gathers = gathers or sender.gathers()
        # A search for the next deadline in every turn would cost more than the turn. New and near can only be the deadline of
        # a block that gathers and the rest of a full state; the timer finds the others.
        if gathers or not self.is_watched or outlets.ready:
            self._arm()
