"""Recent user events and queries, so that each is handled once, and recent intents about unknown names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from federation.gossip.counters import Counters, DropReason
from federation.serf.messages import EVENTS_MAX, RecentEvent

SLOT_MAX: Final = 64
"""Different events or queries at one Lamport time; further ones are dropped and counted."""

RECENT_BYTES_MAX: Final = 1 << 20
"""Bytes of all names and payloads of one window: each push-pull carries all of it. Further messages are dropped and counted."""

RECENT_INTENTS_MAX: Final = 4096
"""Unknown names with a remembered intent; intents about further names are dropped and counted."""

Key = tuple[str, bytes]


class RecentMessages:
    """A window of 512 Lamport times (wire-gossip 8.7 and 8.8). A message is (name, payload) or ("", query id)."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._bytes = 0
        self._slots: list[tuple[int, dict[Key, None]] | None] = [None] * EVENTS_MAX

    def add(self, time: int, key: Key, clock: int) -> bool:
        """Remember a message. False: it is no new one, or it was dropped and counted."""
        if clock > EVENTS_MAX and time < clock - EVENTS_MAX:
            self._counters.drop(DropReason.EVENT_TOO_OLD)
            return False
        index = time % EVENTS_MAX
        slot = self._slots[index]
        size = len(key[0]) + len(key[1])
        if slot is not None and slot[0] == time:
            if key in slot[1]:
                return False
            if len(slot[1]) >= SLOT_MAX:
                self._counters.drop(DropReason.EVENT_SLOT_FULL)
                return False
        elif slot is not None:
            for name, payload in slot[1]:
                self._bytes -= len(name) + len(payload)
            slot = self._slots[index] = None
        if self._bytes + size > RECENT_BYTES_MAX:
            self._counters.drop(DropReason.EVENT_SLOT_FULL)
            return False
        self._bytes += size
        if slot is None:
            self._slots[index] = (time, {key: None})
        else:
            slot[1][key] = None
        return True

    def messages(self) -> list[RecentEvent]:
        """All remembered messages."""
        found: list[RecentEvent] = []
        for slot in self._slots:
            if slot is not None:
                for name, payload in slot[1]:
                    found.append((slot[0], name, payload))
        return found


@dataclass(slots=True)
class RecentIntent:
    """The latest intent about a name: a leave or a join. `heard_at` is the time of its arrival."""

    leave: bool
    lamport_time: int
    heard_at: float


class RecentIntents:
    """The latest intents about names that are not in the member table (wire-gossip 8.3)."""

    def __init__(self) -> None:
        self._intents: dict[str, RecentIntent] = {}

    def is_full(self) -> bool:
        return len(self._intents) >= RECENT_INTENTS_MAX

    def add(self, name: str, leave: bool, lamport_time: int, now: float) -> bool:
        """True when the intent is newer than the remembered one and there is room for it."""
        known = self._intents.get(name)
        if known is not None and known.lamport_time >= lamport_time:
            return False
        if known is None and self.is_full():
            return False
        self._intents[name] = RecentIntent(leave, lamport_time, now)
        return True

    def take(self, name: str) -> RecentIntent | None:
        return self._intents.pop(name, None)

    def expire(self, heard_before: float) -> None:
        """Forget intents that arrived before a time."""
        expired = [name for name, intent in self._intents.items() if intent.heard_at < heard_before]
        for name in expired:
            del self._intents[name]
