"""The content of a session in records of the store: what its former home hands over, and the new home takes."""

# compiled with mypyc
from __future__ import annotations

from typing import Final, cast

from broker.broker import Broker
from broker.codec.wire import check_utf8
from broker.errors import MqttError
from broker.message import Message
from broker.origin import HeaderError
from broker.session.durable import attach_records, note_subscription
from broker.session.outgoing import AWAIT_PUBCOMP, QUEUED, Outgoing
from broker.session.session import Session
from broker.store.identity import ranges_of
from broker.store.journal import checked
from broker.store.kinds import OUTGOING, RECEIVED, SUBSCRIPTION
from broker.store.records import encode, encode_session, encode_subscription
from broker.store.restoring import begin_restored, insert_restored, message_of, outgoing_of, session_of, subscription_of
from broker.store.shapes import between, check_shape
from federation.sessions.relayed import Came, Relayed
from federation.sessions.wire import AWAITED, BEGUN, BLOCK_OF, COPIED, COUNTER_MAX, INCLUDES, Record
from federation.stream.frames import FrameError

RECORDS_MAX: Final = 64  # in one frame


def checked_hand(more: tuple[object, ...]) -> tuple[list[str], list[Record], int, list[object]]:
    """The values of a HAND (wire): former homes, records, the counter of the former home, and of what was adopted. Raises
    FrameError for what no node hands over."""
    try:
        names, contents, since, *adopted = more
        homes = [checked(str, name) for name in checked(tuple, names)]
        records = [checked(tuple, record) for record in checked(tuple, contents)]
        for record in records:
            check_shape(record)
            if record[0] == COPIED:
                _check_claim(record[1:])
            if record[0] == BLOCK_OF:
                _, node, store_id, serial = record
                _check_claim((store_id, serial))
                checked(str, node)
            for claim in checked(tuple, record[1]) if record[0] == INCLUDES else ():
                _check_claim(claim)
            for unstored in record[2:] if record[0] == INCLUDES else ():
                for store_id, ranges in checked(tuple, unstored):
                    checked(str, store_id)
                    ranges_of(ranges)
            for name in checked(tuple, record[1]) if record[0] == AWAITED else ():
                checked(str, name)
        between(since, 0, COUNTER_MAX)
        if not homes:
            raise ValueError("no node")
    except (TypeError, ValueError, IndexError, MqttError) as error:
        raise FrameError(f"records of a session: {error}") from None
    return homes, records, cast(int, since), adopted


def _check_claim(claim: object) -> None:
    store_id, counter = checked(tuple, claim)
    checked(str, store_id)
    between(counter, 0, COUNTER_MAX)


def head_records(session: Session, wall_offset: float, copied: tuple[int, int]) -> list[Record]:
    """The session without its messages, and without the packet identifiers of its client whose records have numbers from
    copied[0] to below copied[1]."""
    records: list[Record] = [encode_session(session, wall_offset)]
    records += [encode_subscription(subscription, 0) for subscription in session.subscriptions.values()]
    if session.is_new:
        records.append(BEGUN)
    if session.incoming is not None:
        for packet_id, number in session.incoming.items():
            if not copied[0] <= number < copied[1]:
                records.append((RECEIVED, 0, packet_id))
    return records


def outgoing_record(outgoing: Outgoing, wall_offset: float) -> Record:
    """The message, where it is still there, is in place of the number of its record."""
    record = list(encode(outgoing, wall_offset))
    record[1] = 0
    record[2] = None if outgoing.message is None else encode(outgoing.message, wall_offset)
    return tuple(record)


def take_head(
    broker: Broker, client_id: str, records: list[Record], has_exchanges: bool, relayed: Relayed, now: float
) -> tuple[Session, list[int]]:
    """(the session of the records of a head, packet identifiers of the client that it has not released): the broker has it
    from now on. Where it has one of the client already, that one takes what it lacks: subscriptions, and the messages behind
    its own. has_exchanges: the client goes on with the packet identifiers of this one. Raises FrameError."""
    try:
        return _take_head(broker, client_id, records, has_exchanges, relayed, now)
    except (TypeError, ValueError, IndexError, HeaderError, MqttError) as error:
        raise FrameError(f"session of {client_id!r:.50}: {error}") from None


