"""PUBLISH packets that are refused because the node takes nothing: its store, or its memory."""

# compiled with mypyc
from __future__ import annotations

from typing import Final, cast

from broker.broker import MEMORY_IS_FULL, NO_REASON, Broker
from broker.codec.packets import PUBREC
from broker.codec.reason_codes import QUOTA_EXCEEDED
from broker.codec.writer import encode_ack
from broker.routing.route import Route
from broker.session.link_session import count_refused
from broker.session.output import Output
from broker.session.refused import answer_refused
from broker.session.session import Session

STORE_IS_FULL: Final = "the store takes no changes"
NOT_STORED: Final = "not_stored"  # why a link's message is dropped
NO_MEMORY: Final = "no_memory"  # likewise


def refuse_unstored(
    broker: Broker, connection: Output, route: Route, qos: int, retain: bool, packet_id: int, now: float
) -> bool:
    """Refuse a QoS 1 or 2 PUBLISH that the store would have to keep while it takes nothing. False when the store is not
    needed."""
    session = broker.session_of(connection)
    assert session is not None
    if qos == 0 or not (retain or (qos == 2 and session.records is not None) or needs_store(route)):
        return False
    broker.counters.publishes_not_stored += 1
    _refuse(broker, connection, qos, packet_id, STORE_IS_FULL, NOT_STORED, now)
    return True


def refuse_without_memory(broker: Broker, connection: Output, qos: int, packet_id: int, now: float) -> None:
    """Refuse a QoS 1 or 2 PUBLISH because the memory is full."""
    broker.counters.publishes_without_memory += 1
    _refuse(broker, connection, qos, packet_id, MEMORY_IS_FULL, NO_MEMORY, now)


def _refuse(
    broker: Broker, connection: Output, qos: int, packet_id: int, text: str, link_reason: str, now: float
) -> None:
    """Quota exceeded. MQTT 3.1.1 has no such answer: its client is disconnected, and sends the message again."""
    if connection.version < 5:
        broker.close_connection(connection, NO_REASON, text, now)
    else:
        count_refused(connection, link_reason, 1)
        answer_refused(broker, connection, qos, packet_id, QUOTA_EXCEEDED)


def needs_store(route: Route) -> bool:
    """Whether a QoS 1 or 2 message of this topic may have to be stored."""
    if route.groups:  # the member is chosen later
        return True
    for receiver in route.receivers:  # noqa: SIM110 (compiled without a generator)
        if cast(Session, receiver.session).records is not None:
            return True
    return False


def refuse_waiting(broker: Broker, now: float) -> None:
    """The store takes nothing: refuse the PUBLISH packets whose answers wait for it."""
    for connection, answer in broker.commits.take_publish_answers():
        session = broker.session_of(connection)
        if session is None:
            continue
        broker.counters.publishes_not_stored += 1
        if connection.version < 5:
            broker.close_connection(connection, NO_REASON, STORE_IS_FULL, now)
            continue
        count_refused(connection, NOT_STORED, 1)
        packet_id = answer[2] << 8 | answer[3]
        if answer[0] >> 4 == PUBREC:
            session.release(packet_id)  # a PUBREC with an error ends the exchange [MQTT5 4.3.3]
        connection.write_answer(encode_ack(answer[0] >> 4, packet_id, QUOTA_EXCEEDED, 5))
