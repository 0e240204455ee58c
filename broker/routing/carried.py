"""Messages of other nodes, from the packets that carry them."""

# compiled with mypyc
from __future__ import annotations

from broker.codec.packets import Publish
from broker.codec.reader import decode_publish
from broker.codec.runs import bare_message
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


def block_message(
    first: int, data: bytes, start: int, body: int, end: int, payload_at: int, version: int, now: float
) -> Message:
    """The message of the PUBLISH data[start:end] of another node: as it came where `bare_payload_at` recognizes it with QoS 1.
    It may have expired. Raises MqttError."""
    if payload_at >= 0:
        return bare_message(data, start, body, end, payload_at, version, "")
    return carried_message(decode_publish(first, data, body, end, version), now)
