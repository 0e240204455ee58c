"""A session that goes to the node that has claimed its client.

It is no session of this broker's clients any more, but stays in the tree of subscriptions for the messages of nodes that do
not know yet where it is (arriving). Its content goes to the outbox of the other node, behind everything that this node has
for others: what its client published here comes before what it publishes there. Blocks of it leave when the store has them
and has the records of the session no more, in one commit; so nothing is handed over twice, whichever node dies.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.broker import Broker
from broker.hooks import SESSION_MOVED, Peer
from broker.message import NEVER, Message
from broker.publisher import Publisher, source_of
from broker.routing.sources import Sources
from broker.session.durable import end_records
from broker.session.outgoing import Outgoing
from broker.session.session import Session
from broker.store.kinds import DEPARTING, RECEIVED
from federation.sessions.arriving import HANDING_SECONDS_MAX, Arriving, Epoch
from federation.sessions.content import RECORDS_MAX, head_records, outgoing_record
from federation.sessions.home import AllAdopted, Tail, Unstored, former_values, number_there, told_adopted
from federation.sessions.relayed import Before, Relayed
from federation.sessions.wire import (
    AWAITED,
    BLOCK_OF,
    COPIED,
    HAND,
    HANDED,
    HEAD_END,
    INCLUDES,
    NOT_COPIED,
    Record,
    encode_session_frame,
)

ORDER_SECONDS_MAX: Final = 1.0  # so long the session waits for what this node has for others
OLDER_SECONDS: Final = 5.0  # so long messages of nodes are taken that do not say when they switch
HAND_MESSAGES_MAX: Final = 1_024  # in one turn
NO_FORMER: Final[Record] = (None, (), ((), ()))  # former_values in full


class Marks:
    """The messages of this node for others at a moment: the outboxes of nodes that are reached."""

    def __init__(self, peers: list[Peer], until: float) -> None:
        self._marks: list[tuple[Peer, int]] = []
        for peer in peers:
            if peer.reachable:
                mark = peer.mark()
                if not peer.is_done(mark):
                    self._marks.append((peer, mark))
        self.until = until

    def is_done(self, now: float) -> bool:
        if now >= self.until:
            return True
        for peer, mark in self._marks:  # noqa: SIM110 (compiled without a generator)
            if peer.reachable and not peer.is_done(mark):
                return False
        return True


class Departing(Sources):
    """epoch    of the claim of the other node
    since    counter of the claim by which this node was the home
    home     its name
    waiting  nodes that have not said that their messages are for it, this one too
    said     homes before the one with this epoch were told that they get no messages of this node
    before   the session had not arrived here as a whole; None when it had
    marks    what goes before it, None when its head has left
    is_handed  HANDED has left
    adopted  as of the home
    includes  as of the home
    unstored  as of the home
    own_since  as of the home
    brought  as of the home
    asked    nodes that have not said whether they have adopted it: what has not left yet waits for them, until
    asked_until
    copied   messages whose records have numbers from the first to below the second are there already: by a copy
    tail     those of these that perhaps are not
    copy     (COPIED, ...) of what is in both (wire)
    is_adopted  that is one of this store: who has adopted it hands on what is in it, and this node does not
    relayed  those of the others that were relayed for a lost home
    record   number of its record in the store, 0 for none
    due      departing sessions that have something to do at the end of this turn
    """

    def __init__(
        self,
        session: Session,
        epoch: Epoch,
        since: int,
        home: str,
        own_name: str,
        waiting: dict[str, None],
        before: Arriving | None,
        marks: Marks | None,
        older_until: float,
    ) -> None:
        self.session = session
        self.epoch = epoch
        self.since = since
        self.home = home
        self.waiting = waiting
        self.said: Epoch = (0, "")
        self.before = before
        self.marks = marks
        self.is_handed = False
        self.copied = 0, 0
        self.tail: Tail = ()
        self.copy = NOT_COPIED
        self.is_adopted = False
        self.relayed: Relayed | None = None
        self.adopted: AllAdopted = ()
        self.includes: dict[str, int] | None = None
        self.unstored: Unstored = {}
        self.own_since = 0 if before is None else before.epoch[0]
        self.brought: dict[str, None] = {}
        self.asked: dict[str, None] = {}
        self.asked_until = 0.0
        self.record = 0
        self.due: dict[Departing, None] | None = None
        self.older_until = older_until  # messages of nodes that do not say when they switch are taken
        self._own_name = own_name
        self._known = dict(waiting)  # nodes that say when they switch, or have said it

    def restore_switched(self, names: tuple[str, ...], said: Epoch, now: float) -> None:
        """These have switched; others that the process before this one did not know send here still. said: as in the store."""
        self._known.update(dict.fromkeys(names))
        self.said = said
        self.older_until = now + OLDER_SECONDS

    def meets(self, name: str) -> bool:
        """Return whether it waits for a node that was not known when it began to leave: that hears where the session goes when
        its head is there, and publishes until then for this home."""
        if self.marks is None or name in self._known or not self.session.subscriptions:
            return False
        self.waiting[name] = self._known[name] = None
        return True

    def note_adopted(self, below: int) -> None:
        """A keeper has adopted the session from the records of this store that are below this number; 0 for none. Where the
        head has left, the next home leaves out what is in a copy from before the departure: this home has said that it hands
        that on."""
        if below and (self.marks is not None or below > self.record):
            self.copied = 0, below
            self.is_adopted = True

    def came(self, adopted: AllAdopted, includes: dict[str, int] | None, unstored: Unstored) -> None:
        """It had come here so."""
        self.adopted = adopted
        self.includes = includes
        self.unstored = unstored
        for store_id, _, first, end, since, tail in adopted:
            if store_id == self.epoch[1]:  # it goes back to where the copy is from
                self.copied = first, end
                self.tail = tail
                self.copy = COPIED, store_id, since

    def values(self, wall_offset: float) -> tuple[object, ...]:
        """(DEPARTING, number of the session's record, counter, store id, since, node, nodes that still send here, whether its
        head has left, how it had arrived here (Arriving.values), None when all of it was here); behind them
        former_values in full, the nodes that have switched, and `said`, which a store of an earlier build does not have."""
        records = self.session.records
        assert records is not None
        counter, store_id = self.epoch
        before = None if self.before is None else self.before.values(wall_offset)
        where = records.number, counter, store_id, self.since, self.home, tuple(self.waiting)
        former = former_values(self.adopted, self.includes, self.before)
        return (
            DEPARTING,
            *where,
            self.marks is None,
            before,
            *former,
            *NO_FORMER[len(former) :],
            tuple(self.switched_nodes()),
            self.said,
        )

    def takes(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        publisher: Publisher | None,
        now: float,
    ) -> bool:
        source = source_of(publisher, self._own_name)
        if source not in self.waiting and (source in self._known or now >= self.older_until):
            return False
        if self.before is not None and not self.before.takes(message, qos, retain, identifiers, publisher, now):
            return False
        self._is_due()
        return True

    def passed_on(self, store_id: str, counter: int, now: float) -> None:
        """All that the home with this epoch hands over has gone on: what waits for it here comes behind that."""
        if self.before is not None:
            self.before.includes({store_id: counter}, now)
            self._is_due()

    def _is_due(self) -> None:
        if self.due is not None:
            self.due[self] = None

    def switched(self, name: str, epoch: Epoch, now: float) -> None:
        """Messages of the node that follow are for the home with this epoch: one after this one, if not the next. With a lower
        one it has adopted the session while this node was away: it gets them until the node hears of a later home, and hands
        them over."""
        own = self.since, self.session.context.identity.store_id
        if own < epoch:
            self.waiting.pop(name, None)
            self._known[name] = None
        elif epoch[1] not in ("", own[1]) and name in self.waiting:
            if self.before is None:
                self.before = Arriving(self.session, own, self._own_name, {})
            self.before.waiting[name] = None
            is_here = self.includes is not None and self.includes.get(epoch[1], -1) >= epoch[0]
            if not is_here and not self.is_handed:  # else nothing waits any more
                self.before.expect(epoch, now)
        if self.before is not None:
            self.before.switched(name, epoch, own)
        self._is_due()

    def relayed_all(self, name: str, store_id: str, now: float) -> None:
        """As of Arriving."""
        if self.before is not None and store_id in self.before.lost.values():
            self.before.relayed_all(name, store_id, now)
            self._is_due()

    def switched_nodes(self) -> list[str]:
        """Return the nodes that have said that their messages are not for this home any more."""
        return [name for name in self._known if name not in self.waiting]

    def is_known_home(self) -> bool:
        """Return whether nodes had said, before the session left, that their messages are for the home that it leaves to."""
        return self.before is not None and self.before.elsewhere >= self.epoch

    def waiting_messages(self) -> list[object]:
        return [] if self.before is None else self.before.waiting_messages()

    def take_head(self, now: float, wall_offset: float) -> list[bytes]:
        """The frames of the session without its queue; it has these records no more. None while something goes before it."""
        marks = self.marks
        if marks is None or not marks.is_done(now) or now < self.handed_until():
            return []
        self.marks = None
        session = self.session
        records = head_records(session, wall_offset, self.copied)
        includes = () if self.includes is None else tuple(self.includes.items())
        unstored = tuple(self.unstored.items())
        if not self.is_adopted:
            identity = session.context.identity
            includes = (*includes, (identity.store_id, self.since))
            unstored = (*unstored, (identity.store_id, identity.unstored))
        records.insert(1, (INCLUDES, includes, unstored))
        records.insert(2, (AWAITED, tuple([name for name in self.waiting if name != self._own_name])))
        inflight = session.inflight
        records += self._received_of_tail()
        if inflight is not None:
            records += self._message_records(inflight.messages(), wall_offset)
        records.append((HEAD_END,))
        will = session.will
        if will is not None:
            will.cancel()
            session.will = None
        if inflight is not None:
            session.context.counters.redelivered += len(inflight)
            if session.records is not None:
                for outgoing in inflight.messages():
                    session.records.remove(outgoing)
            session.inflight = None
        if session.incoming is not None:
            for packet_id in list(session.incoming):
                session.release(packet_id)
        return self._frames(records)

    def outwait(self, now: float) -> None:
        """Who has not answered by now is not waited for."""
        if now >= self.asked_until:
            self.asked.clear()

    def handed_until(self) -> float:
        """Return until when the head waits for what comes from homes before this one, or for who is asked; 0.0 for nothing. One
        of those before that is the next one waits for the head in turn."""
        until = self.asked_until if self.asked else 0.0
        if self.before is not None:
            for name in self.before.handing:
                if name != self.home:
                    until = max(until, self.before.quiet_since + HANDING_SECONDS_MAX)
        return until

    def next_timeout(self) -> float:
        """Return when the end of a turn has something to do; NEVER for not by time."""
        if self.marks is not None:
            return max(self.marks.until, self.handed_until())
        if self.asked:
            return self.asked_until
        if self.before is not None and self.before.waits_for_older():
            return self.before.until
        return self.older_until if self.is_handed and not self.waiting else NEVER

    def take_messages(self, wall_offset: float) -> list[bytes]:
        """Frames of the oldest messages of the queue, which are no more in it."""
        session = self.session
        queue = session.queue
        if queue is None:
            return []
        outgoings = queue.oldest(HAND_MESSAGES_MAX)
        records = self._message_records(outgoings, wall_offset)
        session.context.counters.redelivered += len(outgoings)
        for outgoing in outgoings:
            if session.records is not None:
                session.records.remove(outgoing)
            queue.remove_first()
        return self._frames(records)

    def _message_records(self, outgoings: list[Outgoing], wall_offset: float) -> list[Record]:
        """Those that are from a copy of a lost home, or were relayed for the home that they go to, stand behind a record that
        says so."""
        records: list[Record] = []
        marks: Before = (NOT_COPIED,)
        for outgoing in outgoings:
            own = self._marks_of(outgoing.record)
            if own is None:
                continue
            if own != marks:
                marks = own
                records += marks
            records.append(outgoing_record(outgoing, wall_offset))
        return records

    def _marks_of(self, record: int) -> Before | None:
        """Return what stands before the message with this record; None for one that its next home has."""
        if self.copied[0] <= record < self.copied[1]:
            return None if self.is_adopted else self._marks_back(number_there(self.tail, record))
        lost, marks = ("", ()) if self.relayed is None else self.relayed.marks_of(record)
        if lost == self.session.context.identity.store_id:  # it has come back, and this home hands it on itself
            return (NOT_COPIED,)
        for store_id, below, first, end, since, tail in self.adopted:
            if since > 0 and first <= record < end:
                copied = COPIED, store_id, since
                number = number_there(tail, record)
                return (copied,) if number is None else ((BLOCK_OF, self.home, store_id, number), copied)
            if marks and lost == store_id and below > 0:
                if marks[-1][0] == COPIED and lost == self.epoch[1]:
                    return marks[:1] if marks[1:] else None
                if marks[-1][0] == COPIED or lost == self.epoch[1]:
                    return marks
        if self.is_adopted and self.relayed is not None:  # others may have brought it to who has adopted the session
            return (self.relayed.own_mark(record),)
        return (NOT_COPIED,)

    def _marks_back(self, number: int | None) -> Before | None:
        """The message is from the copy of the store that it goes to, or went to before that was lost once more: who has what
        that home had has the copy, too. number: of its record there, as number_there."""
        if number is None:
            return None
        _, store_id, since = self.copy
        block = BLOCK_OF, self.home, store_id, number
        if store_id == self.epoch[1] and number:
            return (block,)
        return (block, self.copy) if number and since else (NOT_COPIED,)

    def _received_of_tail(self) -> list[Record]:
        """Packet identifiers of the client that are from the newest of the copy, behind records that say so."""
        records: list[Record] = []
        if self.session.incoming is not None and not self.is_adopted:
            for packet_id, record in self.session.incoming.items():
                number = number_there(self.tail, record)
                if number:
                    records += [(BLOCK_OF, self.home, self.copy[1], number), (RECEIVED, 0, packet_id)]
        return [*records, NOT_COPIED] if records else records

    def take_end(self, living: list[str]) -> list[bytes]:
        """HANDED, once, when none of these nodes sends messages for the session here, and what homes before this one had is
        here."""
        if self.is_handed or self.marks is not None or self.session.queue_length():
            return []
        if self.before is not None and self.before.waits_for_older():
            return []
        if self._awaits(living):
            return []
        self.is_handed = True
        return self._frames([(HANDED,)])

    def _awaits(self, living: list[str]) -> bool:
        """Return whether one of these nodes sends messages for the session here, or has more to relay for a lost home."""
        for name in living:  # noqa: SIM110 (compiled without a generator)
            if name in self.waiting or (self.before is not None and name in self.before.relaying):
                return True
        return False

    def is_over(self, living: list[str], now: float) -> bool:
        if self.waiting or self._awaits(living):
            return False
        return self.is_handed and not self.session.queue_length() and now >= self.older_until

    def is_quiet(self) -> bool:
        """Return whether there is nothing to do before something happens."""
        is_awaiting = bool(self.waiting) or (self.before is not None and bool(self.before.relaying))
        return self.is_handed and is_awaiting and not self.session.queue_length()

    def _frames(self, records: list[Record]) -> list[bytes]:
        client_id = self.session.client_id
        homes = (self._own_name,) if self.before is None else (self._own_name, *self.before.homes)
        adopted = told_adopted(self.adopted)
        frames: list[bytes] = []
        marks: Before = ()
        is_behind = False  # the record before is a mark
        for at in range(0, len(records), RECORDS_MAX):
            part = [*marks, *records[at : at + RECORDS_MAX]]
            for record in part[len(marks) :]:
                if record[0] in (COPIED, BLOCK_OF):
                    marks = (*marks, record) if is_behind else (record,)
                    is_behind = True
                else:
                    is_behind = False
            more = (homes, tuple(part), self.since, *adopted)
            frames.append(encode_session_frame(HAND, client_id, self.epoch, more))
        return frames


def forget(broker: Broker, session: Session, now: float) -> None:
    """The other node has all of the session."""
    end_records(session)
    session.sources = None
    session.end()
    broker.unsubscribe_all(session, now)
    if broker.observer is not None:
        broker.observer.session_terminated(session.client_id, SESSION_MOVED)
