"""Rows as a pipeline stages them, one by one, without Arrow."""

from __future__ import annotations

from collections.abc import Sequence

from broker.codec.properties import encode_publish_properties
from broker.event_log.block import NO_EXPIRY, NOBODY, RETAIN_FLAG, BlockBuilder, encode_extra

Row = tuple[str, bytes, int, bool, Sequence[tuple[str, str]]]


def a_row(
    topic: str, payload: bytes = b"", qos: int = 0, retain: bool = False, properties: Sequence[tuple[str, str]] = ()
) -> Row:
    return topic, payload, qos, retain, properties


def block_of(rows: Sequence[Row]) -> bytes:
    """A block of these rows, which need not be right."""
    builder = BlockBuilder()
    for topic, payload, qos, retain, properties in rows:
        encoded = encode_publish_properties(user_properties=list(properties)) if properties else b""
        extra = encode_extra(NO_EXPIRY, encoded) if encoded else b""
        builder.add(topic.encode(), payload, qos | RETAIN_FLAG * retain, NOBODY, extra, 0)
    return builder.take(0)
