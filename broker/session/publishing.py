"""The rules of a PUBLISH of a client, in one order for runs and messages: it is admitted, may be published, is wrapped,
routed and answered [MQTT5 3.3]. `Connection` reads the packets."""

# compiled with mypyc
from __future__ import annotations

from broker.bridge_end import Arrival
from broker.broker import Broker
from broker.codec.packets import PUBREC
from broker.codec.reason_codes import (
    IMPLEMENTATION_SPECIFIC_ERROR,
    NOT_AUTHORIZED,
    QOS_NOT_SUPPORTED,
    RECEIVE_MAXIMUM_EXCEEDED,
    RETAIN_NOT_SUPPORTED,
    SUCCESS,
)
from broker.codec.runs import Run
from broker.codec.writer import encode_ack
from broker.counters import DROP_GROUP_GONE, DROP_PUBLISH_NOT_AUTHORIZED, DROP_REFUSED_BY_PLUGIN
from broker.errors import MqttError
from broker.memory_limit import MEMORY_FULL
from broker.message import Message, Publication
from broker.routing.route import Route
from broker.session.output import Output
from broker.session.refused import answer, refuse, refuse_by_tap, refuse_unstored, refuse_without_memory
from broker.session.session import Session
from broker.wrappers import PublishRequest, RunRequest


def publish(
    broker: Broker,
    connection: Output,
    session: Session,
    sent: Publication,
    packet_id: int,
    is_resent: bool,
    now: float,
) -> None:
    """Handle what a PUBLISH, or a run of them, says. Raises MqttError for an error of the client.

    packet_id  0 for QoS 0, and for a run
    is_resent  DUP is set
    """
    if broker.publishing is not None and broker.run_publishing is None and isinstance(sent, Run):
        for message in sent.messages():
            publish(broker, connection, session, message, packet_id, is_resent, now)
        return
    qos = sent.qos
    store_is_full = qos > 0 and broker.commits.next_packet()
    if qos > broker.maximum_qos:
        raise MqttError(QOS_NOT_SUPPORTED, f"QoS {qos} above the server's maximum QoS {broker.maximum_qos}")
    if qos == 2 and _is_repeated(broker, connection, session, packet_id, is_resent):
        return
    broker.counters.count_received(qos, sent.count)
    arrival: Arrival | None = None
    if connection.bridge_end is not None:
        arrival = connection.bridge_end.receive(sent, is_resent)
        if arrival.refusal:
            # A copy that came before may not be kept yet, and this answer lets the other end forget it.
            broker.commits.require(broker.commits.begun())
            broker.commits.require_promises()
            refuse(broker, connection, sent, packet_id, arrival.reason_code, arrival.refusal)
            return
    if sent.retain and not broker.settings.retain_available:
        raise MqttError(RETAIN_NOT_SUPPORTED, "RETAIN set, but this server has no retained messages")
    route = broker.router.lookup(sent.topic)
    sent.topic = route.topic  # one object for all messages of the topic
    if route.is_judged and not _may_publish(broker, connection, session, route):
        refuse(broker, connection, sent, packet_id, NOT_AUTHORIZED, DROP_PUBLISH_NOT_AUTHORIZED)
        return
    if store_is_full and refuse_unstored(broker, connection, session, route, sent, packet_id, now):
        return
    if qos and broker.memory_level == MEMORY_FULL:
        refuse_without_memory(broker, connection, sent, packet_id, now)
        return
    if broker.tap is not None and refuse_by_tap(broker, connection, broker.tap, sent, packet_id):
        return
    if broker.publishing is not None:
        reason_code, sent = _wrapped(broker, session, sent)
        if reason_code >= 0x80:
            refuse(broker, connection, sent, packet_id, reason_code, DROP_REFUSED_BY_PLUGIN)
            return
        route = broker.router.lookup(sent.topic)
    if arrival is None:
        reason_code = broker.router.route(route, sent, connection, now)
    else:
        reason_code = _route_arrival(broker, connection, route, sent, arrival, now)
        if reason_code == IMPLEMENTATION_SPECIFIC_ERROR:
            refuse(broker, connection, sent, packet_id, reason_code, DROP_GROUP_GONE)
            return
    if qos == 0:
        return
    if reason_code >= 0x80 and (connection.version < 5 or connection.bridge_end is not None):
        reason_code = SUCCESS  # only a group has no room, and who cannot be told that would send to all others again
    if qos == 2 and reason_code < 0x80:
        session.note_received(packet_id)  # one that is refused is refused again when it is resent
    answer(broker, connection, sent, packet_id, reason_code)


def _is_repeated(broker: Broker, connection: Output, session: Session, packet_id: int, is_resent: bool) -> bool:
    """Answer a QoS 2 message that came already, and was not released [MQTT5 4.3.3]. Raises MqttError for one more than
    the client may send."""
    if session.is_repeated(packet_id, is_resent):
        broker.commits.acknowledge(connection, encode_ack(PUBREC, packet_id, SUCCESS, connection.version))
        return True
    maximum = broker.settings.server_receive_maximum
    if connection.version == 5 and session.unreleased_length() >= maximum:
        raise MqttError(RECEIVE_MAXIMUM_EXCEEDED, f"more than {maximum} QoS 2 messages unreleased")
    return False


def _may_publish(broker: Broker, connection: Output, session: Session, route: Route) -> bool:
    """Return whether the client may publish to the topic of a route. It repeats its last topic most of the time."""
    authorization = broker.authorization
    if authorization is None or route.is_reserved:
        return not route.is_reserved
    if route.topic is connection.allowed_topic and authorization.number == connection.allowed_number:
        return True
    if not authorization.may_publish(session.identity(), route.topic):
        return False
    connection.allowed_topic = route.topic
    connection.allowed_number = authorization.number
    return True


def _route_arrival(
    broker: Broker, connection: Output, route: Route, sent: Publication, arrival: Arrival, now: float
) -> int:
    """Route what came from another broker: to its group, as a further copy, or as any other message. Returns the reason code;
    IMPLEMENTATION_SPECIFIC_ERROR where the group has nobody to take it."""
    reason_code = SUCCESS
    if arrival.group is not None:
        if not isinstance(sent, Message) or not broker.router.redeliver(arrival.group.copy, sent, now):
            return IMPLEMENTATION_SPECIFIC_ERROR
    elif not arrival.passed or isinstance(sent, Run):
        reason_code = broker.router.route(route, sent, connection, now)
    if connection.bridge_end is not None and broker.bridging is not None:
        broker.bridging.published(connection.bridge_end, route.bridge, sent, arrival, connection, now)
    return reason_code


def _wrapped(broker: Broker, session: Session, sent: Publication) -> tuple[int, Publication]:
    """Ask the wrappers. Returns the reason code of a refusal, and what is to be routed."""
    if isinstance(sent, Run):
        of_runs = broker.run_publishing
        assert of_runs is not None, "runs are split for wrappers of messages"
        run_request = RunRequest(session.identity(), sent)
        of_runs.run(run_request)
        return run_request.reason_code, sent
    chain = broker.publishing
    assert chain is not None
    assert isinstance(sent, Message)
    request = PublishRequest(session.identity(), sent)
    if not chain.run(request) or request.message is sent:
        return request.reason_code, sent
    changed = request.message
    changed.qos = sent.qos
    changed.origin = sent.origin
    try:
        broker.router.lookup(changed.topic)
    except MqttError as error:
        broker.counters.plugin_faults += 1
        broker.faults.plugin_failed("publish: the topic name of the new message", error)
        return IMPLEMENTATION_SPECIFIC_ERROR, sent
    return SUCCESS, changed
