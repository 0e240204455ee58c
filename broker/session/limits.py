"""The largest packets that a client may send."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.codec.packets import PUBLISH
from broker.codec.reason_codes import PACKET_TOO_LARGE, QUOTA_EXCEEDED
from broker.errors import MqttError

CONNECT_BYTES_MAX: Final = 512 * 1024  # the client is not authenticated yet; a will and properties fit
# Any packet but CONNECT and PUBLISH. Its filters and properties become objects that take many times its size.
CONTROL_BYTES_MAX: Final = 1024 * 1024


def check_packet_size(first: int, packet_size: int, version: int, limit: int) -> None:
    """Raise MqttError for a packet that is too large for its type. Sizes are in bytes, with the fixed header.

    first    the first byte of the packet
    version  of the client, 0 before CONNACK
    limit    the server's Maximum Packet Size [MQTT5 3.2.2.3.6]
    """
    if version == 0 and limit > CONNECT_BYTES_MAX:
        limit = CONNECT_BYTES_MAX
    if packet_size > limit:
        raise MqttError(PACKET_TOO_LARGE, f"packet of {packet_size} bytes, at most {limit} are accepted")
    if packet_size > CONTROL_BYTES_MAX and first >> 4 != PUBLISH:
        raise MqttError(
            QUOTA_EXCEEDED,
            f"packet of type {first >> 4} with {packet_size} bytes, at most {CONTROL_BYTES_MAX} are read; "
            "send many topic filters in several packets",
        )
