"""Message bodies: msgpack maps with Go field names as keys, read field by field with their types (wire-gossip 1).

This module and `body_reader` alone use the msgpack library. Raw and bin values both arrive as bytes. A field that is missing
or nil has its zero value; unknown fields are skipped; a field of the wrong type makes the whole message invalid, as in the Go
decoders.
"""

from __future__ import annotations

from typing import Final

import msgpack  # type: ignore[import-untyped]

from federation.gossip.errors import WireError

UINT8_MAX: Final = 0xFF
UINT16_MAX: Final = 0xFFFF
UINT32_MAX: Final = 0xFFFFFFFF
INT64_MAX: Final = (1 << 63) - 1

# Highest incarnation that a suspect or dead message may name. The range above it is left for refutations by the member
# itself (wire-gossip 6.6).
ACCUSED_INCARNATION_MAX: Final = UINT32_MAX - (1 << 20)

# Messages may carry any time up to LAMPORT_TIME_MAX, but no clock follows a time above WITNESSED_TIME_MAX. One forged
# message would otherwise move all clocks to their end, and no later intent could be newer (wire-gossip 8.2).
LAMPORT_TIME_MAX: Final = INT64_MAX
WITNESSED_TIME_MAX: Final = INT64_MAX - (1 << 40)
# Highest time of a leave intent. The range above it is left for the join intent that refutes it.
LEAVE_TIME_MAX: Final = INT64_MAX - (1 << 20)

NAME_BYTES_MAX: Final = 255
STREAM_ELEMENTS_MAX: Final = 64
"""Elements of one map or array of a stream outside of Serf's state; headers and nodes have fewer fields."""

Fields = dict[bytes, object]


def encode(value: object) -> bytes:
    """msgpack of the old specification, without str8 and bin. Maps are written in the order given: ascending by key."""
    data: bytes = msgpack.packb(value, use_bin_type=False)
    return data


def decode(data: bytes) -> object:
    """The one object that `data` consists of; strings and binary as bytes."""
    value, end = _unpack_first(data)
    if end != len(data):
        raise WireError("body is not msgpack: bytes follow it")
    return value


def decode_prefix(data: bytes) -> tuple[object, bytes]:
    """The object at the start of `data`, and the bytes after it."""
    value, end = _unpack_first(data)
    return value, data[end:]


def _unpack_first(data: bytes) -> tuple[object, int]:
    """The object at the start of `data`, and the index of its end.

    The object is skipped over before it is built. The library reserves room for all elements that an array claims: a
    thousand nested arrays that claim thousands of elements each would cost 80 MB and 70 ms before the missing end is found.
    """
    unpacker = msgpack.Unpacker(raw=True, strict_map_key=False, max_buffer_size=max(1, len(data)))
    try:
        unpacker.feed(data)
        unpacker.skip()
        end: int = unpacker.tell()
        value: object = msgpack.unpackb(data[:end], raw=True, strict_map_key=False)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        # TypeError: a map key is itself a map or array
        raise WireError(f"body is not msgpack: {type(error).__name__}") from None
    return value, end


def new_unpacker(size_max: int) -> msgpack.Unpacker:
    """For streams. Their objects are built while they arrive, so arrays and maps are limited to STREAM_ELEMENTS_MAX."""
    return msgpack.Unpacker(
        raw=True,
        strict_map_key=False,
        max_buffer_size=size_max,
        max_array_len=STREAM_ELEMENTS_MAX,
        max_map_len=STREAM_ELEMENTS_MAX,
    )


def unpack_next(unpacker: msgpack.Unpacker) -> tuple[bool, object]:
    """(True, the next object of a stream), or (False, None) when more bytes are needed."""
    try:
        value: object = unpacker.unpack()
    except msgpack.OutOfData:
        return False, None
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise WireError(f"stream is not msgpack: {type(error).__name__}") from None
    return True, value


def skip_next(unpacker: msgpack.Unpacker) -> bool:
    """Pass over the next object of a stream; False when more bytes are needed."""
    try:
        unpacker.skip()
    except msgpack.OutOfData:
        return False
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise WireError(f"stream is not msgpack: {type(error).__name__}") from None
    return True


def read_map_length(unpacker: msgpack.Unpacker) -> int:
    """Entries of the map that a stream begins with; -1 when more bytes are needed."""
    try:
        length: int = unpacker.read_map_header()
    except msgpack.OutOfData:
        return -1
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise WireError(f"stream is not msgpack: {type(error).__name__}") from None
    return length


def as_fields(value: object) -> Fields:
    if not isinstance(value, dict):
        raise WireError("body is not a map")
    return value


def decode_fields(data: bytes) -> Fields:
    return as_fields(decode(data))


def bytes_field(fields: Fields, key: bytes) -> bytes:
    value = fields.get(key)
    if value is None:
        return b""
    if isinstance(value, bytes):
        return value
    if isinstance(value, list):  # the Go decoders take an array of integers for []uint8 too
        try:
            return bytes(value)
        except (TypeError, ValueError):
            raise WireError(f"{key!r} is not binary") from None
    raise WireError(f"{key!r} is not binary")


def bytes_or_nil_field(fields: Fields, key: bytes) -> bytes | None:
    return None if fields.get(key) is None else bytes_field(fields, key)


def text_field(fields: Fields, key: bytes) -> str:
    value = fields.get(key)
    if value is None:
        return ""
    return as_text(value, key)


def as_text(value: object, what: bytes) -> str:
    if not isinstance(value, bytes):
        raise WireError(f"{what!r} is not a string")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise WireError(f"{what!r} is not UTF-8") from None


def name_field(fields: Fields, key: bytes) -> str:
    """A node name: at most NAME_BYTES_MAX bytes of UTF-8; may be empty."""
    value = fields.get(key)
    return "" if value is None else as_name(value, key)


def as_name(value: object, what: bytes) -> str:
    if isinstance(value, bytes) and len(value) > NAME_BYTES_MAX:
        raise WireError(f"{what!r} is longer than {NAME_BYTES_MAX} bytes")
    return as_text(value, what)


def uint_field(fields: Fields, key: bytes, maximum: int) -> int:
    value = fields.get(key)
    if value is None:
        return 0
    if not isinstance(value, int):
        raise WireError(f"{key!r} is not a number")
    if value < 0 or value > maximum:
        raise WireError(f"{key!r} is out of range")
    return int(value)


def bool_field(fields: Fields, key: bytes) -> bool:
    value = fields.get(key)
    if value is None:
        return False
    if not isinstance(value, int) or value < 0 or value > 1:
        raise WireError(f"{key!r} is not a boolean")
    return bool(value)


def list_field(fields: Fields, key: bytes) -> list[object]:
    value = fields.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise WireError(f"{key!r} is not an array")
    return value


def texts_field(fields: Fields, key: bytes) -> tuple[str, ...] | None:
    """An array of strings; None for nil, which Go writes for a list without elements."""
    if fields.get(key) is None:
        return None
    return tuple(as_text(item, key) for item in list_field(fields, key))


def map_field(fields: Fields, key: bytes) -> Fields:
    value = fields.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise WireError(f"{key!r} is not a map")
    return value
