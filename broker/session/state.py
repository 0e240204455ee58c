"""The Session State of one client as a value that a store keeps over the end of the process [MQTT5 4.1].

Its times are wall time: seconds since 1970, `wall_offset` more than the monotonic time of the process. A new process has
another monotonic clock, and therefore another offset. Counters of traffic and retained messages that were not sent yet
(RetainedBacklog) are left out.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.broker import Broker
from broker.codec.packets import Will
from broker.message import Message
from broker.routing.names import parse_filter
from broker.routing.subscription import Subscription
from broker.session.outgoing import Outgoing
from broker.session.session import Session
from broker.session.will import PendingWill


class MessageState(NamedTuple):
    """A Message. Its encodings are not kept; `expires_at` is NEVER for a message without expiry."""

    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    properties: bytes
    expires_at: float
    client_id: str


class OutgoingState(NamedTuple):
    """A queued or an in-flight message (Outgoing). `message` is None after PUBREC."""

    message: MessageState | None
    qos: int
    retain: bool
    identifiers: tuple[int, ...]
    expires_at: float
    packet_id: int
    state: int


class SubscriptionState(NamedTuple):
    """full_filter  the topic filter with its $share/NAME/
    identifier   Subscription Identifier, 0 for none
    """

    full_filter: bytes
    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    identifier: int


class SessionState(NamedTuple):
    """username ... local_addr  of the last connection
    disconnected_at   None while the client is connected
    expiry_interval   Session Expiry Interval in seconds, EXPIRY_NEVER for no end
    queued, inflight  in the order in which they are sent, and were sent
    next_packet_id    where the search for a free packet identifier begins
    incoming          packet identifiers of QoS 2 messages that were received and not released
    will              of the open connection, or of the last one while its delay runs; None for none
    will_due_at       when the will is published; None while the client is connected
    """

    client_id: str
    username: str
    version: int
    keep_alive: int
    remote_addr: str
    local_addr: str
    created_at: float
    connected_at: float
    disconnected_at: float | None
    expiry_interval: int
    subscriptions: tuple[SubscriptionState, ...]
    queued: tuple[OutgoingState, ...]
    inflight: tuple[OutgoingState, ...]
    next_packet_id: int
    incoming: tuple[int, ...]
    will: Will | None
    will_due_at: float | None


def export_session(session: Session, wall_offset: float) -> SessionState:
    """The state of a session now. The session goes on."""
    connection = session.connection
    pending = session.will
    inflight = session.inflight
    will = None
    if connection is not None:
        will = connection.will
    elif pending is not None:
        will = pending.will
    return SessionState(
        client_id=session.client_id,
        username=session.username,
        version=session.version,
        keep_alive=session.keep_alive,
        remote_addr=session.remote_addr,
        local_addr=session.local_addr,
        created_at=session.created_at + wall_offset,
        connected_at=session.connected_at + wall_offset,
        disconnected_at=None if connection is not None else session.disconnected_at + wall_offset,
        expiry_interval=session.expiry_interval,
        subscriptions=tuple([_export_subscription(full, found) for full, found in session.subscriptions.items()]),
        queued=tuple([_export_outgoing(outgoing, wall_offset) for outgoing in session.queued()]),
        inflight=()
        if inflight is None
        else tuple([_export_outgoing(outgoing, wall_offset) for outgoing in inflight.messages()]),
        next_packet_id=1 if inflight is None else inflight.next_packet_id,
        incoming=() if session.incoming is None else tuple(session.incoming),
        will=will,
        will_due_at=None if connection is not None or pending is None else pending.at + wall_offset,
    )


def restore_session(broker: Broker, state: SessionState, wall_offset: float, now: float) -> Session:
    """Make the session again, without a connection. A client that was connected counts as disconnected `now`.

    A session that has expired and a will that is due are left to the broker's next `handle_timeout`. Restore all sessions
    before that call, so that each of them gets the wills that it subscribed to. Limits that are lower than those of the
    exporting broker end nothing here: the queue is cut to its bounds by its next message."""
    assert state.client_id not in broker.sessions
    session = Session(broker, state.client_id, state.created_at - wall_offset)
    session.username = state.username
    session.version = state.version
    session.keep_alive = state.keep_alive
    session.remote_addr = state.remote_addr
    session.local_addr = state.local_addr
    session.connected_at = state.connected_at - wall_offset
    # The wall clock may have been set back since: neither the expiry nor the will's delay becomes longer by that.
    session.disconnected_at = now
    if state.disconnected_at is not None:
        session.disconnected_at = min(now, state.disconnected_at - wall_offset)
    session.expiry_interval = state.expiry_interval
    broker.sessions[state.client_id] = session
    broker.counters.sessions_created += 1
    for subscription in state.subscriptions:
        broker.insert_subscription(session, subscription.full_filter, _restore_subscription(session, subscription))
    session.restore(
        [_restore_outgoing(entry, wall_offset, now) for entry in state.queued],
        [_restore_outgoing(entry, wall_offset, now) for entry in state.inflight],
        state.next_packet_id,
    )
    for packet_id in state.incoming:
        session.note_received(packet_id)
    if state.will is not None:
        due_at = now + min(state.will.delay_interval, state.expiry_interval)
        if state.will_due_at is not None:
            due_at = min(due_at, state.will_due_at - wall_offset)
        session.will = PendingWill(broker, state.client_id, state.will, due_at)
        broker.timers.schedule(session.will)
    broker.timers.schedule(session)
    return session


def _export_outgoing(outgoing: Outgoing, wall_offset: float) -> OutgoingState:
    message = outgoing.message
    kept = None
    if message is not None:
        kept = MessageState(
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            message.properties,
            message.expires_at + wall_offset,
            message.client_id,
        )
    return OutgoingState(
        kept,
        outgoing.qos,
        outgoing.retain,
        outgoing.identifiers,
        outgoing.expires_at + wall_offset,
        outgoing.packet_id,
        outgoing.state,
    )


def _restore_outgoing(state: OutgoingState, wall_offset: float, now: float) -> Outgoing:
    kept = state.message
    message = None
    if kept is not None:
        message = Message(
            kept.topic,
            kept.payload,
            kept.qos,
            kept.retain,
            kept.properties,
            kept.expires_at - wall_offset,
            kept.client_id,
        )
    outgoing = Outgoing(message, state.qos, state.retain, state.identifiers, state.expires_at - wall_offset)
    outgoing.packet_id = state.packet_id
    outgoing.sent_at = now
    outgoing.state = state.state
    return outgoing


def _export_subscription(full_filter: bytes, subscription: Subscription) -> SubscriptionState:
    return SubscriptionState(
        full_filter,
        subscription.qos,
        subscription.no_local,
        subscription.retain_as_published,
        subscription.retain_handling,
        subscription.identifier,
    )


def _restore_subscription(session: Session, state: SubscriptionState) -> Subscription:
    share_name, topic_filter = parse_filter(state.full_filter)
    return Subscription(
        session,
        share_name,
        topic_filter,
        state.qos,
        state.no_local,
        state.retain_as_published,
        state.retain_handling,
        state.identifier,
    )
