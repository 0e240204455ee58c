"""Writes to other nodes at the end of each turn. Every message to another node passes here, so the module is compiled."""

# compiled with mypyc
from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.message import NEVER
from broker.server.turns import TurnEnd
from federation.node import Node
from federation.shell.direct_client import DirectConnection
from federation.shell.stream_host import AwaitsStore
from federation.stream.sender import Outlet


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
    flush_soon  ends this turn once more
    acks_due    connections from other nodes whose acknowledgements wait for the store
    """

    def __init__(self, node: Node, arm: Callable[[], None], flush_soon: Callable[[], None]) -> None:
        self.is_watched = False
        self.acks_due: dict[AwaitsStore, None] = {}
        self._node = node
        self._outlets = node.outlets
        self._arm = arm
        self._flush_soon = flush_soon
        self._loop = asyncio.get_running_loop()
        self._gathering: asyncio.TimerHandle | None = None  # until blocks that gather are to leave

    def turn_ended(self, now: float) -> None:
        """Flush the outlets; set the timer when a new deadline may be near."""
        gathered_at = NEVER
        outlets = self._outlets
        for sender in outlets.take_ready():
            outlet = sender.outlet
            if outlet is not None:
                outlet.flush_at(now)
            gathered_at = min(gathered_at, sender.gathered_at())
        # A search for the next deadline in every turn would cost more than the turn. New and near can only be the deadline of
        # a block that gathers, which has a timer here, and the rest of a full state; the timer of all finds the others.
        if gathered_at != NEVER and self._gathering is None:
            self._gathering = self._loop.call_at(gathered_at, self._gathered)
        if not self.is_watched or outlets.ready:
            self._arm()
        promises = self._node.promises
        sessions = self._node.sessions
        if promises is not None or (sessions is not None and sessions.active):
            if self._node.turn_ended(now):
                self._flush_soon()
            if sessions is not None and sessions.active:
                self._arm()
        if promises is not None:
            if promises.is_due_changed:
                promises.is_due_changed = False
                self._arm()
        acks_due = self.acks_due
        if acks_due:
            streams = list(acks_due)
            acks_due.clear()
            for stream in streams:
                stream.carry_out()

    def _gathered(self) -> None:
        """Blocks that have gathered long enough leave."""
        self._gathering = None
        for sender in self._node.senders.values():
            if sender.gathered_at() != NEVER:
                sender.want_attention()
        self.turn_ended(self._loop.time())

    def stop(self) -> None:
        """Cancel the timer."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