def _take_head(
    broker: Broker, client_id: str, records: list[Record], has_exchanges: bool, relayed: Relayed, now: float
) -> tuple[Session, list[int]]:
    packet_ids: list[int] = []
    came = Came(relayed, broker.identity, [], None)
    known = broker.sessions.get(client_id)
    session = known
    if session is None:
        session = session_of(records[0], broker, broker.wall_offset, now)
        if session.client_id != client_id:
            raise ValueError(f"it is of the client {session.client_id!r:.50}")
        session.came_at = now
        begin_restored(broker, session)
        if broker.commits.journal is not None:
            attach_records(session, broker.commits.journal)
    for record in records[1:]:
        kind = record[0]
        if kind == SUBSCRIPTION:
            full = cast(bytes, record[2])
            check_utf8(full)
            subscription = subscription_of(record, session)
            here = session.subscriptions.get(full)
            if here is None:
                insert_restored(broker, session, subscription)
                note_subscription(session, subscription)
            elif here.position and subscription.position and broker.feeds is not None:
                position = broker.feeds.further(here.current_position(), subscription.position)
                if position != here.current_position():
                    session.made_fed().place(broker, here, position)
                    note_subscription(session, here)
        elif kind == RECEIVED and has_exchanges:
            packet_id = cast(int, record[2])
            packet_ids.append(packet_id)
            take_received(session, packet_id)
        elif kind in (COPIED, BLOCK_OF):
            came.note(record)
        elif kind == OUTGOING:
            take_outgoing(broker, session, record, known is None, came, now)
    return session, packet_ids


def take_received(session: Session, packet_id: int) -> None:
    """The client has not released this packet identifier."""
    if not session.is_unreleased(packet_id):
        session.note_received(packet_id)
        session.note_earlier(packet_id)


def is_left_out(broker: Broker, client_id: str, record: Record, came: Came) -> bool:
    """Return whether the session has the message by now. What the client may have got with a packet identifier goes on with
    that, in place of the one that others have brought."""
    if not came.is_brought or record[8] == QUEUED:
        return came.is_known
    session = broker.sessions.get(client_id)
    message = message_in(record, broker.wall_offset)
    if message is not None and session is not None and session.queue is not None:
        for outgoing in session.queue.messages():
            other = outgoing.message
            is_same = other is not None and (other.topic, other.payload) == (message.topic, message.payload)
            if is_same and came.is_of_block(outgoing.record):
                session.queue.remove({outgoing.number})
                broker.counters.redelivered += 1
                break
    return False


def take_outgoing(broker: Broker, session: Session, record: Record, is_new: bool, came: Came, now: float) -> None:
    """One message for the session. is_new: it keeps its packet identifier, which no other message has; else it is sent anew."""
    journal = broker.commits.journal
    first = 0 if journal is None else journal.next_number
    outgoing = outgoing_of(record, message_in(record, broker.wall_offset), broker.wall_offset, now)
    message = outgoing.message
    if is_new and outgoing.state != QUEUED and not session.is_in_flight(outgoing.packet_id):
        session.restore(outgoing)
        if session.records is not None:
            session.records.restored(outgoing)
    elif outgoing.state != QUEUED and session.go_on(outgoing, now):
        pass  # the client knows it by its packet identifier, and waits for PUBREL, or would take another one for a repetition
    elif message is not None and outgoing.state != AWAIT_PUBCOMP:
        session.deliver(message, outgoing.qos, outgoing.retain, outgoing.identifiers, None, now)
    if journal is not None:
        came.took(first, journal.next_number)


def message_in(record: Record, wall_offset: float) -> Message | None:
    return None if record[2] is None else message_of(cast(Record, record[2]), wall_offset)
