"""Acknowledgements that are sent in a later turn than their PUBLISH came, in order [MQTT-4.6.0-2] [MQTT-4.6.0-3].

A tap (broker/hooks.py) that stores messages has them on disk only after a sync, and shares one sync among many messages. It
calls `begin` when it is given a message, and `finish` after the sync. In between acknowledgements wait here.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from broker.session.output import Output

ACKS_WAITING_MAX: Final = 1_024  # acknowledgements of one connection; it is not read until half of them have left


class Commits:
    """Commits have rising numbers, and finish in that order."""

    def __init__(self) -> None:
        self._begun = 0
        self._finished = 0
        self._waiting: deque[tuple[int, Output, bytes]] = deque()

    def begin(self) -> int:
        """Begin a commit, and return its number for `finish`. Later acknowledgements wait for it."""
        self._begun += 1
        return self._begun

    def waiting(self) -> int:
        """Number of acknowledgements that wait."""
        return len(self._waiting)

    def acknowledge(self, connection: Output, data: bytes) -> None:
        """Write the acknowledgement of a PUBLISH that was routed: now, or after all commits that have begun."""
        if self._finished == self._begun:
            connection.write_packets(data, 1)
            return
        self._waiting.append((self._begun, connection, data))
        connection.acks_waiting += 1
        if connection.acks_waiting >= ACKS_WAITING_MAX and not connection.acks_held:
            connection.acks_held = True
            connection.context.hold(connection)

    def finish(self, number: int) -> None:
        """This commit and all before it are on disk. The connections of their acknowledgements have output afterwards."""
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
