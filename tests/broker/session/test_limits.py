"""The largest packets that a client may send."""

from __future__ import annotations

import pytest

from broker.codec.reason_codes import PACKET_TOO_LARGE, QUOTA_EXCEEDED
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
