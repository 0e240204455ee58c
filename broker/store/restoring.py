"""From the records of a store to the sessions and retained messages of a broker that has just begun."""

# compiled with mypyc
from __future__ import annotations

from typing import Final, cast

from broker.authorization import TopicAccess
from broker.broker import Broker
from broker.codec.packets import Will
from broker.message import Message
from broker.origin import HeaderError, decode_origin
from broker.routing.group_copy import GroupCopy
from broker.routing.names import full_filter, parse_filter
from broker.routing.retained import RetainedMessage
from broker.routing.subscriber import GROUP_QUEUE_PREFIX
from broker.routing.subscription import Subscription
from broker.session.draining import give_back
from broker.session.group_queue import GroupQueue
from broker.session.left_behind import UNKNOWN
from broker.session.outgoing import Outgoing
from broker.session.session import Session
from broker.session.session_records import SessionRecords
from broker.session.will import PendingWill, StoredWill
from broker.store.identity import StoreIdentity, identity_of, new_identity, next_start
from broker.store.journal import Journal, StoredRecord
from broker.store.kinds import (
    COPY,
    DELETION,
    DEPARTING,
    ENDED,
    HEAD,
    HOME,
    INTEREST,
    KEEPERS,
    MESSAGE,
    OUTBOX,
    OUTGOING,
    POSITION,
    RECEIVED,
    REPLICA,
    RETAINED,
    RUN,
    SESSION,
    STORE,
    SUBSCRIPTION,
    TOMBSTONE,
    WILL,
)
from broker.store.records import monotonic_time

KEPT_KINDS: Final = (  # of other packages
    *(OUTBOX, POSITION, INTEREST, TOMBSTONE, HOME, ENDED, HEAD),
    *(REPLICA, COPY, KEEPERS, RUN, DELETION),
)
# The last batch of the process before may be on other nodes, and not here: its numbers are not used again.
NUMBERS_OF_A_BATCH: Final = 2**24
START_BITS: Final = 30  # those above, in a number, are at least the number of the start (next_start)
RETAINED_VALUES: Final = 9  # of a retained message without a stamp, at most


class RecordFault(Exception):
    """A record that no broker has written: the store is damaged."""


class StoredDeparture(StoredRecord):
    """The record of a session that is on its way to another node."""

    def __init__(self, stored: tuple[object, ...], session: Session) -> None:
        super().__init__(stored)
        self.session = session


