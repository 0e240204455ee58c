"""Packets of messages in a stream of bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec.packets import Packet, PingReq, PubAck, PubComp, Publish, PubRec, PubRel, SubAck
from broker.codec.writer import encode_packet
from broker.errors import MalformedPacket
from federation.links.flow import LENGTH_UNKNOWN, flow_end, packet_end

FLOW: list[Packet] = [
    Publish(b"a", b"x"),
    Publish(b"a/b", b"y" * 300, 1, packet_id=7),
    PubAck(7),
    PubRec(7, 0x10),
    PubRel(7),
    PubComp(7),
]
OTHERS: list[Packet] = [PingReq(), SubAck(1, [0])]


@given(st.lists(st.sampled_from([*FLOW, *OTHERS])), st.integers(0, 400))
def test_the_flow_ends_before_another_packet_and_before_a_part_of_one(packets: list[Packet], cut: int) -> None:
    encoded = [encode_packet(packet, 5) for packet in packets]
    data = b"".join(encoded)
    data = data[: len(data) - cut] if cut <= len(data) else b""
    expected = 0
    for packet, part in zip(packets, encoded, strict=True):
        if packet in OTHERS or expected + len(part) > len(data):
            break
        expected += len(part)
    assert flow_end(data, 0, len(data)) == expected


@given(st.sampled_from([*FLOW, *OTHERS]), st.binary(max_size=3))
def test_the_end_of_a_packet_is_known_when_its_length_is(packet: Packet, before: bytes) -> None:
    data = before + encode_packet(packet, 5)
    assert packet_end(data, len(before), len(data)) == len(data)
    assert packet_end(data, len(before), len(before) + 1) == LENGTH_UNKNOWN


def test_a_length_of_five_bytes_is_malformed() -> None:
    with pytest.raises(MalformedPacket):
        packet_end(b"\x30\xff\xff\xff\xff\x01", 0, 6)
