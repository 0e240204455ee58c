"""The Will Message of a client whose connection ended without DISCONNECT, and its delay [MQTT5 3.1.2.5, 3.1.3.2.2]."""

# compiled with mypyc
from __future__ import annotations

from broker.codec.packets import Will
from broker.context import Context
from broker.counters import DROP_PUBLISH_NOT_AUTHORIZED, DROP_REFUSED_BY_PLUGIN
from broker.message import NEVER, Message
from broker.routing.names import is_reserved
from broker.routing.subscriber import Subscriber
from broker.timers import Timed
from broker.wrappers import WillRequest


def will_message(will: Will, client_id: str, now: float) -> Message:
    """The message of a will that is published at `now`."""
    expires_at = NEVER if will.message_expiry_interval is None else now + will.message_expiry_interval
    return Message(will.topic, will.payload, will.qos, will.retain, will.properties, expires_at, client_id)


def judged_will(context: Context, session: Subscriber | None, will: Will, client_id: str, now: float) -> Message | None:
    """The message of a will as the client may publish it now and plugins let it pass; None when it is dropped, and counted."""
    message = will_message(will, client_id, now)
    if is_reserved(message.topic):
        context.counters.drop_for_client(DROP_PUBLISH_NOT_AUTHORIZED, 1, message.qos, client_id)
        return None
    if session is None:
        return message
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
    """

    def __init__(self, context: Context, client_id: str, will: Will, at: float) -> None:
        super().__init__()
        self.context = context
        self.client_id = client_id
        self.will = will
        self.at = at

    def deadline(self) -> float:
        return self.at

    def cancel(self) -> None:
        self.at = NEVER
        self.context.timers.cancel(self)

    def handle_timeout(self, now: float) -> None:
        self.cancel()
        self.context.publish_will(self.will, self.client_id, now)
