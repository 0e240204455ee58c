"""Events on their way to the owner."""

from __future__ import annotations

from typing import Final

from federation.gossip import counters as reasons
from federation.gossip.counters import Counters
from federation.serf.events import Event, QueryReceived, UserEvent

EVENTS_PENDING_MAX: Final = 65_536
"""Events that nobody has taken; further user events and queries are dropped and counted, member events never."""


class EventQueue:
    __slots__ = ("_counters", "_events")

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._events: list[Event] = []

    def add(self, event: Event) -> None:
        self._events.append(event)

    def offer(self, event: UserEvent | QueryReceived) -> None:
        """What any node can cause in any number."""
        if len(self._events) >= EVENTS_PENDING_MAX:
            self._counters.drop(reasons.EVENTS_FULL)
        else:
            self._events.append(event)

    def take(self) -> list[Event]:
        events = self._events
        if events:
            self._events = []
        return events
