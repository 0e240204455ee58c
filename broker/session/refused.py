"""Whether a client may publish, and the answers to PUBLISH packets that are not routed."""

# compiled with mypyc
from __future__ import annotations

from broker.broker import Broker
from broker.codec.packets import PUBACK, PUBREC
from broker.codec.reason_codes import QUOTA_EXCEEDED
from broker.codec.writer import encode_ack
from broker.counters import DROP_LOG_FULL, DROP_PUBLISH_NOT_AUTHORIZED
from broker.hooks import Tap
from broker.routing.route import Route
from broker.session.link_session import count_refused
from broker.session.output import Output


def may_publish(broker: Broker, connection: Output, route: Route) -> bool:
    """Whether the client may publish to the topic of a route. It repeats its last topic most of the time."""
    authorization = broker.authorization
    if authorization is None or route.is_reserved:
        return not route.is_reserved
    if route.topic is connection.allowed_topic and authorization.number == connection.allowed_number:
        return True
    session = broker.session_of(connection)
    assert session is not None
    if not authorization.may_publish(session.identity(), route.topic):
        return False
    connection.allowed_topic = route.topic
    connection.allowed_number = authorization.number
    return True


def refuse_publish(
    broker: Broker,
    connection: Output,
    qos: int,
    packet_id: int,
    reason_code: int,
    drop_reason: str = DROP_PUBLISH_NOT_AUTHORIZED,
) -> None:
    """Do not route a PUBLISH. MQTT 5 has an answer for QoS 1 and 2; a message of MQTT 3.1.1 is acknowledged and
    dropped [MQTT-3.3.5-2], as one of QoS 0 is dropped."""
    counters = broker.counters
    count_refused(connection, drop_reason, 1)
    if qos and connection.version == 5:
        counters.publishes_refused += 1
    else:
        counters.drop_for_client(drop_reason, 1, qos, connection.client_id)
    if qos:
        answer_refused(broker, connection, qos, packet_id, reason_code)


def refuse_by_tap(broker: Broker, connection: Output, tap: Tap, topic: bytes, qos: int, packet_id: int) -> bool:
    """Refuse a PUBLISH that a full tap would keep. False for QoS 1 and 2 of MQTT 3.1.1, which cannot be refused."""
    if (qos and connection.version < 5) or not tap.refuses(topic):
        return False
    count_refused(connection, DROP_LOG_FULL, 1)
    if qos == 0:
        broker.counters.drop_of_topic(DROP_LOG_FULL, 1, 0, topic)
    else:
        answer_refused(broker, connection, qos, packet_id, QUOTA_EXCEEDED)
    return True


def refuse_run(broker: Broker, connection: Output, reason: str, count: int) -> None:
    """Drop QoS 0 messages of a client."""
    count_refused(connection, reason, count)
    broker.counters.drop_for_client(reason, count, 0, connection.client_id)


def answer_refused(broker: Broker, connection: Output, qos: int, packet_id: int, reason_code: int) -> None:
    """Write PUBACK or PUBREC, behind those that wait for a commit [MQTT-4.6.0-2]. Only MQTT 5 has the reason code."""
    answer = encode_ack(PUBACK if qos == 1 else PUBREC, packet_id, reason_code, connection.version)
    if connection.acks_waiting:
        broker.commits.acknowledge(connection, answer)
    else:
        connection.write_answer(answer)
