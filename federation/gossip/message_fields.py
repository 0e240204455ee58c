"""Messages as dataclasses: each attribute has the key of its field on the wire and the function that reads the field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields
from functools import cache, partial
from typing import Any, ClassVar, Final, Self

from federation.gossip.msgpack_fields import (
    UINT8_MAX,
    UINT16_MAX,
    UINT32_MAX,
    Fields,
    decode_fields,
    encode,
    uint_field,
)

Reader = Callable[[Fields, bytes], object]

uint8_field: Final[Reader] = partial(uint_field, maximum=UINT8_MAX)
uint16_field: Final[Reader] = partial(uint_field, maximum=UINT16_MAX)
uint32_field: Final[Reader] = partial(uint_field, maximum=UINT32_MAX)


def wire(key: str, reader: Reader, optional: bool = False) -> Any:
    """An attribute of a message. `optional`: an empty value or 0 is not written."""
    return field(metadata={"wire": (key, reader, optional)})


class MessageMap:
    """Base of dataclasses whose attributes are all made by `wire`. decode and from_fields raise WireError."""

    __slots__ = ()

    @classmethod
    def decode(cls, body: bytes) -> Self:
        return cls.from_fields(decode_fields(body))

    @classmethod
    def from_fields(cls, values: Fields) -> Self:
        readers = _readers(cls)  # type: ignore[arg-type]  # a class is hashable
        return cls(*[reader(values, key) for key, reader in readers])

    def encode_map(self) -> bytes:
        written: dict[str, object] = {}
        for key, name, optional in _keys(type(self)):  # type: ignore[arg-type]
            value = getattr(self, name)
            if value or not optional:
                written[key] = value
        return encode(written)


class Message(MessageMap):
    """A message whose type byte is always the same."""

    __slots__ = ()
    TYPE: ClassVar[int]

    def encode(self) -> bytes:
        return bytes((self.TYPE,)) + self.encode_map()


@cache
def _readers(message: Any) -> list[tuple[bytes, Reader]]:
    """In the order of the attributes."""
    return [(item.metadata["wire"][0].encode(), item.metadata["wire"][1]) for item in fields(message)]


@cache
def _keys(message: Any) -> list[tuple[str, str, bool]]:
    """(key, attribute, optional), ascending by key as memberlist writes them."""
    return sorted((item.metadata["wire"][0], item.name, item.metadata["wire"][2]) for item in fields(message))
