"""The layers of a datagram: label, encryption, CRC, compression, compound, then single messages (wire-gossip 3)."""

from __future__ import annotations

import zlib
from typing import Final

from federation.gossip.counters import Counters, DropReason
from federation.gossip.errors import WireError
from federation.gossip.lzw import compress, decompress
from federation.gossip.messages import COMPOUND, COMPRESS, HAS_CRC
from federation.gossip.msgpack_fields import UINT8_MAX, Fields, bytes_field, decode_fields, encode, uint_field
from federation.gossip.sealing import PLAIN, Sealing

NESTING_MAX: Final = 4
"""Compounds and compressed parts inside each other."""
PACKET_PARTS_MAX: Final = 1024
"""Messages taken out of one datagram, in all nested compounds together."""
PACKET_DECOMPRESSED_MAX: Final = 65_536
"""Decompressed bytes of all compressed parts of one datagram together."""
COMPOUND_PARTS_MAX: Final = 127
"""memberlist 0.2.2 misreads a compound of more parts (wire-gossip 3.2)."""
COMPOUND_OVERHEAD: Final = 2
PART_OVERHEAD: Final = 2

COMPRESSED_BYTES_MIN: Final = 256
"""Pings, and acks with a coordinate, hardly get shorter."""
COMPRESSED_BYTES_MAX: Final = 65_536
"""Compressing this much blocks the node for some 8 ms."""

_CRC_BYTES: Final = 5
_COMPRESS: Final = bytes((COMPRESS,))


def open_packet(data: bytes, counters: Counters, sealing: Sealing = PLAIN) -> list[bytes]:
    """The messages of one datagram, each with its type byte. Undecodable parts are dropped and counted."""
    opened = _Opened(counters)
    messages = opened.messages
    data = sealing.open_packet(data, counters)
    if not data:
        return messages
    if data[0] == HAS_CRC and len(data) >= _CRC_BYTES:
        if zlib.crc32(data[_CRC_BYTES:]) != int.from_bytes(data[1:_CRC_BYTES], "big"):
            counters.drop(DropReason.CRC_MISMATCH)
            return messages
        data = data[_CRC_BYTES:]
    try:
        _unwrap(data, 0, opened)
    except WireError:
        counters.drop(DropReason.MALFORMED_PACKET)
    return messages


class _Opened:
    """The messages found in one datagram so far. `room`: bytes that may still be decompressed."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.messages: list[bytes] = []
        self.room = PACKET_DECOMPRESSED_MAX


def _unwrap(data: bytes, depth: int, opened: _Opened) -> None:
    if not data:
        raise WireError("empty message")
    kind = data[0]
    if kind == COMPOUND:
        if depth >= NESTING_MAX:
            raise WireError("messages are nested too deeply")
        _split_compound(data, depth, opened)
    elif kind == COMPRESS:
        if depth >= NESTING_MAX:
            raise WireError("messages are nested too deeply")
        # One bound covers all parts: with a bound for each part a datagram could block the node for 0.15 s. A part that
        # fails to decompress uses up the room, because its work was done.
        room = opened.room
        opened.room = 0
        inner = decompress_body(decode_fields(data[1:]), room)
        opened.room = room - len(inner)
        _unwrap(inner, depth + 1, opened)
    else:
        opened.messages.append(data)


def _split_compound(data: bytes, depth: int, opened: _Opened) -> None:
    """Split `07 | count | count x length u16 | messages`.

    Complete leading parts are kept; a truncated rest raises WireError. An invalid part does not affect the other parts."""
    if len(data) < COMPOUND_OVERHEAD:
        raise WireError("compound without a count")
    count = data[1]
    lengths_at = COMPOUND_OVERHEAD
    index = lengths_at + count * PART_OVERHEAD
    if len(data) < index:
        raise WireError("compound is shorter than its lengths")
    for part in range(count):
        at = lengths_at + part * PART_OVERHEAD
        length = data[at] << 8 | data[at + 1]
        if index + length > len(data):
            raise WireError("compound is shorter than its parts")
        if len(opened.messages) >= PACKET_PARTS_MAX:
            raise WireError(f"more than {PACKET_PARTS_MAX} messages in one packet")
        try:
            _unwrap(data[index : index + length], depth + 1, opened)
        except WireError:
            opened.counters.drop(DropReason.MALFORMED_PACKET)
        index += length


def decompress_body(fields: Fields, size_max: int) -> bytes:
    """The message inside a compress body {Algo, Buf}."""
    if uint_field(fields, b"Algo", UINT8_MAX) != 0:
        raise WireError("compressed with an algorithm that is not LZW")
    return decompress(bytes_field(fields, b"Buf"), size_max)


def compressed(message: bytes) -> bytes:
    """The message in a compress message, where that is shorter; short and very long messages unchanged."""
    if not COMPRESSED_BYTES_MIN <= len(message) <= COMPRESSED_BYTES_MAX:
        return message
    packed = _COMPRESS + encode({"Algo": 0, "Buf": compress(message)})
    return packed if len(packed) < len(message) else message


def make_compound(messages: list[bytes]) -> bytes:
    """One message unchanged; several as a compound."""
    assert 0 < len(messages) <= COMPOUND_PARTS_MAX
    if len(messages) == 1:
        return messages[0]
    head = bytearray((COMPOUND, len(messages)))
    for message in messages:
        head += len(message).to_bytes(2, "big")
    return bytes(head) + b"".join(messages)


def add_crc(data: bytes) -> bytes:
    return b"\x0c" + zlib.crc32(data).to_bytes(4, "big") + data
