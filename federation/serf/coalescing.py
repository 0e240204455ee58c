"""Events that come in bursts are told together, as an agent does for its clients (wire-gossip 8.11)."""

from __future__ import annotations

from typing import Final

from federation.serf.events import MemberEvent, MemberReap, MemberUpdate, UserEventReceived

COALESCE_PERIOD: Final = 3.0
"""Longest time for which events are held back."""
QUIESCENT_PERIOD: Final = 1.0
"""Events are told when no other one came for this time."""
COALESCED_MAX: Final = 4096
"""Members with an event, and user events, that are held back; then they are told at once."""


class _Window:
    """The time at which events that are held back are due."""

    def __init__(self) -> None:
        self._latest: float | None = None
        self._quiet = 0.0

    def event(self, now: float) -> None:
        if self._latest is None:
            self._latest = now + COALESCE_PERIOD
        self._quiet = now + QUIESCENT_PERIOD

    def next_timeout(self) -> float | None:
        return None if self._latest is None else min(self._latest, self._quiet)

    def is_due(self, now: float) -> bool:
        at = self.next_timeout()
        return at is not None and at <= now

    def close(self) -> None:
        self._latest = None


class MemberCoalescer:
    """Keeps the last event of each member. One that equals the last that was told is not told again, unless it is an update."""

    def __init__(self) -> None:
        self._window = _Window()
        self._latest: dict[str, MemberEvent] = {}
        self._told: dict[str, type[MemberEvent]] = {}

    def add(self, event: MemberEvent, now: float) -> None:
        self._latest[event.member.name] = event
        self._window.event(now)

    def next_timeout(self) -> float | None:
        return self._window.next_timeout()

    def take(self, now: float) -> list[list[MemberEvent]]:
        """The events that are due, those of one type together."""
        if not self._window.is_due(now) and len(self._latest) < COALESCED_MAX:
            return []
        by_type: dict[type[MemberEvent], list[MemberEvent]] = {}
        for name, event in self._latest.items():
            kind = type(event)
            if self._told.get(name) is not kind or kind is MemberUpdate:
                by_type.setdefault(kind, []).append(event)
            if kind is MemberReap:
                self._told.pop(name, None)
            else:
                self._told[name] = kind
        self._latest.clear()
        self._window.close()
        return list(by_type.values())


class UserCoalescer:
    """Keeps, of user events of one name that may be coalesced, those of the latest Lamport time."""

    def __init__(self) -> None:
        self._window = _Window()
        self._latest: dict[str, list[UserEventReceived]] = {}
        self._count = 0

    def add(self, event: UserEventReceived, now: float) -> None:
        events = self._latest.setdefault(event.name, [])
        if events and events[0].lamport_time < event.lamport_time:
            self._count -= len(events)
            events.clear()
        if not events or events[0].lamport_time == event.lamport_time:
            self._count += 1
            events.append(event)
        self._window.event(now)

    def next_timeout(self) -> float | None:
        return self._window.next_timeout()

    def take(self, now: float) -> list[UserEventReceived]:
        """The events that are due."""
        if not self._window.is_due(now) and self._count < COALESCED_MAX:
            return []
        due = [event for events in self._latest.values() for event in events]
        self._latest.clear()
        self._count = 0
        self._window.close()
        return due
