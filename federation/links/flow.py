"""The packets of messages in a stream of bytes, found without decoding them.

A link passes PUBLISH and its acknowledgements from one of its two connections to the other as they came. Both connections
have one protocol version, and the link's own packets never carry their packet identifiers.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.codec.packets import PUBCOMP, PUBLISH
from broker.errors import MalformedPacket

LENGTH_UNKNOWN: Final = -1


def packet_end(data: bytes, pos: int, size: int) -> int:
    """Position behind the packet at `pos`, which may be above `size`; LENGTH_UNKNOWN while its length has not come. Raises
    MalformedPacket."""
    at = pos + 1
    remaining = 0
    shift = 0
    while at < size:
        byte = data[at]
        at += 1
        remaining |= (byte & 127) << shift
        if byte < 128:
            return at + remaining
        shift += 7
        if shift > 21:
            raise MalformedPacket("remaining length of more than four bytes [MQTT5 2.1.4]")
    return LENGTH_UNKNOWN


def flow_end(data: bytes, pos: int, size: int) -> int:
    """Position behind the whole packets from PUBLISH to PUBCOMP that follow each other from `pos` on; `pos` without one."""
    while pos < size:
        kind = data[pos] >> 4
        if kind < PUBLISH or kind > PUBCOMP:
            return pos
        end = packet_end(data, pos, size)
        if end == LENGTH_UNKNOWN or end > size:
            return pos
        pos = end
    return pos
