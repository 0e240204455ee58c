"""What leaves for other nodes at the end of a turn. Every message to another node passes here, so the module is compiled."""

from __future__ import annotations

from collections.abc import Callable

from broker.server.turns import TurnEnd
from federation.shell.direct_client import DirectConnection
from federation.stream.sender import Outlet, Outlets


class PeerWriter(Outlet):
    """Hands what one sender wants sent to the stream that is open.

    direct    the direct stream, None while there is none
    flush_go  the same of a stream over gRPC
    """

    __slots__ = ("direct", "flush_go")

    def __init__(self) -> None:
        self.direct: DirectConnection | None = None
        self.flush_go: Callable[[float], None] | None = None

    def flush_at(self, now: float) -> None:
        direct = self.direct
        if direct is not None:
            direct.flush(now)
        elif self.flush_go is not None:
            self.flush_go(now)


class Outflow(TurnEnd):
    """is_watched   a timer runs that looks at all deadlines now and then
    arm          called when a deadline is near and new, or nobody watches
    """

    def __init__(self, outlets: Outlets, arm: Callable[[], None]) -> None:
        self.is_watched = False
        self._outlets = outlets
        self._arm = arm

    def turn_ended(self, now: float) -> None:
        """At the end of each turn that changed the broker: blocks leave, the timer is moved."""
        gathers = False
        outlets = self._outlets
        for sender in outlets.take_ready():
            outlet = sender.outlet
            if outlet is not None:
                outlet.flush_at(now)
            gathers = gathers or sender.gathers()
        # Looking for the next deadline in every turn would cost more than the turn: the only ones that can be near and new
        # here are that of a block that gathers and the rest of a full state; all others are found by the watch.
        if gathers or not self.is_watched or outlets.ready:
            self._arm()
