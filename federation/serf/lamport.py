"""A Lamport clock: it orders intents, events and queries without wall clocks (wire-gossip 8.2)."""

from __future__ import annotations

from federation.gossip.msgpack_fields import WITNESSED_TIME_MAX


class LamportClock:
    """`time`: the time of the next message."""

    def __init__(self) -> None:
        self.time = 1

    def increment(self) -> int:
        """The time for one new message; the clock advances by one."""
        time = self.time
        self.time += 1
        return time

    def witness(self, time: int) -> None:
        """A message carries this time: advance past it. A time above WITNESSED_TIME_MAX is forged and ignored."""
        if self.time <= time <= WITNESSED_TIME_MAX:
            self.time = time + 1
