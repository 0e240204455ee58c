"""PUBLISH packets that are not bare, and how any PUBLISH of a client is routed: its access, and the wrappers of plugins."""

# compiled with mypyc
from __future__ import annotations

from broker.broker import Broker
from broker.codec.packets import PUBACK, PUBREC, Publish
from broker.codec.reason_codes import (
    IMPLEMENTATION_SPECIFIC_ERROR,
    NO_MATCHING_SUBSCRIBERS,
    NOT_AUTHORIZED,
    QOS_NOT_SUPPORTED,
    QUOTA_EXCEEDED,
    RECEIVE_MAXIMUM_EXCEEDED,
    RETAIN_NOT_SUPPORTED,
    SUCCESS,
)
from broker.codec.runs import Run
from broker.codec.writer import encode_ack
from broker.counters import (
    DROP_GROUP_GONE,
    DROP_LINK_DUPLICATE,
    DROP_LINK_RETAINED,
    DROP_LINK_TOPIC,
    DROP_REFUSED_BY_PLUGIN,
)
from broker.errors import MqttError, ProtocolViolation
from broker.job_header import queue_of
from broker.memory_limit import MEMORY_FULL
from broker.message import NEVER, Message
from broker.origin import NAME
from broker.routing.duplicates import NEW, SEEN
from broker.routing.route import Route
from broker.session.link_session import count_refused, take_header
from broker.session.output import Output
from broker.session.refused import may_publish, refuse_by_tap, refuse_publish, refuse_run
from broker.session.session import Session
from broker.session.unstored import refuse_unstored, refuse_without_memory
from broker.wrappers import PublishRequest, RunRequest


def handle_publish(broker: Broker, connection: Output, session: Session, publish: Publish, now: float) -> None:
    """Handle a PUBLISH whose topic alias is resolved [MQTT5 3.3]. Raises MqttError for an error of the client."""
    settings = broker.settings
    version = connection.version
    qos = publish.qos
    if publish.subscription_identifiers:
        raise ProtocolViolation("PUBLISH from a client with a subscription identifier [MQTT-3.3.4-6]")
    facts = connection.link
    if publish.retain and not settings.retain_available:
        if facts is not None and facts.gate is not None:  # no SUBSCRIBE of MQTT 3.1.1 asks for messages without it
            broker.counters.count_received(qos)
            refuse_publish(
                broker, connection, qos, publish.packet_id, IMPLEMENTATION_SPECIFIC_ERROR, DROP_LINK_RETAINED
            )
            return
        raise MqttError(RETAIN_NOT_SUPPORTED, "RETAIN set, but this server has no retained messages")
    if qos > settings.maximum_qos:
        raise MqttError(QOS_NOT_SUPPORTED, f"QoS {qos} above the server's maximum QoS {settings.maximum_qos}")
    if qos == 2:
        if session.is_unreleased(publish.packet_id):
            broker.commits.acknowledge(connection, encode_ack(PUBREC, publish.packet_id, SUCCESS, version))
            return
        if version == 5 and session.unreleased_length() >= settings.server_receive_maximum:
            raise MqttError(
                RECEIVE_MAXIMUM_EXCEEDED, f"more than {settings.server_receive_maximum} QoS 2 messages unreleased"
            )
    broker.counters.count_received(qos)
    jobs = None if facts is None else facts.jobs
    origin = None if facts is None else facts.origin
    has_header = False
    hops_before = NEW
    if publish.properties and NAME in publish.properties:
        origin, reason = take_header(broker, connection, publish)
        has_header = origin is not None
        if origin is not None and not reason:
            hops_before = broker.duplicates.judge(origin, publish.dup)
            if hops_before == SEEN:
                reason = DROP_LINK_DUPLICATE
        if reason == DROP_LINK_DUPLICATE and jobs is not None:
            # Refused jobs go back to the upstream's queue. This one is here.
            count_refused(connection, reason, 1)
            broker.commits.acknowledge(connection, encode_ack(PUBACK, publish.packet_id, SUCCESS, version))
            return
        if reason:
            refuse_publish(broker, connection, qos, publish.packet_id, IMPLEMENTATION_SPECIFIC_ERROR, reason)
            return
    if facts is not None and jobs is None and not facts.takes(publish.topic):
        refuse_publish(broker, connection, qos, publish.packet_id, IMPLEMENTATION_SPECIFIC_ERROR, DROP_LINK_TOPIC)
        return
    route = broker.router.lookup(publish.topic)
    if is_refused(broker, connection, route, qos, publish.retain, publish.packet_id, now):
        return
    expires_at = now + publish.message_expiry_interval if publish.message_expiry_interval >= 0 else NEVER
    message = Message(
        publish.topic,
        publish.payload,
        qos,
        publish.retain,
        publish.properties,
        expires_at,
        connection.client_id,
        origin,
    )
    broker.rejected = False
    if jobs is not None:
        if not take_job(broker, jobs, message, now):
            refuse_publish(broker, connection, qos, publish.packet_id, IMPLEMENTATION_SPECIFIC_ERROR, DROP_GROUP_GONE)
            return
        reason_code = SUCCESS
    elif broker.publishing is None:
        matched = broker.router.route_copy(route, message, hops_before, connection, now)
        reason_code = SUCCESS if matched else NO_MATCHING_SUBSCRIBERS
    else:
        reason_code = route_wrapped(broker, connection, session, route, message, now, hops_before)
        if reason_code >= 0x80:
            refuse_publish(broker, connection, qos, publish.packet_id, reason_code, DROP_REFUSED_BY_PLUGIN)
            return
    if has_header and origin is not None:
        broker.duplicates.note(origin, hops_before, True)
    if broker.rejected and version == 5:
        reason_code = QUOTA_EXCEEDED
    if qos == 1:
        broker.commits.acknowledge(connection, encode_ack(PUBACK, publish.packet_id, reason_code, version))
    elif qos == 2:
        # A message that is refused does not count as received: it is refused again after a reconnect.
        if reason_code < 0x80:
            session.note_received(publish.packet_id)
        broker.commits.acknowledge(connection, encode_ack(PUBREC, publish.packet_id, reason_code, version))


