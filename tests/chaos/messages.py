"""The messages that a chaos run publishes: each is made from the seed and its number alone, and no two are equal."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from broker.codec.properties import encode_publish_properties

DEVICES: Final = 200
KINDS: Final = ("door", "meter", "pump", "valve")
TOPIC_PREFIX: Final = "chaos/"
WITH_PROPERTIES_EVERY: Final = 7


@dataclass(frozen=True)
class ChaosMessage:
    topic: bytes
    payload: bytes
    properties: bytes  # encoded, for connections of MQTT 5


def topic_of(number: int) -> str:
    device = number % DEVICES
    return f"{TOPIC_PREFIX}{KINDS[device % len(KINDS)]}/{device:03d}"


def payload_of(seed: int, number: int) -> bytes:
    """Some 80 bytes that do not compress: the number can be read from it, all else shows that it is whole."""
    start = b"%d:%d:" % (seed, number)
    return start + hashlib.sha256(start).hexdigest().encode()


def message_of(seed: int, number: int) -> ChaosMessage:
    properties = b""
    if number % WITH_PROPERTIES_EVERY == 0:
        properties = encode_publish_properties(
            content_type="text/plain",
            response_topic=b"answers/%d" % (number % DEVICES),
            correlation_data=number.to_bytes(8, "big"),
            user_properties=[("part", "a"), ("part", "b"), ("number", str(number))],
        )
    return ChaosMessage(topic_of(number).encode(), payload_of(seed, number), properties)


def number_of(seed: int, payload: bytes) -> int | None:
    """The number of a payload of this seed; None when it is not one, or is damaged."""
    found_seed, _, rest = payload.partition(b":")
    digits = rest.partition(b":")[0]
    if not digits.isdigit() or found_seed != b"%d" % seed:
        return None
    number = int(digits)
    return number if payload == payload_of(seed, number) else None
