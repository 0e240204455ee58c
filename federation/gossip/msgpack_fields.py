"""Message bodies: msgpack maps with Go field names as keys (section 1), read field by field with their types.

This is the one place that touches the msgpack library. Raw and bin both arrive as bytes; a field that is missing or nil has
its zero value; unknown fields are skipped; a field of the wrong type makes the whole message wrong, as with the Go decoders.
"""

from __future__ import annotations

from typing import Final

import msgpack  # type: ignore[import-untyped]

from federation.gossip.errors import WireError

UINT8_MAX: Final = 0xFF
UINT16_MAX: Final = 0xFFFF
UINT32_MAX: Final = 0xFFFFFFFF
INT64_MAX: Final = (1 << 63) - 1

# Near to the end of their types incarnations are believed of nobody but the member itself: above the highest one that
# anybody may be accused of there is room for refutations (section 6.6).
ACCUSED_INCARNATION_MAX: Final = UINT32_MAX - (1 << 20)

# Lamport times are taken up to the end; but above the second bound no clock follows them. Otherwise one forged message
# would take all clocks to the end, and no intent after it could be told.
LAMPORT_TIME_MAX: Final = INT64_MAX
WITNESSED_TIME_MAX: Final = INT64_MAX - (1 << 40)
# Nor is a member's leave believed near to the end: above it there is room for the join that refutes it.
LEAVE_TIME_MAX: Final = INT64_MAX - (1 << 20)

NAME_BYTES_MAX: Final = 255
STREAM_ELEMENTS_MAX: Final = 64
"""Of one map or array outside of Serf's state: more than any header or node has fields."""

Fields = dict[bytes, object]


def encode(value: object) -> bytes:
    """msgpack of the old specification: no str8, no bin. The caller gives maps in ascending order of the keys."""
    data: bytes = msgpack.packb(value, use_bin_type=False)
    return data


def decode(data: bytes) -> object:
    """One object that is the whole of `data`; strings and binary as bytes."""
    value, end = _unpack_first(data)
    if end != len(data):
        raise WireError("body is not msgpack: bytes follow it")
    return value


def decode_prefix(data: bytes) -> tuple[object, bytes]:
    """The object at the start of `data` and the bytes behind it."""
    value, end = _unpack_first(data)
    return value, data[end:]


def _unpack_first(data: bytes) -> tuple[object, int]:
    """The object at the start of `data` and where it ends.

    It is walked over before it is built: the library makes room for all elements that an array claims, so a thousand nested
    arrays that claim thousands each would cost 80 MB and 70 ms before their end turned out to be missing.
    """
    unpacker = msgpack.Unpacker(raw=True, strict_map_key=False, max_buffer_size=max(1, len(data)))
    try:
        unpacker.feed(data)
        unpacker.skip()
        end: int = unpacker.tell()
        value: object = msgpack.unpackb(data[:end], raw=True, strict_map_key=False)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        # TypeError: a map key that is itself a map or array
        raise WireError(f"body is not msgpack: {type(error).__name__}") from None
    return value, end


def new_unpacker(size_max: int) -> msgpack.Unpacker:
    """For streams, whose objects are built while they arrive: only arrays and maps as short as in headers and nodes."""
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
    if isinstance(value, list):  # []uint8 as an array of integers also decodes
        try:
            return bytes(value)
        except (TypeError, ValueError):
            raise WireError(f"{key!r} is not binary") from None
    raise WireError(f"{key!r} is not binary")


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


def map_field(fields: Fields, key: bytes) -> Fields:
    value = fields.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise WireError(f"{key!r} is not a map")
    return value
