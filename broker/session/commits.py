"""Acknowledgements that are sent in a later turn than their PUBLISH came, in order [MQTT-4.6.0-2] [MQTT-4.6.0-3].

A tap (broker/hooks.py) that stores messages has them on disk only after a sync, and shares one sync among many messages. It
calls `begin` when it is given a message, and `finish` after the sync. In between acknowledgements wait here.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from broker.session.output import Output

ACKS_WAITING_MAX: Final = 1_024  # acknowledgements of one connection; it is not read until half of them have left


class WaitingAcks:
    """Acknowledgements of one connection that wait for one commit, in succession."""

    __slots__ = ("acks", "connection", "number")

    def __init__(self, number: int, connection: Output, ack: bytes) -> None:
        self.number = number
        self.connection = connection
        self.acks = [ack]


class Commits:
    """Commits have rising numbers, and finish in that order."""

    def __init__(self) -> None:
        self._begun = 0
        self._finished = 0
        self._waiting: deque[WaitingAcks] = deque()
        self._last: WaitingAcks | None = None  # of _waiting

    def begin(self) -> int:
        """Begin a commit, and return its number for `finish`. Later acknowledgements wait for it."""
        self._begun += 1
        self._last = None
        return self._begun

    def waiting(self) -> int:
        """Number of acknowledgements that wait."""
        return sum([len(waiting.acks) for waiting in self._waiting])

    def acknowledge(self, connection: Output, data: bytes) -> None:
        """Write the acknowledgement of a PUBLISH that was routed: now, or after all commits that have begun."""
        if self._finished == self._begun:
            connection.write_answer(data)
            return
        last = self._last
        if last is not None and last.connection is connection:
            last.acks.append(data)
        else:
            self._last = last = WaitingAcks(self._begun, connection, data)
            self._waiting.append(last)
        connection.acks_waiting += 1
        if connection.acks_waiting >= ACKS_WAITING_MAX and not connection.acks_held:
            connection.acks_held = True
            connection.context.hold(connection)

    def finish(self, number: int) -> None:
        """This commit and all before it are on disk. The connections of their acknowledgements have output afterwards."""
        assert self._finished < number <= self._begun
        self._finished = number
        waiting = self._waiting
        while waiting and waiting[0].number <= number:
            found = waiting.popleft()
            if found is self._last:
                self._last = None
            connection = found.connection
            acks = found.acks
            connection.acks_waiting -= len(acks)
            if connection.closed:
                continue
            connection.write_answers(acks)
            if connection.acks_held and connection.acks_waiting * 2 <= ACKS_WAITING_MAX:
                connection.acks_held = False
                connection.context.release(connection)
