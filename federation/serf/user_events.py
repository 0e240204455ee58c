"""User events: each is delivered and passed on once (wire-gossip 8.7)."""

from __future__ import annotations

from typing import Final

from federation.gossip.counters import Counters, DropReason
from federation.serf.events import Event, UserEventReceived
from federation.serf.lamport import LamportClock
from federation.serf.messages import RecentEvent, UserEvent
from federation.serf.recent import RecentMessages

USER_EVENT_BYTES_MAX: Final = 512
"""Bytes of name and payload of a user event of this node, and of the encoded message: Serf's default."""
USER_EVENT_HARD_MAX: Final = 9216
"""Bytes of name and payload of a user event of any node; longer ones are dropped and counted."""


class UserEvents:
    """`clock` is the event clock. Events before `min_time` are old ones, of before this node's join: they are dropped."""

    def __init__(self, events: list[Event], counters: Counters) -> None:
        self._events = events
        self._counters = counters
        self._recent = RecentMessages(counters)
        self.clock = LamportClock()
        self.min_time = 0

    def send(self, name: str, payload: bytes, coalesce: bool) -> bytes:
        """A new event of this node, which is delivered here at once. Gives the message to broadcast.

        ValueError for a name that is empty, and for more than USER_EVENT_BYTES_MAX.
        """
        if not name:
            raise ValueError("the name of a user event is empty")
        size = len(name.encode()) + len(payload)
        if size > USER_EVENT_BYTES_MAX:
            raise ValueError(
                f"user event exceeds configured limit of {USER_EVENT_BYTES_MAX} bytes before encoding: it has {size}"
            )
        event = UserEvent(self.clock.time, name, payload, coalesce)
        message = event.encode()
        if len(message) > USER_EVENT_BYTES_MAX:
            raise ValueError(
                f"user event exceeds configured limit of {USER_EVENT_BYTES_MAX} bytes after encoding: "
                f"it has {len(message)}"
            )
        self._counters.user_events_sent += 1
        self.receive(event)
        return message

    def receive(self, event: UserEvent) -> bool:
        """Handle an event of any node. True when it is new: pass it on."""
        self.clock.witness(event.lamport_time)
        if event.lamport_time < self.min_time:
            return False
        if len(event.name.encode()) + len(event.payload) > USER_EVENT_HARD_MAX:
            self._counters.drop(DropReason.MESSAGE_TOO_LARGE)
            return False
        if not self._recent.add(event.lamport_time, (event.name, event.payload), self.clock.time):
            return False
        self._counters.user_events_received += 1
        self._events.append(UserEventReceived(event.lamport_time, event.name, event.payload, event.coalesce))
        return True

    def recent(self) -> list[RecentEvent]:
        """For a push-pull: the events that are remembered."""
        return self._recent.messages()
