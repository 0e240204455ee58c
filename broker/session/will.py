"""The Will Message of a client whose connection ended without DISCONNECT, and its delay [MQTT5 3.1.2.5, 3.1.3.2.2]."""

from __future__ import annotations

from broker.codec.packets import Will
from broker.context import Context
from broker.message import NEVER, Message
from broker.timers import Timed


def will_message(will: Will, client_id: str, now: float) -> Message:
    """The message of a will that is published at `now`."""
    expires_at = NEVER if will.message_expiry_interval is None else now + will.message_expiry_interval
    return Message(will.topic, will.payload, will.qos, will.retain, will.properties, expires_at, client_id)


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
