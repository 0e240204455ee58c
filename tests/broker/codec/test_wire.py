"""The data representation: lengths at their limits, cut fields, and strings that MQTT refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.codec.wire import (
    VARINT_MAX,
    check_utf8,
    decode_binary,
    decode_string,
    decode_uint16,
    decode_uint32,
    decode_varint,
    encode_string,
    encode_varint,
)
from broker.errors import MalformedPacket


@pytest.mark.parametrize(
    ("value", "data"),  # [MQTT5 table 1-1]
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2_097_151, "ffff7f"),
        (2_097_152, "80808001"),
        (VARINT_MAX, "ffffff7f"),
    ],
)
def test_varint_limits(value: int, data: str) -> None:
    encoded = bytes.fromhex(data)
    assert encode_varint(value) == encoded
    assert decode_varint(b"?" + encoded + b"?", 1, 1 + len(encoded)) == (value, 1 + len(encoded))
    for size in range(len(encoded)):
        assert decode_varint(encoded, 0, size) == (-1, 0), "a part of it is no fault yet"


@pytest.mark.parametrize("data", ["8000", "ff8000", "80808000", "ffffffff", "80808080"])
def test_varint_faults(data: str) -> None:
    with pytest.raises(MalformedPacket):
        decode_varint(bytes.fromhex(data), 0, 4)


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (decode_binary, ""),
        (decode_binary, "00"),
        (decode_binary, "0001"),
        (decode_binary, "ffff00"),
        (decode_string, "000261"),
        (decode_uint16, "01"),
        (decode_uint32, "010203"),
    ],
)
def test_a_field_beyond_its_packet(decode: Callable[[bytes, int, int], object], data: str) -> None:
    """The bytes of the next packet, here FF, are not read."""
    field = bytes.fromhex(data)
    with pytest.raises(MalformedPacket):
        decode(field + b"\xff" * 8, 0, len(field))


def test_fields_at_a_position() -> None:
    data = b"?\x01\x02\x03\x04?"
    assert decode_uint16(data, 1, 3) == 0x0102
    assert decode_uint32(data, 1, 5) == 0x01020304
    assert decode_binary(b"?\x00\x02ab?", 1, 5) == b"ab"
    assert encode_string("ä".encode()) == b"\x00\x02\xc3\xa4"


@pytest.mark.parametrize(
    "data", [b"", b"abc", "ä\U0001f600".encode(), b"\x01\x7f", "\ufeff".encode(), "\uffff".encode()]
)
def test_good_utf8(data: bytes) -> None:
    check_utf8(data)


@pytest.mark.parametrize(
    ("data", "statement"),
    [
        (b"a\0b", "1.5.4-2"),
        (b"\xff", "1.5.4-1"),
        (b"\xc3", "1.5.4-1"),
        (b"\xc0\x80", "1.5.4-1"),  # U+0000, not in its shortest form
        (b"\xed\xa0\x80", "1.5.4-1"),  # U+D800, a surrogate
        (b"\xf4\x90\x80\x80", "1.5.4-1"),  # above U+10FFFF
    ],
)
def test_bad_utf8(data: bytes, statement: str) -> None:
    with pytest.raises(MalformedPacket, match=statement):
        check_utf8(data)
