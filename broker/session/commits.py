"""Acknowledgements that leave later than the turn of their PUBLISH, in order [MQTT-4.6.0-2] [MQTT-4.6.0-3].

A tap (broker/hooks.py) that keeps messages has them on disk only after a sync, which it shares among many. It calls `begin`
while it is given a message and `finish` after the sync. Meanwhile acknowledgements wait here.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from broker.session.output import Output

ACKS_WAITING_MAX: Final = 1_024  # of one connection, which is not read then until half of them have left


class Commits:
    """Commits have rising numbers and finish in that order."""

    def __init__(self) -> None:
        self._begun = 0
        self._finished = 0
        self._waiting: deque[tuple[int, Output, bytes]] = deque()

    def begin(self) -> int:
        """What is published from now on is kept by a new commit. Its number is for `finish`."""
        self._begun += 1
        return self._begun

    def waiting(self) -> int:
        """How many acknowledgements wait."""
        return len(self._waiting)

    def acknowledge(self, connection: Output, data: bytes) -> None:
        """One acknowledgement of a PUBLISH that was routed: now, or after every commit that has begun."""
        if self._finished == self._begun:
            connection.write_packets(data, 1)
            return
        self._waiting.append((self._begun, connection, data))
        connection.acks_waiting += 1
        if connection.acks_waiting >= ACKS_WAITING_MAX and not connection.acks_held:
            connection.acks_held = True
            connection.context.hold(connection)

    def finish(self, number: int) -> None:
        """The commit of that number is on disk, and all before it. Afterwards the connections have output."""
        assert self._finished < number <= self._begun
        self._finished = number
        waiting = self._waiting
        while waiting and waiting[0][0] <= number:
            _, connection, data = waiting.popleft()
            connection.acks_waiting -= 1
            if connection.closed:
                continue
            connection.write_packets(data, 1)
            if connection.acks_held and connection.acks_waiting * 2 <= ACKS_WAITING_MAX:
                connection.acks_held = False
                connection.context.release(connection)
