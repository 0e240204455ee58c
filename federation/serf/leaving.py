"""The steps of a graceful leave (wire-gossip 8.5)."""

from __future__ import annotations

from enum import IntEnum

from federation.gossip.broadcasts import Broadcast
from federation.gossip.gossip import Gossip
from federation.serf.config import SerfConfig
from federation.serf.events import Event, Left


class SerfPhase(IntEnum):
    """A leave broadcasts the leave intent, then the dead message, then waits. After it the node may join again."""

    ALIVE = 0
    SPREADING_INTENT = 1
    SPREADING_DEAD = 2
    PROPAGATING = 3
    LEFT = 4


class Leaving:
    """`phase` of this node. Each step ends when its broadcast was sent to its limit, at once when no other member is alive,
    or at a deadline."""

    def __init__(self, config: SerfConfig, gossip: Gossip, events: list[Event]) -> None:
        self._config = config
        self._gossip = gossip
        self._events = events
        self._deadline = 0.0
        self._broadcast: Broadcast | None = None
        self.phase = SerfPhase.ALIVE

    def begin(self, intent: Broadcast | None, now: float) -> None:
        """The intent was queued, or, None, nobody is there to get it."""
        self._broadcast = intent
        self._deadline = now + self._config.broadcast_timeout
        self.advance(now)

    def advance(self, now: float) -> None:
        if self.phase in (SerfPhase.ALIVE, SerfPhase.LEFT):
            return
        alone = self._gossip.table.alive_others == 0
        if self.phase == SerfPhase.SPREADING_INTENT and self._is_spread(now, alone):
            self.phase = SerfPhase.SPREADING_DEAD
            self._broadcast = self._gossip.membership.leave(now)
            self._deadline = now + self._config.broadcast_timeout
        if self.phase == SerfPhase.SPREADING_DEAD and self._is_spread(now, alone):
            self.phase = SerfPhase.PROPAGATING
            self._broadcast = None
            self._deadline = now + self._config.leave_propagate_delay
        if self.phase == SerfPhase.PROPAGATING and (alone or now >= self._deadline):
            self.phase = SerfPhase.LEFT
            self._events.append(Left())

    def _is_spread(self, now: float, alone: bool) -> bool:
        broadcast = self._broadcast
        return alone or broadcast is None or broadcast.finished or now >= self._deadline

    def next_timeout(self) -> float | None:
        if self._broadcast is not None and self._broadcast.finished:
            return 0.0  # it was sent with other packets: the next phase begins at once
        if self._broadcast is not None or self.phase == SerfPhase.PROPAGATING:
            return self._deadline
        return None
