"""The answers to PUBLISH packets, and those that are not routed: nobody may publish them, or there is no room to keep them."""

# compiled with mypyc
from __future__ import annotations

from typing import Final, cast

from broker.broker import MEMORY_IS_FULL, NO_REASON, Broker
from broker.codec.packets import PUBACK, PUBREC
from broker.codec.reason_codes import QUOTA_EXCEEDED, SUCCESS
from broker.codec.runs import Run
from broker.codec.writer import encode_ack
from broker.counters import DROP_LOG_FULL, SHORT_PUBACK_BYTES
from broker.hooks import Tap
from broker.message import Publication
from broker.routing.route import Route
from broker.session.outgoing import PACKET_ID_BYTES
from broker.session.output import Output
from broker.session.session import Session

STORE_IS_FULL: Final = "the store takes no changes"
NOT_STORED: Final = "not_stored"  # why a message of another broker is dropped
NO_MEMORY: Final = "no_memory"  # likewise


def answer(broker: Broker, connection: Output, sent: Publication, packet_id: int, reason_code: int) -> None:
    """Write PUBACK or PUBREC when all that it speaks of is kept, behind those that wait [MQTT-4.6.0-2]. Only MQTT 5 has the
    reason code. A run has packet identifiers of its own."""
    if not isinstance(sent, Run):
        _answer(broker, connection, sent.qos, packet_id, reason_code)
        return
    pubacks = sent.pubacks()
    if reason_code == SUCCESS or connection.version != 5:
        broker.commits.acknowledge_run(connection, pubacks)
        return
    for at in range(0, len(pubacks), SHORT_PUBACK_BYTES):
        _answer(broker, connection, 1, pubacks[at + 2] << 8 | pubacks[at + 3], reason_code)


def _answer(broker: Broker, connection: Output, qos: int, packet_id: int, reason_code: int) -> None:
    if qos == 1 and (reason_code == SUCCESS or connection.version != 5):
        data = b"\x40\x02" + PACKET_ID_BYTES[packet_id]
    else:
        data = encode_ack(PUBACK if qos == 1 else PUBREC, packet_id, reason_code, connection.version)
    broker.commits.acknowledge(connection, data)


def refuse(
    broker: Broker, connection: Output, sent: Publication, packet_id: int, reason_code: int, drop_reason: str
) -> None:
    """Do not route what a client publishes. MQTT 5 has an answer for QoS 1 and 2; a message of MQTT 3.1.1 is acknowledged and
    dropped [MQTT-3.3.5-2], as one of QoS 0 is dropped."""
    count_refused(connection, drop_reason, sent.count)
    if sent.qos == 0 or connection.version < 5:
        broker.counters.drop_for_client(drop_reason, sent.count, sent.qos, connection.client_id)
    elif reason_code >= 0x80:
        broker.counters.publishes_refused += sent.count
    if sent.qos:
        answer(broker, connection, sent, packet_id, reason_code)


def refuse_by_tap(broker: Broker, connection: Output, tap: Tap, sent: Publication, packet_id: int) -> bool:
    """Refuse what a full tap would keep. False for QoS 1 and 2 of who cannot be told: it is held, and its answers wait."""
    if (sent.qos and not _understands(connection)) or not tap.refuses(sent.topic):
        return False
    count_refused(connection, DROP_LOG_FULL, sent.count)
    if sent.qos == 0:
        broker.counters.drop_of_topic(DROP_LOG_FULL, sent.count, 0, sent.topic)
    else:
        answer(broker, connection, sent, packet_id, QUOTA_EXCEEDED)
    return True


def refuse_unstored(
    broker: Broker, connection: Output, session: Session, route: Route, sent: Publication, packet_id: int, now: float
) -> bool:
    """Refuse a QoS 1 or 2 PUBLISH that the store would have to keep while it takes nothing. False when the store is not
    needed."""
    qos = sent.qos
    if qos == 0 or not (sent.retain or (qos == 2 and session.records is not None) or _needs_store(route, qos)):
        return False
    broker.counters.publishes_not_stored += sent.count
    if _may_be_told(broker, connection, STORE_IS_FULL, NOT_STORED, sent.count, now):
        answer(broker, connection, sent, packet_id, QUOTA_EXCEEDED)
    return True


def refuse_without_memory(broker: Broker, connection: Output, sent: Publication, packet_id: int, now: float) -> None:
    """Refuse a QoS 1 or 2 PUBLISH because the memory is full."""
    broker.counters.publishes_without_memory += sent.count
    if _may_be_told(broker, connection, MEMORY_IS_FULL, NO_MEMORY, sent.count, now):
        answer(broker, connection, sent, packet_id, QUOTA_EXCEEDED)


def refuse_waiting(broker: Broker, now: float) -> None:
    """The store takes nothing: refuse the PUBLISH packets whose answers wait for it."""
    for connection, waiting in broker.commits.take_publish_answers():
        session = broker.session_of(connection)
        if session is None:
            continue
        broker.counters.publishes_not_stored += 1
        if waiting[0] >> 4 == PUBREC:
            # The message is routed. A PUBREC with an error would end the exchange [MQTT5 4.3.3], and its repetition would be a
            # second one; so the client asks once more.
            broker.close_connection(connection, NO_REASON, STORE_IS_FULL, now)
        elif _may_be_told(broker, connection, STORE_IS_FULL, NOT_STORED, 1, now):
            packet_id = waiting[2] << 8 | waiting[3]
            connection.write_answer(encode_ack(PUBACK, packet_id, QUOTA_EXCEEDED, 5))


def _may_be_told(broker: Broker, connection: Output, text: str, reason: str, count: int, now: float) -> bool:
    """Return whether the client can be told that messages are refused. Else it is disconnected, and sends them again."""
    if not _understands(connection):
        broker.close_connection(connection, NO_REASON, text, now)
        return False
    count_refused(connection, reason, count)
    return True


def _understands(connection: Output) -> bool:
    """Return whether there is an answer for a message that cannot be kept now: in MQTT 3.1.1 there is none, and to the upstream
    of a link it would be the end of what waits there."""
    end = connection.bridge_end
    return connection.version == 5 and (end is None or end.takes_back)


def _needs_store(route: Route, qos: int) -> bool:
    """Return whether a QoS 1 or 2 message of this topic may have to be stored."""
    if route.groups:  # the member is chosen later
        return True
    for peer in route.peers:
        if peer.needs_store(qos):
            return True
    for receiver in route.receivers:  # noqa: SIM110 (compiled without a generator)
        if cast(Session, receiver.session).records is not None:
            return True
    return False


def count_refused(connection: Output, reason: str, count: int) -> None:
    """Messages of a connection were not published."""
    end = connection.bridge_end
    if end is not None:
        end.dropped[reason] = end.dropped.get(reason, 0) + count
