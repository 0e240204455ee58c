"""What comes to a third node of one session from its home, which is back, and from who has adopted it meanwhile: in the order
of those who sent it.

There is first what both have, from the copy of that home, then what the home alone has, then what was relayed to the adopter,
or sent there. The first is delivered as it comes. The others wait until both have handed over everything, or are not waited for
any more (arriving); then those of the home are first. A block that both have comes once.
"""

# compiled with mypyc
from __future__ import annotations

from broker.broker import Broker
from broker.counters import DROP_SESSION_ENDED
from broker.session.outgoing import QUEUED, Outgoing, expiry_in_queue
from broker.session.queue import MessageQueue
from broker.session.session import Session
from broker.store.restoring import outgoing_of
from federation.sessions.arriving import Arriving, Held
from federation.sessions.content import message_in
from federation.sessions.home import AllAdopted
from federation.sessions.homes import Homes
from federation.sessions.promised import Claims
from federation.sessions.relayed import Came, Relayed
from federation.sessions.wire import Record


class Parts(Held):
    """Policy: of each part as many messages wait as in the queue of the session, which counts what is dropped. Those are
    messages of its queue in the store, should the process end.

    homes  stores of the homes
    """

    def __init__(self, session: Session, relayed: Relayed) -> None:
        self._session = session
        self._relayed = relayed
        self.homes: dict[str, None] = {}
        self._of_home = MessageQueue(session.records)
        self._of_adopter = MessageQueue(session.records)

    def put(self, outgoing: Outgoing, came: Came, lost: str, now: float) -> None:
        """lost: the store of the home, where the adopter hands it over; "" for a message of the home."""
        session = self._session
        queue = self._of_adopter if lost else self._of_home
        for reason, qos in queue.put(outgoing, session.queue_max, session.queue_bytes_max, now) or ():
            session.drop(reason, qos)
        if outgoing.record and came.block is not None:
            self._relayed.add_part(outgoing.record, outgoing.record + 1, lost, came.block)

    def messages(self) -> list[object]:
        return [*self._of_home.messages(), *self._of_adopter.messages()]

    def deliver(self, now: float) -> None:
        session = self._session
        blocks = [self._relayed.marks_of(outgoing.record)[1] for outgoing in self._of_home.messages()]
        of_home = dict.fromkeys(blocks)
        for outgoing in [*self._of_home.messages(), *self._of_adopter.messages()]:
            lost, marks = self._relayed.marks_of(outgoing.record)
            records = session.records
            if records is not None:
                records.remove(outgoing)
            if outgoing.message is None or (lost and marks in of_home):
                continue
            first = 0 if records is None else records.journal.next_number
            session.deliver(outgoing.message, outgoing.qos, outgoing.retain, outgoing.identifiers, None, now)
            if records is not None and lost:
                self._relayed.add_part(first, records.journal.next_number, lost, marks[0])

    def drop(self) -> None:
        session = self._session
        for outgoing in [*self._of_home.messages(), *self._of_adopter.messages()]:
            if session.records is not None:
                session.records.remove(outgoing)
            session.drop(DROP_SESSION_ENDED, outgoing.qos)


class Third:
    """This node, where both hand over."""

    def __init__(self, broker: Broker, homes: Homes, relayed: Relayed) -> None:
        self._broker = broker
        self._homes = homes
        self._relayed = relayed

    def keeps(
        self,
        arriving: Arriving | None,
        record: Record,
        came: Came,
        name: str,
        known: AllAdopted,
        includes: Claims | None,
        now: float,
    ) -> bool:
        """Keep the message that the node hands over, where it is to wait for what another one hands over. known, includes: of
        the session (Home)."""
        sender = self._homes.senders.get(name)
        is_other = sender is None or came.is_copied() or record[8] != QUEUED
        message = None if is_other else message_in(record, self._broker.wall_offset)
        if arriving is None or sender is None or message is None:
            return False
        held = arriving.held if isinstance(arriving.held, Parts) else Parts(arriving.session, self._relayed)
        store_id, since = sender.peer_store_id, arriving.handing.get(name, 0)
        lost = self._lost_home(arriving, held, came, store_id, since)
        if not lost:
            is_behind = arriving.held is not None or arriving.waits_for_later(since)
            has_all = includes is not None and includes.get(store_id, -1) >= since
            if has_all or not is_behind or store_id not in [adopted[0] for adopted in known]:
                return False
        copied = outgoing_of(record, message, self._broker.wall_offset, now)
        expires_at = expiry_in_queue(message, arriving.session.queue_seconds_max, now)
        held.put(Outgoing(message, copied.qos, copied.retain, copied.identifiers, expires_at), came, lost, now)
        held.homes[lost or store_id] = None
        arriving.held = held
        came.took(0, 0)
        return True

    def _lost_home(self, arriving: Arriving, held: Parts, came: Came, adopter: str, since: int) -> str:
        """Return the store of a home that hands over, too, and whose copy the adopter has, the home since a later claim; ""
        for none."""
        for store_id in came.adopted_stores():
            of_home = self._homes.sender_of(store_id)
            counter = arriving.expected.get(store_id, since)
            if of_home is not None:
                counter = min(counter, arriving.handing.get(of_home.name, since))
            if store_id != adopter and (counter < since or store_id in held.homes):
                return store_id
        return ""
