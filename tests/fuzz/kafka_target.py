"""Requests of Kafka clients, of every kind and version, cut and changed."""

from __future__ import annotations

import contextlib
from random import Random
from typing import Any

from broker.kafka.fields import BOOLEAN, BYTES, STRING, ArrayOf, KafkaFault, Reader, Scalar, Type, decode, encode
from broker.kafka.frames import APIS, HEADER, decode_request
from fuzz_target import Target


def example(kind: Type, version: int) -> Any:
    """A value of the type."""
    if isinstance(kind, Scalar):
        return {STRING: "mqtt", BYTES: b"\0user\0password", BOOLEAN: True}.get(kind, 1)
    if isinstance(kind, ArrayOf):
        return [example(kind.element, version)] * 2
    return [{field.name: example(field.type, version) for field in kind if field.since <= version < field.until}] * 2


def request(key: int, version: int) -> bytes:
    message = APIS[key].request
    (values, _) = example(message.fields, version)
    tags = b"\0" if version >= message.flexible else b""
    return HEADER.pack(key, version, 7) + b"\0\1c" + tags + bytes(encode(message, version, values))


class KafkaTarget(Target):
    """A request without its size. Only KafkaFault is raised, and what was read is what a client could have sent. Every second
    input is a right request that ends early: a fault."""

    def __init__(self) -> None:
        versions = [
            (key, version) for key, api in APIS.items() for version in range(api.first_version, api.last_version + 1)
        ]
        super().__init__([request(key, version) for key, version in versions])

    def make(self, rng: Random) -> bytes:
        if rng.random() < 0.5:
            seed = rng.choice(self.seeds)
            return seed[: rng.randrange(len(seed))]
        return super().make(rng)

    def run(self, data: bytes) -> None:
        with contextlib.suppress(KafkaFault):
            found = decode_request(data)
            assert not any(seed.startswith(data) and seed != data for seed in self.seeds), "a request that ends early"
            if found.values is not None:
                message = APIS[found.key].request
                again = Reader(bytes(encode(message, found.version, found.values)))
                assert decode(message, found.version, again) == found.values
                assert again.left == 0
