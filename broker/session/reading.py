"""Messages that wait for a client, and that it may not read any more: after a take-over by another user, or when the rules
of an authorizer changed."""

# compiled with mypyc
from __future__ import annotations

from broker.authorization import Authorization
from broker.routing.subscriber import Subscriber
from broker.session.inflight import Inflight
from broker.session.outgoing import AWAIT_PUBCOMP
from broker.session.queue import MessageQueue


def drop_unreadable(queue: MessageQueue, authorization: Authorization, subscriber: Subscriber) -> list[int]:
    """Take queued messages out whose topic the client may not read. Returns the QoS of each."""
    subscriber.judged_number = authorization.number
    client = subscriber.identity()
    numbers: set[int] = set()
    dropped: list[int] = []
    for outgoing in queue.messages():
        message = outgoing.message
        assert message is not None
        if not authorization.may_read(client, message.topic):
            numbers.add(outgoing.number)
            dropped.append(outgoing.qos)
    if numbers:
        queue.remove(numbers)
    return dropped


def discard_unreadable(inflight: Inflight, authorization: Authorization, subscriber: Subscriber) -> list[int]:
    """Take in-flight messages out that are to be sent again, and whose topic the client may not read. Returns the QoS
    of each.

    Called before the first packet of a connection, so that their packet identifiers are free. A message after PUBREC is not
    sent again; its PUBREL is [MQTT-4.4.0-1]."""
    client = subscriber.identity()
    dropped: list[int] = []
    for outgoing in inflight.messages():
        message = outgoing.message
        if outgoing.state == AWAIT_PUBCOMP or message is None:
            continue
        if not authorization.may_read(client, message.topic):
            inflight.discard(outgoing.packet_id)
            dropped.append(outgoing.qos)
    return dropped
