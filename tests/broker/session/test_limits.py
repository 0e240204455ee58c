"""The largest packets that a client may send."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec.reader import PUBLISH_PROPERTIES_BYTES_MAX
from broker.codec.reason_codes import PACKET_TOO_LARGE, QUOTA_EXCEEDED
from broker.codec.wire import encode_varint
from broker.errors import MqttError
from broker.session.limits import CONNECT_BYTES_MAX, CONTROL_BYTES_MAX, check_packet_size

LIMIT = 2**28


@pytest.mark.parametrize(
    ("name", "first", "version", "limit", "largest", "reason_code"),
    [
        ("CONNECT", 0x10, 0, LIMIT, CONNECT_BYTES_MAX, PACKET_TOO_LARGE),
        ("CONNECT, lower limit", 0x10, 0, 1000, 1000, PACKET_TOO_LARGE),
        ("PUBLISH", 0x30, 4, LIMIT, LIMIT, PACKET_TOO_LARGE),
        ("PUBLISH with all flags", 0x3D, 5, LIMIT, LIMIT, PACKET_TOO_LARGE),
        ("PUBLISH, lower limit", 0x32, 5, 1000, 1000, PACKET_TOO_LARGE),
        ("SUBSCRIBE", 0x82, 4, LIMIT, CONTROL_BYTES_MAX, QUOTA_EXCEEDED),
        ("SUBSCRIBE, lower limit", 0x82, 5, 1000, 1000, PACKET_TOO_LARGE),
        ("PUBACK", 0x40, 5, LIMIT, CONTROL_BYTES_MAX, QUOTA_EXCEEDED),
    ],
)
def test_the_largest_packet(name: str, first: int, version: int, limit: int, largest: int, reason_code: int) -> None:
    check_packet_size(first, largest, version, limit)
    with pytest.raises(MqttError, match=f"{largest + 1}.*{largest}") as error:
        check_packet_size(first, largest + 1, version, limit)
    assert error.value.reason_code == reason_code, name


def test_the_largest_properties_of_a_publish(make_world: Any) -> None:
    world = make_world()
    for size, is_closed in ((PUBLISH_PROPERTIES_BYTES_MAX, False), (PUBLISH_PROPERTIES_BYTES_MAX + 5, True)):
        client = world.connect("c", auto=False)
        pair = b"\x26\0\0\0\0"
        name = b"n" * (size % len(pair))
        properties = pair * (size // len(pair) - 1) + b"\x26\0" + bytes([len(name)]) + name + b"\0\0"
        assert len(properties) == size
        body = b"\0\1t" + encode_varint(size) + properties + b"x"
        client.send_bytes(b"\x30" + encode_varint(len(body)) + body)
        assert client.closed is is_closed
    assert client.packets[-1].reason_code == QUOTA_EXCEEDED
