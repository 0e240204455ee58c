"""Whether and how the PUBLISH of a client is routed: its access, and the wrappers of plugins."""

from __future__ import annotations

from broker.broker import Broker
from broker.codec.reason_codes import IMPLEMENTATION_SPECIFIC_ERROR, NO_MATCHING_SUBSCRIBERS, NOT_AUTHORIZED, SUCCESS
from broker.codec.runs import Run
from broker.counters import DROP_REFUSED_BY_PLUGIN
from broker.errors import MqttError
from broker.message import Message
from broker.routing.route import Route
from broker.session.output import Output
from broker.session.refused import may_publish, refuse_by_tap, refuse_publish
from broker.session.session import Session
from broker.session.unstored import refuse_unstored
from broker.wrappers import PublishRequest, RunRequest


def is_refused(
    broker: Broker,
    connection: Output,
    route: Route,
    qos: int,
    retain: bool,
    packet_id: int,
    now: float,
) -> bool:
    """Refuse a PUBLISH that the client may not send, or that the store or the event log has no room for."""
    store_is_full = broker.commits.next_packet()
    if route.is_judged and not may_publish(broker, connection, route):
        refuse_publish(broker, connection, qos, packet_id, NOT_AUTHORIZED)
        return True
    if store_is_full and refuse_unstored(broker, connection, route, qos, retain, packet_id, now):
        return True
    tap = broker.tap
    return tap is not None and refuse_by_tap(broker, connection, tap, route.topic, qos, packet_id)


def route_wrapped(
    broker: Broker, connection: Output, session: Session, route: Route, message: Message, now: float
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
        try:
            route = broker.router.lookup(changed.topic)
        except MqttError as error:
            broker.counters.plugin_faults += 1
            broker.faults.plugin_failed("publish: the topic name of the new message", error)
            return IMPLEMENTATION_SPECIFIC_ERROR
    return SUCCESS if broker.router.route(route, changed, connection, now) else NO_MATCHING_SUBSCRIBERS


def route_run_wrapped(broker: Broker, connection: Output, session: Session, route: Route, run: Run, now: float) -> None:
    """As `route_wrapped`, for a run: as one where all plugins take runs."""
    of_runs = broker.run_publishing
    counters = broker.counters
    if of_runs is not None:
        if of_runs.run(RunRequest(session.identity(), run)):
            broker.router.route_run(route, run, connection, now)
        else:
            counters.drop_for_client(DROP_REFUSED_BY_PLUGIN, run.count, 0, connection.client_id)
        return
    for message in run.messages():
        if route_wrapped(broker, connection, session, route, message, now) >= 0x80:
            counters.drop_for_client(DROP_REFUSED_BY_PLUGIN, 1, 0, connection.client_id)
