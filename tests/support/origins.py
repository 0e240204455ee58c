"""Origins of messages as text, and messages as values that can be compared."""

from __future__ import annotations

from broker.message import Message
from broker.origin import Origin, decode_origin


def origin(text: bytes) -> Origin | None:
    return decode_origin(text) if text else None


def text_of(found: Origin | None) -> bytes:
    return b"" if found is None else found.encode()


def fields(message: Message) -> tuple[object, ...]:
    return (
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.properties,
        message.expires_at,
        text_of(message.origin),
    )
