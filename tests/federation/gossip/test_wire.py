"""Layers of datagrams: what is built comes back; garbage is dropped and counted."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.gossip import wire
from federation.gossip.counters import Counters, DropReason
from federation.gossip.lzw import compress
from federation.gossip.messages import (
    Nack,
    Ping,
)
from federation.gossip.msgpack_fields import encode
from federation.gossip.wire import PACKET_DECOMPRESSED_MAX, add_crc, make_compound, open_packet

NACK = Nack(5).encode()


PING = Ping(1, "a", b"\x7f\x00\x00\x01", 17947, "b").encode()


def compressed(message: bytes) -> bytes:
    return b"\x09" + encode({"Algo": 0, "Buf": compress(message)})


@pytest.mark.parametrize(
    ("packet", "messages"),
    [
        (NACK, [NACK]),
        (add_crc(NACK), [NACK]),
        (make_compound([NACK, PING]), [NACK, PING]),
        (add_crc(compressed(make_compound([PING, NACK, NACK]))), [PING, NACK, NACK]),
        (make_compound([make_compound([NACK, PING]), compressed(NACK)]), [NACK, PING, NACK]),
    ],
)
def test_layers(packet: bytes, messages: list[bytes]) -> None:
    counters = Counters()
    assert open_packet(packet, counters) == messages
    assert counters.drops == 0


def nested(depth: int) -> bytes:
    packet = NACK
    for _ in range(depth):
        packet = compressed(packet)
    return packet


@pytest.mark.parametrize(
    ("packet", "messages", "reason"),
    [
        (b"", [], DropReason.MALFORMED_PACKET),
        (b"\x0c" + bytes(4) + NACK, [], DropReason.CRC_MISMATCH),
        (b"\xf4\x01x" + NACK, [], DropReason.WRONG_LABEL),
        (b"\x01" + bytes(60), [], DropReason.ENCRYPTED),
        (b"\x07", [], DropReason.MALFORMED_PACKET),
        (b"\x07\x02\x00", [], DropReason.MALFORMED_PACKET),
        # cut off: the complete leading part is handled
        (make_compound([NACK, PING])[:-1], [NACK], DropReason.MALFORMED_PACKET),
        # one broken part does not harm the others
        (make_compound([b"\x09\xff", NACK]), [NACK], DropReason.MALFORMED_PACKET),
        (make_compound([b"", NACK]), [NACK], DropReason.MALFORMED_PACKET),
        (b"\x09" + encode({"Algo": 1, "Buf": b"x"}), [], DropReason.MALFORMED_PACKET),
        (b"\x09" + encode([1]), [], DropReason.MALFORMED_PACKET),
        (compressed(bytes(PACKET_DECOMPRESSED_MAX + 1)), [], DropReason.MALFORMED_PACKET),
        (nested(5), [], DropReason.MALFORMED_PACKET),
    ],
)
def test_bad_packets_are_counted(packet: bytes, messages: list[bytes], reason: DropReason) -> None:
    counters = Counters()
    assert open_packet(packet, counters) == messages
    assert counters.dropped[reason] == 1
    assert counters.drops == 1


def test_messages_of_one_packet_are_bounded() -> None:
    tiny = make_compound([NACK] * 100)
    packet = make_compound([tiny] * 20)
    counters = Counters()
    assert len(open_packet(packet, counters)) == 1024
    assert counters.dropped[DropReason.MALFORMED_PACKET] > 0


def test_all_parts_of_one_packet_share_the_room_for_decompressed_bytes() -> None:
    # Each part would fit; together they would be 65 MB.
    half = compressed(bytes(PACKET_DECOMPRESSED_MAX // 2))
    inner = compressed(make_compound([half] * 100))
    counters = Counters()
    messages = open_packet(make_compound([NACK, half, *[inner] * 20]), counters)
    assert [len(message) for message in messages] == [len(NACK), PACKET_DECOMPRESSED_MAX // 2]
    assert counters.dropped[DropReason.MALFORMED_PACKET] == 100 + 19


@given(st.binary(max_size=300), st.sampled_from([b"", b"\x07", b"\x09", b"\x0c", b"\x07\x03", b"\x09\x82"]))
def test_garbage_never_raises(data: bytes, start: bytes) -> None:
    open_packet(start + data, Counters())
    open_packet(b"\x0c" + zlib.crc32(data).to_bytes(4, "big") + data, Counters())


@pytest.mark.parametrize(
    ("message", "shorter"),
    [(PING, False), (bytes(255), False), (bytes(256), True), (bytes(65_536), True), (bytes(65_537), False)],
)
def test_what_is_compressed(message: bytes, shorter: bool) -> None:
    found = wire.compressed(message)
    assert (len(found) < len(message), found == message) == (shorter, not shorter)


@given(st.binary(min_size=256, max_size=600) | st.text("ab", min_size=256, max_size=600).map(str.encode))
def test_compressed_messages_come_back(body: bytes) -> None:
    message = b"\x08" + body
    found = wire.compressed(message)
    assert len(found) <= len(message)
    assert open_packet(found, Counters()) == [message]
