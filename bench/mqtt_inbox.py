"""Packets of a raw socket, as they come."""

from __future__ import annotations

import select
import struct
from typing import Final

from mqtt_transports import Stream

PUBLISH: Final = 3
SUBACK: Final = 9


class Inbox:
    """`closed`: the broker has closed the connection."""

    def __init__(self, stream: Stream) -> None:
        self.closed = False
        self._stream = stream
        self._rest = b""

    def packets(self, seconds: float) -> list[tuple[int, bytes]]:
        """(type, body) of the packets that are here, or come first within `seconds`."""
        ready, _, _ = select.select([self._stream], [], [], seconds)
        if not ready:
            return []
        data = self._stream.recv(262144)
        if not data:
            self.closed = True
            return []
        data = self._rest + data
        found = []
        at = 0
        while (body := whole_packet(data, at)) is not None:
            begin, end = body
            found.append((data[at] >> 4, data[begin:end]))
            at = end
        self._rest = data[at:]
        return found


def whole_packet(data: bytes, at: int) -> tuple[int, int] | None:
    """Return where the body of the packet begins and ends; None when some of it is missing."""
    length = 0
    for index in range(4):
        if at + 1 + index >= len(data):
            return None
        byte = data[at + 1 + index]
        length |= (byte & 0x7F) << 7 * index
        if not byte & 0x80:
            body_at = at + 2 + index
            return (body_at, body_at + length) if body_at + length <= len(data) else None
    raise SystemExit("the broker sends a length of more than four bytes")


def topic_and_payload(body: bytes) -> tuple[str, bytes]:
    """Of a PUBLISH of QoS 0 and MQTT 3.1.1."""
    (length,) = struct.unpack_from("!H", body)
    return body[2 : 2 + length].decode(), body[2 + length :]
