"""What was heard lately: user events and queries (each is handled once), and intents about names not known yet."""

from __future__ import annotations

from typing import Final

from federation.gossip import counters as reasons
from federation.gossip.counters import Counters
from federation.serf.messages import EVENTS_MAX

SLOT_MAX: Final = 64
"""Different events or queries at one Lamport time; further ones are dropped and counted."""

RECENT_BYTES_MAX: Final = 1 << 20
"""Names and payloads in one window together: all of it is in every push-pull. Further messages are dropped and counted."""

RECENT_INTENTS_MAX: Final = 4096
"""Names with a remembered intent that are no members (yet); further ones are dropped and counted."""

SEEN_NEW: Final = 0
SEEN_BEFORE: Final = 1
SEEN_TOO_OLD: Final = 2
SEEN_FULL: Final = 3

Key = tuple[str, bytes]


class RecentMessages:
    """A window of 512 Lamport times (sections 8.8 and 8.9). A message is (name, payload) or ("", query id)."""

    __slots__ = ("_bytes", "_slots", "minimum")

    def __init__(self) -> None:
        self._bytes = 0
        self._slots: list[tuple[int, dict[Key, None]] | None] = [None] * EVENTS_MAX
        self.minimum = 0

    def add(self, time: int, key: Key, clock: int) -> int:
        """One of SEEN_*; only what is new and within the window is remembered."""
        if time < self.minimum or (clock > EVENTS_MAX and time < clock - EVENTS_MAX):
            return SEEN_TOO_OLD
        index = time % EVENTS_MAX
        slot = self._slots[index]
        size = len(key[0]) + len(key[1])
        if slot is not None and slot[0] == time:
            if key in slot[1]:
                return SEEN_BEFORE
            if len(slot[1]) >= SLOT_MAX:
                return SEEN_FULL
        elif slot is not None:
            for name, payload in slot[1]:
                self._bytes -= len(name) + len(payload)
            slot = self._slots[index] = None
        if self._bytes + size > RECENT_BYTES_MAX:
            return SEEN_FULL
        self._bytes += size
        if slot is None:
            self._slots[index] = (time, {key: None})
        else:
            slot[1][key] = None
        return SEEN_NEW

    def messages(self) -> list[tuple[int, str, bytes]]:
        """All remembered ones: (Lamport time, name, payload)."""
        found: list[tuple[int, str, bytes]] = []
        for slot in self._slots:
            if slot is not None:
                for name, payload in slot[1]:
                    found.append((slot[0], name, payload))
        return found


def is_new(seen: int, counters: Counters) -> bool:
    """Whether to handle a message that was SEEN_*; what is dropped for another reason than repetition is counted."""
    if seen == SEEN_TOO_OLD:
        counters.drop(reasons.EVENT_TOO_OLD)
    elif seen == SEEN_FULL:
        counters.drop(reasons.EVENT_SLOT_FULL)
    return seen == SEEN_NEW


class RecentIntent:
    __slots__ = ("heard_at", "lamport_time", "leave")

    def __init__(self, leave: bool, lamport_time: int, heard_at: float) -> None:
        self.leave = leave
        self.lamport_time = lamport_time
        self.heard_at = heard_at


class RecentIntents:
    """The latest intent of names that are not in the member table (section 8.3)."""

    __slots__ = ("_intents",)

    def __init__(self) -> None:
        self._intents: dict[str, RecentIntent] = {}

    def is_full(self) -> bool:
        return len(self._intents) >= RECENT_INTENTS_MAX

    def add(self, name: str, leave: bool, lamport_time: int, now: float) -> bool:
        """True when it is newer than what was known."""
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
        expired = [name for name, intent in self._intents.items() if intent.heard_at < heard_before]
        for name in expired:
            del self._intents[name]
