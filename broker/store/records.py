"""The content of records: objects of the broker as tuples of plain values, and back.

Times are wall time in records: seconds since 1970, `wall_offset` more than the monotonic time of the process. Another process
has another monotonic clock, and therefore another offset. The first value of a record is its kind (kinds). What other brokers
shared groups and federations add are further values at the end, which records without it do not have.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final, cast

from broker.broker import Broker
from broker.codec.packets import Will
from broker.message import NEVER, Message
from broker.routing.names import full_filter
from broker.routing.retained import STAMP_BYTES, RetainedMessage
from broker.routing.subscription import Subscription
from broker.session.outgoing import Outgoing
from broker.session.session import Session
from broker.session.will import StoredWill
from broker.store.journal import Content
from broker.store.kinds import MESSAGE, OUTGOING, RECEIVED, RETAINED, SESSION, SUBSCRIPTION, WILL

NO_TIME: Final = 0.0  # of what never expires


def encode_changes(changes: dict[int, object], wall_offset: float) -> dict[int, tuple[object, ...] | None]:
    """The changes of a batch as records by number, None for a record that is deleted."""
    found: dict[int, tuple[object, ...] | None] = {}
    for number, content in changes.items():
        found[number] = None if content is None else encode(content, wall_offset)
    return found


def all_contents(broker: Broker) -> dict[int, object]:
    """Return what all records describe, by their numbers."""
    found: dict[int, object] = {}
    for session in durable_sessions(broker):
        note_contents(session, found)
    for message in broker.retained.messages():
        found[message.record] = message
    journal = broker.commits.journal
    if journal is not None:
        found.update(journal.kept)
    return found


def durable_sessions(broker: Broker) -> list[Session]:
    """Return the sessions that the store keeps, those that are on their way to another node among them."""
    sessions: list[Session] = list(broker.sessions.values())
    if broker.ownership is not None:
        sessions += [cast(Session, session) for session in broker.ownership.departing_sessions()]
    return [session for session in sessions if session.records is not None]


def note_contents(session: Session, found: dict[int, object]) -> None:
    """Add what the records of the session describe, by their numbers; nothing for one that the store does not keep."""
    records = session.records
    if records is None:
        return
    found[records.number] = session
    for subscription in session.subscriptions.values():
        found[subscription.record] = subscription
    if session.incoming is not None:
        for packet_id, number in session.incoming.items():
            found[number] = (records.number, packet_id)
    outgoings = session.queued()
    if session.inflight is not None:
        outgoings += session.inflight.messages()
    if session.sources is not None:
        outgoings += [cast(Outgoing, outgoing) for outgoing in session.sources.waiting_messages()]
    for outgoing in outgoings:
        if outgoing.record:
            found[outgoing.record] = outgoing
            if outgoing.message is not None:
                found[outgoing.message.record] = outgoing.message


def encode(content: object, wall_offset: float) -> tuple[object, ...]:
    if isinstance(content, Outgoing):
        message = content.message
        record: tuple[object, ...] = (
            OUTGOING,
            content.session_record,
            0 if message is None else message.record,
            content.qos,
            content.retain,
            content.identifiers,
            wall_time(content.expires_at, wall_offset),
            content.packet_id,
            content.state,
        )
        copy = content.copy
        if copy is None or not copy.share_name:
            return record
        return (*record, full_filter(copy.share_name, copy.topic_filter))
    if isinstance(content, Message):
        record = (
            MESSAGE if content.references else RETAINED,
            content.topic,
            content.payload,
            content.qos,
            content.retain,
            content.properties,
            wall_time(content.expires_at, wall_offset),
            content.client_id,
        )
        stamp = content.stamp if isinstance(content, RetainedMessage) and not content.references else 0
        if stamp:
            origin = b"" if content.origin is None else content.origin.encode()
            return (*record, origin, stamp.to_bytes(STAMP_BYTES, "big"))
        return record if content.origin is None else (*record, content.origin.encode())
    if isinstance(content, Subscription):
        session = cast(Session, content.session)
        assert session.records is not None
        return encode_subscription(content, session.records.number)
    if isinstance(content, Session):
        return encode_session(content, wall_offset)
    if isinstance(content, StoredWill):
        return (WILL, *encode_session(cast(Session, content.session), wall_offset)[1:])
    if isinstance(content, Content):
        return content.values(wall_offset)
    session_record, packet_id = cast(tuple[int, int], content)
    return RECEIVED, session_record, packet_id


def encode_subscription(subscription: Subscription, session_record: int) -> tuple[object, ...]:
    record = (
        SUBSCRIPTION,
        session_record,
        full_filter(subscription.share_name, subscription.topic_filter),
        subscription.qos,
        subscription.no_local,
        subscription.retain_as_published,
        subscription.retain_handling,
        subscription.identifier,
    )
    position = subscription.current_position()
    if position:
        return (*record, subscription.along, position)
    return (*record, subscription.along) if subscription.along else record


def encode_session(session: Session, wall_offset: float) -> tuple[object, ...]:
    """The last three values are of no meaning for a session that is connected: `disconnected_at` is NO_TIME then, and the
    will is that of its connection."""
    connection = session.connection
    pending = session.will
    will = None
    will_due_at = NO_TIME
    if connection is not None:
        will = connection.will
    elif pending is not None:
        will = pending.will
        will_due_at = pending.at + wall_offset
    record = (
        SESSION,
        session.client_id,
        session.username,
        None if session.access is None else tuple([tuple(entry) for entry in session.access]),
        session.version,
        session.keep_alive,
        session.remote_addr,
        session.local_addr,
        session.created_at + wall_offset,
        session.connected_at + wall_offset,
        session.expiry_interval,
        NO_TIME if connection is not None else session.disconnected_at + wall_offset,
        None if will is None else encode_will(will),
        will_due_at,
    )
    end = session.bridge_end
    left = session.left_groups
    came = connection is None and session.came_at > session.disconnected_at
    if end is None and left is None and not came:
        return record
    kept = b"" if end is None else end.kept
    if came:
        return (*record, kept, tuple(left or ()), session.came_at + wall_offset)
    return (*record, kept) if left is None else (*record, kept, tuple(left))


def encode_will(will: Will) -> tuple[object, ...]:
    return (
        will.topic,
        will.payload,
        will.qos,
        will.retain,
        will.properties,
        will.message_expiry_interval,
        will.delay_interval,
    )


def wall_time(monotonic: float, wall_offset: float) -> float:
    return NO_TIME if monotonic == NEVER else monotonic + wall_offset


def monotonic_time(wall: float, wall_offset: float) -> float:
    return NEVER if wall == NO_TIME else wall - wall_offset
