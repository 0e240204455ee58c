"""Fields of Kafka's messages, and the codec of a message from the table of its fields.

A table is a tuple of `Field` in the order of the message; a field is there in some versions only. From its flexible version
on a message has compact lengths, and tagged fields at the end of each structure (KIP-482): those of requests are skipped, and
answers have none. Source: the message definitions of Apache Kafka, clients/src/main/resources/common/message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

ELEMENTS_MAX: Final = 2_000
"""Values of arrays in one request: it is decoded within a millisecond."""
VERSION_END: Final = 1_000  # above every version

Values = dict[str, Any]  # of one structure, by the names of its fields


class KafkaFault(ValueError):
    """The bytes are no request of the protocol; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A type without parts. `size`: bytes, 0 where they vary."""

    name: str
    format: str = ""


BOOLEAN: Final = Scalar("boolean", ">?")
INT8: Final = Scalar("int8", ">b")
INT16: Final = Scalar("int16", ">h")
INT32: Final = Scalar("int32", ">i")
INT64: Final = Scalar("int64", ">q")
STRING: Final = Scalar("string")
BYTES: Final = Scalar("bytes")  # also the records of a request
RECORDS: Final = Scalar("records")  # the same, of an answer: a list of parts, which are not copied


class ArrayOf(NamedTuple):
    """An array of scalars. One of structures is written as the tuple of their fields."""

    element: Scalar


Type = Scalar | ArrayOf | tuple["Field", ...]


class Field(NamedTuple):
    """since, until  the versions that have the field; `until` is behind the last one
    nullable   the version from which on it may be null
    default    what an answer has when its values do not name the field
    """

    name: str
    type: Type
    since: int = 0
    until: int = VERSION_END
    nullable: int = VERSION_END
    default: Any = None


@dataclass(frozen=True, slots=True, eq=False)  # a key by its identity: it is looked up for each request
class Message:
    """The table of a request or an answer. `flexible`: the version from which on it is flexible."""

    flexible: int
    fields: tuple[Field, ...]


class Reader:
    """Takes values from the bytes of a request, one after the other. Raises KafkaFault."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._elements = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise KafkaFault(f"a field of {size} bytes at byte {self._at} of {len(self._data)}")
        self._at += size
        return self._data[self._at - size : self._at]

    def scalar(self, number: struct.Struct) -> Any:
        return number.unpack(self.take(number.size))[0]

    def varint(self) -> int:
        """An unsigned varint of at most 32 bits."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise KafkaFault(f"a varint of more than five bytes at byte {self._at}")
        return value

    def length(self, is_flexible: bool, short: bool = False) -> int:
        """A length, or -1 for null. `short`: two bytes where it is not compact."""
        if is_flexible:
            return self.varint() - 1
        return int(self.scalar(_INT16 if short else _INT32))

    def count(self, is_flexible: bool) -> int:
        """The length of an array, or -1 for null. Each element has a byte at least."""
        count = self.length(is_flexible)
        if count > self.left:
            raise KafkaFault(f"an array of {count} elements in {self.left} bytes")
        self._elements += max(count, 0)
        if self._elements > ELEMENTS_MAX:
            raise KafkaFault(f"more than {ELEMENTS_MAX} elements of arrays in one request")
        return count

    def skip_tags(self) -> None:
        for _ in range(self.count(True) + 1):
            self.varint()
            self.take(self.varint())


_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_TAGS: Final = b"\0"  # no tagged fields


# --- from bytes ---


def decode(message: Message, version: int, reader: Reader) -> Values:
    """The values of a request. Bytes behind its last field are ignored, as Kafka does: librdkafka 2.16 sends three of them in
    Metadata. Raises KafkaFault."""
    return _decoder(message, version)(reader)


@cache
def _decoder(message: Message, version: int) -> Callable[[Reader], Values]:
    return _structure_decoder(message.fields, version, version >= message.flexible)


def _structure_decoder(fields: tuple[Field, ...], version: int, is_flexible: bool) -> Callable[[Reader], Values]:
    steps = [
        (field.name, _value_decoder(field, version, is_flexible))
        for field in fields
        if field.since <= version < field.until
    ]

    def decode_structure(reader: Reader) -> Values:
        values = {name: step(reader) for name, step in steps}
        if is_flexible:
            reader.skip_tags()
        return values

    return decode_structure


def _value_decoder(field: Field, version: int, is_flexible: bool) -> Callable[[Reader], Any]:
    is_nullable = version >= field.nullable

    def absent() -> None:
        if not is_nullable:
            raise KafkaFault(f"{field.name} is null")

    if isinstance(field.type, Scalar):
        return _scalar_decoder(field.type, is_flexible, absent)
    if isinstance(field.type, ArrayOf):
        element = _scalar_decoder(field.type.element, is_flexible, absent)
    else:
        element = _structure_decoder(field.type, version, is_flexible)

    def decode_array(reader: Reader) -> list[Any] | None:
        count = reader.count(is_flexible)
        if count < 0:
            absent()
            return None
        return [element(reader) for _ in range(count)]

    return decode_array


def _scalar_decoder(kind: Scalar, is_flexible: bool, absent: Callable[[], None]) -> Callable[[Reader], Any]:
    if kind.format:
        number = struct.Struct(kind.format)
        return lambda reader: reader.scalar(number)

    def decode_sized(reader: Reader) -> str | bytes | list[bytes] | None:
        length = reader.length(is_flexible, kind is STRING)
        if length < 0:
            absent()
            return None
        data = reader.take(length)
        if kind is BYTES:
            return data
        if kind is RECORDS:
            return [data] if data else []
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise KafkaFault("a string that is not UTF-8") from None

    return decode_sized


# --- to bytes ---


class Output(bytearray):
    """What is encoded so far, without the values of RECORDS: `inserted` has the place and the parts of each."""

    def __init__(self) -> None:
        super().__init__()
        self.inserted: list[tuple[int, list[bytes]]] = []

    def parts(self) -> list[bytes]:
        found = []
        start = 0
        for at, parts in self.inserted:
            found += [bytes(self[start:at]), *parts]
            start = at
        return [*found, bytes(self[start:])]


def encode(message: Message, version: int, values: Values) -> bytes:
    """As `encode_parts`, in one."""
    return b"".join(encode_parts(message, version, values))


def encode_parts(message: Message, version: int, values: Values) -> list[bytes]:
    """An answer with these values, in parts that follow each other. KeyError for a field that is missing and has no default."""
    output = Output()
    _encoder(message, version)(output, values)
    return output.parts()


@cache
def _encoder(message: Message, version: int) -> Callable[[Output, Values], None]:
    return _structure_encoder(message.fields, version, version >= message.flexible)


def _structure_encoder(fields: tuple[Field, ...], version: int, is_flexible: bool) -> Callable[[Output, Values], None]:
    steps = [
        (field, field.default is not None, _value_encoder(field, version, is_flexible))
        for field in fields
        if field.since <= version < field.until
    ]

    def encode_structure(output: Output, values: Values) -> None:
        for field, has_default, step in steps:
            step(output, values.get(field.name, field.default) if has_default else values[field.name])
        if is_flexible:
            output += _TAGS

    return encode_structure


def _value_encoder(field: Field, version: int, is_flexible: bool) -> Callable[[Output, Any], None]:
    is_nullable = version >= field.nullable
    if isinstance(field.type, Scalar):
        return _scalar_encoder(field.type, is_flexible, is_nullable)
    if isinstance(field.type, ArrayOf):
        element = _scalar_encoder(field.type.element, is_flexible, False)
    else:
        element = _structure_encoder(field.type, version, is_flexible)

    def encode_array(output: Output, value: list[Any] | None) -> None:
        if value is None:
            value = [] if not is_nullable else None
        _put_length(output, -1 if value is None else len(value), is_flexible, False)
        for each in value or ():
            element(output, each)

    return encode_array


def _scalar_encoder(kind: Scalar, is_flexible: bool, is_nullable: bool) -> Callable[[Output, Any], None]:
    if kind.format:
        number = struct.Struct(kind.format)

        def encode_number(output: Output, value: Any) -> None:
            output += number.pack(value)

        return encode_number

    def encode_records(output: Output, value: list[bytes] | None) -> None:
        if value is None:
            _put_length(output, -1, is_flexible, False)
            return
        _put_length(output, sum(map(len, value)), is_flexible, False)
        output.inserted.append((len(output), value))

    if kind is RECORDS:
        return encode_records

    def encode_sized(output: Output, value: str | bytes | None) -> None:
        if value is None:
            assert is_nullable, "a field that is never null has no value"
            _put_length(output, -1, is_flexible, kind is STRING)
            return
        data = value.encode() if isinstance(value, str) else value
        _put_length(output, len(data), is_flexible, kind is STRING)
        output += data

    return encode_sized


def _put_length(output: bytearray, length: int, is_flexible: bool, short: bool) -> None:
    if is_flexible:
        put_varint(output, length + 1)
    else:
        output += (_INT16 if short else _INT32).pack(length)


def put_varint(output: bytearray, value: int) -> None:
    """Add an unsigned varint."""
    while value >= 0x80:
        output.append(value & 0x7F | 0x80)
        value >>= 7
    output.append(value)