class Restoring:
    """Takes the records in the order of their numbers, so that a record comes behind those that it refers to.

    A session that has expired and a will that is due are left to the broker's next `handle_timeout`. All sessions are
    restored before that call, so that each of them gets the wills that it subscribed to. Limits that are lower than those of
    the process before end no session: the queue is cut to its bounds by its next message. Retained messages above the limits
    are deleted. Jobs that a member of a group with a queue had not acknowledged go back to that.

    What other packages keep is in `journal.kept` afterwards, until they take it.

    refused  number of these
    """

    def __init__(self, broker: Broker, wall_offset: float, now: float) -> None:
        self.journal = Journal()
        self.refused = 0
        self._broker = broker
        self._wall_offset = wall_offset
        self._now = now
        self._sessions: dict[int, Session] = {}
        self._messages: dict[int, Message] = {}
        self._surplus: list[int] = []
        self._identity: StoreIdentity | None = None
        self._identity_number = 0

    def add(self, number: int, record: tuple[object, ...]) -> None:
        """Restore one record. Raises RecordFault."""
        self.journal.begin_behind(number)
        try:
            kind = cast(int, record[0])
            if kind == OUTGOING:
                self._add_outgoing(number, record)
            elif kind == MESSAGE:
                self._messages[number] = self._message(number, record)
            elif kind == SUBSCRIPTION:
                self._add_subscription(number, record)
            elif kind == SESSION:
                self._add_session(number, record)
            elif kind == RECEIVED:
                session = self._session(record)
                if session.incoming is None:
                    session.incoming = {}
                session.incoming[cast(int, record[2])] = number
            elif kind == RETAINED:
                if not self._broker.retained.restore(self._retained(number, record)):
                    self.refused += 1
                    self._surplus.append(number)
            elif kind == DEPARTING:
                session = self._session(record)
                del self._broker.sessions[session.client_id]  # a later record may be that of another one of the client
                self._broker.timers.cancel(session)
                self.journal.kept[number] = StoredDeparture(record, session)
            elif kind == WILL:
                self.journal.kept[number] = self._stored_will(number, record)
            elif kind in KEPT_KINDS:
                self.journal.kept[number] = StoredRecord(record)
            elif kind == STORE and self._identity is None:
                self._identity = identity_of(record)
                self._identity.starts = next_start(self._identity.starts, self._now + self._wall_offset)
                self._identity_number = number
            else:
                raise RecordFault(f"record {number} is of the unknown kind {kind}")
        except (TypeError, ValueError, IndexError, HeaderError) as error:
            raise RecordFault(f"record {number} does not have the values of its kind: {error}") from None
        except KeyError as error:
            raise RecordFault(f"record {number} refers to record {error}, which is not there") from None

    def end(self) -> Journal:
        """All records were added. The broker tells the journal from now on. The caller writes `identity`."""
        journal = self.journal
        if self._identity is None:
            self._identity = new_identity(self._broker.rng, True)
            self._identity_number = journal.next_number
            journal.begin_behind(self._identity_number)
        else:
            first = max(journal.newest, self._identity.newest) + 1
            last = max(first + NUMBERS_OF_A_BATCH, self._identity.starts << START_BITS)
            self._identity.leaves_out(first, last + 1)
            journal.begin_behind(last)
        self._identity.journal = journal
        journal.own_number = self._identity_number
        journal.kept[self._identity_number] = self._identity
        self._broker.identity = self._identity
        self._broker.set_journal(journal)
        for number in self._surplus:
            journal.remove(number)
        for session in self._sessions.values():
            if not session.is_group_queue:
                give_back(self._broker.router, session, self._now)
        for number, message in self._messages.items():
            if message.references == 0:
                journal.remove(number)
        return journal

    def identity(self) -> tuple[int, tuple[object, ...]]:
        """(number, record) of the store with this start, which the store must have before the first message."""
        assert self._identity is not None
        return self._identity_number, self._identity.values(self._wall_offset)

    def _session(self, record: tuple[object, ...]) -> Session:
        return self._sessions[cast(int, record[1])]

    def _stored_will(self, number: int, record: tuple[object, ...]) -> StoredWill:
        """It is published as that of a session that ends now."""
        session = session_of(record, self._broker, self._wall_offset, self._now)
        will = session.will
        if will is None:
            raise ValueError("no will")
        will.record = number
        self._broker.timers.schedule(will)
        return StoredWill(session, will)

    def _message(self, number: int, record: tuple[object, ...]) -> Message:
        message = message_of(record, self._wall_offset)
        message.record = number
        return message

    def _retained(self, number: int, record: tuple[object, ...]) -> RetainedMessage:
        stamp = int.from_bytes(cast(bytes, record[-1]), "big") if len(record) > RETAINED_VALUES else 0
        message = RetainedMessage(self._message(number, record), stamp)
        message.record = number
        return message

    def _add_outgoing(self, number: int, record: tuple[object, ...]) -> None:
        message = None
        if record[2]:
            message = self._messages[cast(int, record[2])]
            message.references += 1
        outgoing = outgoing_of(record, message, self._wall_offset, self._now)
        outgoing.record = number
        outgoing.session_record = cast(int, record[1])
        self._sessions[outgoing.session_record].restore(outgoing)

    def _add_subscription(self, number: int, record: tuple[object, ...]) -> None:
        subscription = subscription_of(record, self._session(record))
        subscription.record = number
        insert_restored(self._broker, self._session(record), subscription)

    def _add_session(self, number: int, record: tuple[object, ...]) -> None:
        session = session_of(record, self._broker, self._wall_offset, self._now)
        session.records = SessionRecords(self.journal, number)
        if session.client_id in self._broker.sessions:
            raise RecordFault(f"record {number} is a second session of the client identifier {session.client_id!r}")
        self._sessions[number] = session
        begin_restored(self._broker, session)


# --- records as objects, which are in no broker yet; TypeError, ValueError, IndexError or HeaderError for values that no broker
# has written ---


def message_of(record: tuple[object, ...], wall_offset: float) -> Message:
    _, topic, payload, qos, retain, properties, expires_at, client_id, *more = record
    origin = decode_origin(cast(bytes, more[0])) if more and more[0] else None
    return Message(
        cast(bytes, topic),
        cast(bytes, payload),
        cast(int, qos),
        cast(bool, retain),
        cast(bytes, properties),
        monotonic_time(cast(float, expires_at), wall_offset),
        cast(str, client_id),
        origin,
    )


