"""The queue of a shared group: a session without a connection, which drops its oldest message when it is full, or takes no new
one."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.context import Context
from broker.message import Message
from broker.publisher import Publisher
from broker.routing.group_copy import GroupCopy
from broker.session.draining import first_waiting
from broker.session.outgoing import Outgoing, expiry_in_queue
from broker.session.queue import why_not_queued
from broker.session.session import Session

NO_BOUND: Final = 2**62


class GroupQueue(Session):
    """rejects  a full queue drops a new message and not its oldest one, and its publisher is told. A message that comes back
    from a member stays: the queue may have so many more."""

    def __init__(self, context: Context, client_id: str, now: float) -> None:
        super().__init__(context, client_id, now)
        self.rejects = False

    def _enqueue(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        publisher: Publisher | None,
        now: float,
        copy: GroupCopy | None,
    ) -> bool:
        if self._may_reject(qos):
            queue = self._made_queue()
            reason = queue.overflow(message, self.queue_max, self.queue_bytes_max)
            if reason:
                first_waiting(self, now)  # expired ones make room
                reason = queue.overflow(message, self.queue_max, self.queue_bytes_max)
            if reason:
                self.drop(reason, qos)
                if copy is not None:
                    copy.end()
                return False
        return super()._enqueue(message, qos, retain, identifiers, publisher, now, copy)

    def take_back(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...], copy: GroupCopy, now: float
    ) -> bool:
        if not self._may_reject(qos):
            return super().take_back(message, qos, retain, identifiers, copy, now)
        self.context.counters.copies += 1
        expires_at = expiry_in_queue(message, self.queue_seconds_max, now)
        held = copy if self.records is None else copy.stored()
        self._made_queue().put(Outgoing(message, qos, retain, identifiers, expires_at, held), NO_BOUND, NO_BOUND, now)
        return True

    def _may_reject(self, qos: int) -> bool:
        return self.rejects and not self.ended and not why_not_queued(self.context, qos, True)
