"""Data representation of MQTT [MQTT5 1.5]: variable byte integers, strings, binary data.

`data` is bytes, never a view: one index over bytes is the fastest form both interpreted and compiled.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.errors import MalformedPacket

VARINT_MAX: Final = 268_435_455
STRING_BYTES_MAX: Final = 65_535


def encode_varint(value: int) -> bytes:
    """Variable Byte Integer [MQTT5 1.5.5], shortest form [MQTT-1.5.5-1]."""
    if value < 128:
        assert value >= 0
        return bytes((value,))
    if value < 16_384:
        return bytes((value & 127 | 128, value >> 7))
    if value < 2_097_152:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    assert value <= VARINT_MAX, "a packet of more than 256 MB"
    return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14 & 127 | 128, value >> 21))


def decode_length(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """As `decode_varint`, in any form: a Remaining Length of MQTT 3.1.1 may end with bytes that add nothing."""
    value = 0
    shift = 0
    at = pos
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift == 28:
            raise MalformedPacket("variable byte integer of more than four bytes [MQTT5 1.5.5]")
    return -1, pos


def decode_varint(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """(value, position after it); (-1, pos) when data[pos:end] holds only a part of it."""
    value, at = decode_length(data, pos, end)
    if at > pos + 1 and data[at - 1] == 0:
        raise MalformedPacket("variable byte integer is not in its shortest form [MQTT-1.5.5-1]")
    return value, at


def encode_string(data: bytes) -> bytes:
    """Two-byte length and the bytes: UTF-8 strings and binary data [MQTT5 1.5.4, 1.5.6]."""
    assert len(data) <= STRING_BYTES_MAX
    return len(data).to_bytes(2, "big") + data


def decode_binary(data: bytes, pos: int, end: int) -> bytes:
    """Binary data at `pos`; the next field is at pos + 2 + len(result)."""
    start = pos + 2
    if start > end:
        raise MalformedPacket("packet ends inside a two-byte length")
    stop = start + (data[pos] << 8) + data[pos + 1]
    if stop > end:
        raise MalformedPacket(f"field of {stop - start} bytes in a packet that has {end - start} left")
    return data[start:stop]


def decode_string(data: bytes, pos: int, end: int) -> bytes:
    """As decode_binary, checked as UTF-8 [MQTT5 1.5.4]."""
    text = decode_binary(data, pos, end)
    check_utf8(text)
    return text


def decode_uint16(data: bytes, pos: int, end: int) -> int:
    if pos + 2 > end:
        raise MalformedPacket("packet ends inside a two-byte integer")
    return data[pos] << 8 | data[pos + 1]


def decode_uint32(data: bytes, pos: int, end: int) -> int:
    if pos + 4 > end:
        raise MalformedPacket("packet ends inside a four-byte integer")
    return data[pos] << 24 | data[pos + 1] << 16 | data[pos + 2] << 8 | data[pos + 3]


def check_utf8(data: bytes) -> None:
    """Refuse ill-formed UTF-8, surrogates [MQTT-1.5.4-1] and U+0000 [MQTT-1.5.4-2]."""
    if 0 in data:  # `in` with an int costs a fifth of `in` with b"\0"
        raise MalformedPacket("string contains U+0000 [MQTT-1.5.4-2]")
    if not data.isascii():
        try:
            data.decode()  # the strict codec refuses surrogates too
        except UnicodeDecodeError:
            raise MalformedPacket("string is not well-formed UTF-8 [MQTT-1.5.4-1]") from None
