"""Events that the owner of the node has not taken yet."""

from __future__ import annotations

from typing import Final

from federation.gossip import counters as reasons
from federation.gossip.counters import Counters
from federation.serf.events import Event, QueryReceived, UserEvent

EVENTS_PENDING_MAX: Final = 65_536
"""Queued events; further user events and queries are dropped and counted. Member events are always queued."""


class EventQueue:
    __slots__ = ("_counters", "_events")

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._events: list[Event] = []

    def add(self, event: Event) -> None:
        """Queue an event; the member table bounds the number of these."""
        self._events.append(event)

    def offer(self, event: UserEvent | QueryReceived) -> None:
        """Queue a user event or query; drop and count it when EVENTS_PENDING_MAX are queued."""
        if len(self._events) >= EVENTS_PENDING_MAX:
            self._counters.drop(reasons.EVENTS_FULL)
        else:
            self._events.append(event)

    def take(self) -> list[Event]:
        events = self._events
        if events:
            self._events = []
        return events
