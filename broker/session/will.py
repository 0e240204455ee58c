"""The Will Message of a client whose connection ended without DISCONNECT, and its delay [MQTT5 3.1.2.5, 3.1.3.2.2]."""

# compiled with mypyc
from __future__ import annotations

from broker.codec.packets import Will
from broker.context import Context
from broker.counters import DROP_PUBLISH_NOT_AUTHORIZED, DROP_REFUSED_BY_PLUGIN
from broker.message import NEVER, Message
from broker.routing.names import is_reserved
from broker.routing.subscriber import Subscriber
from broker.session.output import Output
from broker.store.journal import Content, Journal
from broker.timers import Timed
from broker.wrappers import WillRequest


def will_message(will: Will, client_id: str, now: float) -> Message:
    """The message of a will that is published at `now`."""
    expires_at = NEVER if will.message_expiry_interval is None else now + will.message_expiry_interval
    return Message(will.topic, will.payload, will.qos, will.retain, will.properties, expires_at, client_id)


def judged_will(context: Context, session: Subscriber, will: Will, now: float) -> Message | None:
    """The message of a will as the client may publish it now and plugins let it pass; None when it is dropped, and counted."""
    message = will_message(will, session.client_id, now)
    if is_reserved(message.topic):
        context.counters.drop_for_client(DROP_PUBLISH_NOT_AUTHORIZED, 1, message.qos, session.client_id)
        return None
    if session.bridge_end is not None:
        message.origin = session.bridge_end.origin
    client = session.identity()
    authorization = context.authorization
    if authorization is not None and not authorization.may_publish(client, message.topic):
        context.counters.drop_for_client(DROP_PUBLISH_NOT_AUTHORIZED, 1, message.qos, client.client_id)
        return None
    if context.will_publishing is None:
        return message
    request = WillRequest(client, message)
    if context.will_publishing.run(request):
        return request.message
    context.counters.drop_for_client(DROP_REFUSED_BY_PLUGIN, 1, message.qos, client.client_id)
    return None


class PendingWill(Timed):
    """A will that is published when its delay has passed or the session ends, whichever is first, unless the client comes
    back before that [MQTT-3.1.3-9].

    at  monotonic seconds, NEVER once it is published or cancelled
    record  number of its own record in the store, 0 for none
    """

    def __init__(self, context: Context, session: Subscriber, will: Will, at: float) -> None:
        super().__init__()
        self.context = context
        self.session = session
        self.will = will
        self.at = at
        self.record = 0

    def deadline(self) -> float:
        return self.at

    def hold(self, until: float) -> None:
        """Publish it no sooner: another node may have done so."""
        self.at = max(self.at, until)

    def cancel(self) -> None:
        self.at = NEVER
        self.context.timers.cancel(self)

    def forget(self, journal: Journal | None) -> None:
        """It is published, and needs no record of its own any more."""
        if self.record and journal is not None:
            journal.drop(self.record)
            self.record = 0

    def handle_timeout(self, now: float) -> None:
        self.cancel()
        self.context.publish_will(self.will, self.session, now)


class StoredWill(Content):
    """The record of a will that no record of a session has, because the session ends with its connection: the next start of
    the node publishes it, or the node that adopts the sessions of this one."""

    __slots__ = ("pending", "session")

    def __init__(self, session: Subscriber, pending: PendingWill | None = None) -> None:
        """pending: the will, where the process of the connection has ended."""
        self.session = session
        self.pending = pending

    def published_elsewhere(self, journal: Journal) -> None:
        if self.pending is not None:
            self.pending.cancel()
            self.pending.forget(journal)


def store_will(connection: Output, session: Subscriber, journal: Journal) -> None:
    """The will of the connection is in the store from now on. No acknowledgement waits for it."""
    was_touched = journal.is_touched
    connection.will_record = journal.keep(StoredWill(session))
    journal.is_touched = was_touched


def forget_stored(connection: Output, journal: Journal | None) -> None:
    """The will of the connection needs no record of its own any more."""
    if connection.will_record and journal is not None:
        journal.drop(connection.will_record)
        connection.will_record = 0


def take_will(connection: Output, journal: Journal | None) -> Will | None:
    """Take the will from the connection, and its own record from the store."""
    will = connection.will
    connection.will = None
    forget_stored(connection, journal)
    return will