def outgoing_of(record: tuple[object, ...], message: Message | None, wall_offset: float, now: float) -> Outgoing:
    _, _, _, qos, retain, identifiers, expires_at, packet_id, state, *more = record
    outgoing = Outgoing(
        message,
        cast(int, qos),
        cast(bool, retain),
        cast(tuple[int, ...], identifiers),
        monotonic_time(cast(float, expires_at), wall_offset),
    )
    outgoing.packet_id = cast(int, packet_id)
    outgoing.state = cast(int, state)
    outgoing.sent_at = now
    outgoing.copy = GroupCopy(*parse_filter(cast(bytes, more[0]))) if more else UNKNOWN
    return outgoing


def subscription_of(record: tuple[object, ...], session: Session) -> Subscription:
    _, _, full, qos, no_local, retain_as_published, retain_handling, identifier, *more = record
    share_name, topic_filter = parse_filter(cast(bytes, full))
    subscription = Subscription(
        session,
        share_name,
        topic_filter,
        cast(int, qos),
        cast(bool, no_local),
        cast(bool, retain_as_published),
        cast(int, retain_handling),
        cast(int, identifier),
    )
    subscription.along = cast(tuple[bytes, ...], more[0]) if more else ()
    subscription.position = cast(bytes, more[1]) if len(more) > 1 else b""
    return subscription


def insert_restored(broker: Broker, session: Session, subscription: Subscription) -> None:
    broker.insert_subscription(session, full_filter(subscription.share_name, subscription.topic_filter), subscription)


def session_of(record: tuple[object, ...], broker: Broker, wall_offset: float, now: float) -> Session:
    """The session without its messages and subscriptions. Its will waits, and no timer runs."""
    (_, client_id, username, access, version, keep_alive, remote_addr, local_addr, *times) = record
    created_at, connected_at, expiry_interval, disconnected_at, will, will_due_at, *more = times
    name = cast(str, client_id)
    made = GroupQueue if name.startswith(GROUP_QUEUE_PREFIX) else Session
    session = made(broker, name, cast(float, created_at) - wall_offset)
    session.username = cast(str, username)
    if access is not None:
        entries = cast(tuple[tuple[str, bool, bool], ...], access)
        session.access = tuple([TopicAccess(pattern, publish, reads) for pattern, publish, reads in entries])
    session.version = cast(int, version)
    session.keep_alive = cast(int, keep_alive)
    session.remote_addr = cast(str, remote_addr)
    session.local_addr = cast(str, local_addr)
    session.connected_at = cast(float, connected_at) - wall_offset
    # The wall clock may have been set back since: neither the expiry nor the will's delay becomes longer by that.
    session.disconnected_at = min(now, monotonic_time(cast(float, disconnected_at), wall_offset))
    session.expiry_interval = cast(int, expiry_interval)
    if more and more[0] and broker.bridging is not None:
        session.bridge_end = broker.bridging.restored(cast(bytes, more[0]))
        session.take_limits(broker.settings)
    if len(more) > 1:
        session.left_groups = dict.fromkeys(cast(tuple[bytes, ...], more[1])) or None
    if len(more) > 2:
        session.came_at = min(now, cast(float, more[2]) - wall_offset)
    if will is not None:
        topic, payload, qos, retain, properties, expiry, delay = cast(tuple[object, ...], will)
        found = Will(
            cast(bytes, topic),
            cast(bytes, payload),
            cast(int, qos),
            cast(bool, retain),
            cast(bytes, properties),
            cast("int | None", expiry),
            cast(int, delay),
        )
        at = now + min(found.delay_interval, session.expiry_interval)
        at = min(at, monotonic_time(cast(float, will_due_at), wall_offset))
        session.will = PendingWill(broker, session, found, at)
    return session


def begin_restored(broker: Broker, session: Session) -> None:
    """The broker has the session from now on, and its times run."""
    broker.sessions[session.client_id] = session
    broker.counters.sessions_created += 1
    if session.will is not None:
        broker.timers.schedule(session.will)
    broker.timers.schedule(session)


def hold_wills(broker: Broker, until: float) -> None:
    """Publish none of the wills that the store has brought sooner: their clients may live elsewhere by now."""
    for session in broker.sessions.values():
        if session.will is not None:
            session.will.hold(until)
    journal = broker.commits.journal
    for content in () if journal is None else journal.kept.values():
        if isinstance(content, StoredWill) and content.pending is not None:
            content.pending.hold(until)
