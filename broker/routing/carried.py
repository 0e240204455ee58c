"""Messages of other nodes, from the packets that carry them."""

# compiled with mypyc
from __future__ import annotations

from broker.codec.packets import Publish
from broker.message import NEVER, Message
from broker.origin import NAME, carried_origin, split_properties


def carried_message(publish: Publish, now: float) -> Message:
    """The message of a PUBLISH of another node. Its origin is the last of the properties."""
    origin = None
    if publish.properties and NAME in publish.properties:
        publish.properties, headers = split_properties(publish.properties)
        origin = carried_origin(headers)
    expiry = publish.message_expiry_interval
    expires_at = now + expiry if expiry >= 0 else NEVER
    return Message(
        publish.topic, publish.payload, publish.qos, publish.retain, publish.properties, expires_at, "", origin
    )