def take_job(broker: Broker, jobs: dict[bytes, bytes], message: Message, now: float) -> bool:
    """Give a job that came over a link to its group on this node, and to no other subscriber. False when there is none."""
    lending = broker.lending
    full = jobs.get(queue_of(message.origin))
    group = None if lending is None or full is None else lending.group_of(full)
    return group is not None and broker.router.hand_over(group, message, now)


def is_refused(
    broker: Broker,
    connection: Output,
    route: Route,
    qos: int,
    retain: bool,
    packet_id: int,
    now: float,
) -> bool:
    """Refuse a PUBLISH that the client may not send, or that store, memory or event log have no room for."""
    store_is_full = broker.commits.next_packet()
    if route.is_judged and not may_publish(broker, connection, route):
        refuse_publish(broker, connection, qos, packet_id, NOT_AUTHORIZED)
        return True
    if store_is_full and refuse_unstored(broker, connection, route, qos, retain, packet_id, now):
        return True
    if qos and broker.memory_level == MEMORY_FULL:
        refuse_without_memory(broker, connection, qos, packet_id, now)
        return True
    tap = broker.tap
    return tap is not None and refuse_by_tap(broker, connection, tap, route.topic, qos, packet_id)


def route_wrapped(
    broker: Broker,
    connection: Output,
    session: Session,
    route: Route,
    message: Message,
    now: float,
    hops_before: int = NEW,
) -> int:
    """Route a message as the wrappers of plugins change it. Returns the reason code of its acknowledgement."""
    chain = broker.publishing
    assert chain is not None
    request = PublishRequest(session.identity(), message)
    if not chain.run(request):
        return request.reason_code
    changed = request.message
    if changed is not message:
        changed.qos = message.qos
        changed.origin = message.origin
        try:
            route = broker.router.lookup(changed.topic)
        except MqttError as error:
            broker.counters.plugin_faults += 1
            broker.faults.plugin_failed("publish: the topic name of the new message", error)
            return IMPLEMENTATION_SPECIFIC_ERROR
    matched = broker.router.route_copy(route, changed, hops_before, connection, now)
    return SUCCESS if matched else NO_MATCHING_SUBSCRIBERS


def route_run_wrapped(broker: Broker, connection: Output, session: Session, route: Route, run: Run, now: float) -> None:
    """As `route_wrapped`, for a run: as one where all plugins take runs."""
    of_runs = broker.run_publishing
    if of_runs is not None:
        if of_runs.run(RunRequest(session.identity(), run)):
            broker.router.route_run(route, run, connection, now)
        else:
            refuse_run(broker, connection, DROP_REFUSED_BY_PLUGIN, run.count)
        return
    for message in run.messages():
        if route_wrapped(broker, connection, session, route, message, now) >= 0x80:
            refuse_run(broker, connection, DROP_REFUSED_BY_PLUGIN, 1)
