"""A Lamport clock (section 8.2): it orders intents, events and queries without any wall clock."""

from __future__ import annotations

from federation.gossip.msgpack_fields import WITNESSED_TIME_MAX


class LamportClock:
    """`time` is the next time to give out."""

    __slots__ = ("time",)

    def __init__(self) -> None:
        self.time = 1

    def increment(self) -> int:
        """The time for one new message; the clock moves on."""
        time = self.time
        self.time += 1
        return time

    def witness(self, time: int) -> None:
        """Somebody was at this time already. A time that can only be forged is not followed."""
        if self.time <= time <= WITNESSED_TIME_MAX:
            self.time = time + 1
