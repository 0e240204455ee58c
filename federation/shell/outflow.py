"""What leaves for other nodes at the end of a turn. Every message to another node passes here, so the module is compiled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.server.turns import TurnEnd
from federation.shell.direct_client import DirectConnection
from federation.stream.batches import Batch, Outlet, Outlets
from federation.stream.sender import PeerSender


class PeerWriter(Outlet):
    """Hands what one sender wants sent to the stream that is open.

    direct   the direct stream, None while there is none
    queue    takes the batches otherwise, for gRPC
    """

    __slots__ = ("_loop", "direct", "queue", "sender")

    def __init__(self, sender: PeerSender, queue: Callable[[list[Batch]], None]) -> None:
        self.sender = sender
        self.queue = queue
        self.direct: DirectConnection | None = None
        self._loop = asyncio.get_running_loop()

    def flush(self) -> None:
        """Call it after each call to the sender from outside."""
        self.flush_at(self._loop.time())

    def flush_at(self, now: float) -> None:
        direct = self.direct
        if direct is not None:
            data = self.sender.take_bytes(now)
            if data:
                direct.write(data)
            return
        batches = self.sender.take_batches(now)
        if batches:
            self.queue(batches)


class Outflow(TurnEnd):
    """is_watched   a timer runs that looks at all deadlines now and then
    arm          called when a deadline is near and new, or nobody watches
    """

    def __init__(self, outlets: Outlets, arm: Callable[[], None]) -> None:
        self.is_watched = False
        self._outlets = outlets
        self._arm = arm

    def turn_ended(self, now: float) -> None:
        """At the end of each turn that changed the broker: batches leave, the timer is moved."""
        gathers = False
        for sender in self._outlets.take_ready():
            outlet = sender.outlet
            if outlet is not None:
                outlet.flush_at(now)
            else:
                sender.take_batches(now)
            gathers = gathers or sender.gathers()
        # Looking for the next deadline in every turn would cost more than the turn: the only one that can be near and
        # new here is that of a batch that gathers, all others are found by the watch.
        if gathers or not self.is_watched:
            self._arm()
