"""The messages that wait for one client: bounded in number and bytes, in the order in which they came."""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

from broker.context import Context
from broker.counters import DROP_EXPIRED, DROP_MEMORY_SHORT, DROP_QOS0_OFFLINE, DROP_QUEUE_BYTES, DROP_QUEUE_FULL
from broker.memory_limit import MEMORY_FREE
from broker.message import Message, message_bytes
from broker.session.outgoing import Outgoing
from broker.session.session_records import SessionRecords

EXPIRED_LOOK_MAX: Final = (
    16  # oldest messages of QoS 0, and as many of QoS 1 and 2, of which an expired one is dropped first
)


def why_not_queued(context: Context, qos: int, is_away: bool) -> str:
    """The reason for which a message is dropped instead of queued, "" for none. `is_away`: the client has no connection."""
    if qos:
        return ""
    if context.memory_level > MEMORY_FREE:
        return DROP_MEMORY_SHORT
    return DROP_QOS0_OFFLINE if is_away and not context.settings.queue_qos0_messages else ""


class MessageQueue:
    """QoS 0 has a lane of its own, so that a full queue finds its oldest QoS 0 message without a search. `Outgoing.number`
    is the order across both lanes. `put`, `first` and `remove_first` take constant time for each message.

    count  number of messages
    bytes  their size as `message_bytes` counts it
    records  of a durable session, None for none
    """

    __slots__ = ("_next_number", "_qos0", "_qos1_2", "bytes", "count", "records")

    def __init__(self, records: SessionRecords | None = None) -> None:
        self.records = records
        self.count = 0
        self.bytes = 0
        self._next_number = 0
        # The lanes are made when first used: an empty deque takes 600 bytes, and most clients are never behind.
        self._qos0: deque[Outgoing] | None = None
        self._qos1_2: deque[Outgoing] | None = None  # QoS 1 and 2

    def messages(self) -> list[Outgoing]:
        """All messages, oldest first."""
        found = list(self._qos0 or ()) + list(self._qos1_2 or ())
        found.sort(key=number_of)
        return found

    def is_past_half(self, count_max: int, bytes_max: int) -> bool:
        """Return whether the messages take half of a bound or more."""
        return self.count > 0 and (self.count * 2 >= count_max or self.bytes * 2 >= bytes_max)

    def is_drained(self, count_max: int, bytes_max: int) -> bool:
        """Return whether the messages take no more than a quarter of each bound."""
        return self.count == 0 or (self.count * 4 <= count_max and self.bytes * 4 <= bytes_max)

    def overflow(self, message: Message, count_max: int, bytes_max: int) -> str:
        """The reason why one more message does not fit in the bounds; "" when it does."""
        if self.count >= count_max:
            return DROP_QUEUE_FULL
        return DROP_QUEUE_BYTES if self.bytes + message_bytes(message) > bytes_max else ""

    def put(self, outgoing: Outgoing, count_max: int, bytes_max: int, now: float) -> list[tuple[str, int]] | None:
        """Queue a message. Older ones are dropped until it fits in the bounds; it is dropped itself when it never fits.

        Returns (reason, QoS) of each dropped message, None when there is none."""
        assert outgoing.message is not None
        size = message_bytes(outgoing.message)
        if size > bytes_max:
            outgoing.end_copy()
            return [(DROP_QUEUE_BYTES, outgoing.qos)]
        dropped: list[tuple[str, int]] | None = None
        while self.count and (self.count >= count_max or self.bytes + size > bytes_max):
            found = self._drop(DROP_QUEUE_FULL if self.count >= count_max else DROP_QUEUE_BYTES, now)
            if dropped is None:
                dropped = [found]
            else:
                dropped.append(found)
        if count_max <= 0:
            outgoing.end_copy()
            own = (DROP_QUEUE_FULL, outgoing.qos)
            return [*dropped, own] if dropped is not None else [own]
        outgoing.sent_at = now
        self.append(outgoing)
        if self.records is not None and outgoing.qos:
            self.records.add(outgoing)
        return dropped

    def append(self, outgoing: Outgoing) -> None:
        """Queue a message without a look at the bounds."""
        message = outgoing.message
        assert message is not None
        message.waits()
        outgoing.number = self._next_number
        self._next_number += 1
        self.count += 1
        self.bytes += message_bytes(message)
        if outgoing.qos == 0:
            if self._qos0 is None:
                self._qos0 = deque()
            self._qos0.append(outgoing)
        else:
            if self._qos1_2 is None:
                self._qos1_2 = deque()
            self._qos1_2.append(outgoing)

    def first(self) -> Outgoing | None:
        """The oldest message, None for an empty queue."""
        qos0 = self._qos0
        qos1_2 = self._qos1_2
        if not qos0:
            return qos1_2[0] if qos1_2 else None
        if not qos1_2 or qos0[0].number < qos1_2[0].number:
            return qos0[0]
        return qos1_2[0]

    def oldest(self, count: int) -> list[Outgoing]:
        """So many messages, or all, oldest first."""
        found = list(islice(self._qos0 or (), count)) + list(islice(self._qos1_2 or (), count))
        found.sort(key=number_of)
        return found[:count]

    def remove_first(self) -> None:
        """The oldest message was sent, or is given up."""
        outgoing = self.first()
        if outgoing is not None:
            lane = self._qos1_2 if outgoing.qos else self._qos0
            assert lane is not None
            self._remove(lane, 0)

    def take_out(self, outgoing: Outgoing) -> None:
        """Take out one message. Takes time for each one of its lane before it."""
        lane = self._qos1_2 if outgoing.qos else self._qos0
        assert lane is not None
        self._remove(lane, lane.index(outgoing))

    def remove(self, numbers: set[int]) -> None:
        """Take out the messages of these numbers. Takes time for each message of the queue."""
        stay: list[Outgoing] = []
        for outgoing in self.messages():
            if outgoing.number not in numbers:
                stay.append(outgoing)
                continue
            if self.records is not None:
                self.records.remove(outgoing)
            outgoing.end_copy()
        self.clear()
        for outgoing in stay:
            self.append(outgoing)

    def clear(self) -> None:
        """Take out all messages."""
        self.count = 0
        self.bytes = 0
        self._qos0 = None
        self._qos1_2 = None

    def _drop(self, reason: str, now: float) -> tuple[str, int]:
        """Drop an expired message among the oldest, else the oldest of QoS 0, else the oldest. Returns its reason and QoS."""
        for lane in (self._qos0, self._qos1_2):
            if lane:
                for index in range(min(len(lane), EXPIRED_LOOK_MAX)):
                    if lane[index].expires_at <= now:
                        return self._give_up(lane, index, DROP_EXPIRED)
        lane = self._qos0 or self._qos1_2
        assert lane
        return self._give_up(lane, 0, reason)

    def _give_up(self, lane: deque[Outgoing], index: int, reason: str) -> tuple[str, int]:
        outgoing = lane[index]
        if self.records is not None:
            self.records.remove(outgoing)
        outgoing.end_copy()
        self._remove(lane, index)
        return reason, outgoing.qos

    def _remove(self, lane: deque[Outgoing], index: int) -> None:
        message = lane[index].message
        assert message is not None
        del lane[index]
        self.count -= 1
        self.bytes -= message_bytes(message)


def number_of(outgoing: Outgoing) -> int:
    return outgoing.number
