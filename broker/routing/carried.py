"""Messages of other nodes, from the packets that carry them."""

# compiled with mypyc
from __future__ import annotations

from broker.codec.packets import Publish
from broker.codec.wire import decode_varint
from broker.errors import MalformedPacket
from broker.message import NEVER, Message
from broker.origin import NAME, carried_origin, split_properties


def publish_at(data: bytes, pos: int, size: int) -> tuple[int, int]:
    """(body, end) of the whole PUBLISH at data[pos:size]: where its variable header begins, and what follows it. Raises
    MalformedPacket for anything else."""
    remaining, body = decode_varint(data, pos + 1, size)
    if data[pos] >> 4 != 3 or remaining < 0 or body + remaining > size:
        raise MalformedPacket("block of packets contains something other than a whole PUBLISH")
    return body, body + remaining


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
