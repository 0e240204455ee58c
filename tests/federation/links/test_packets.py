"""Messages with other topics on the other side of a link."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec.packets import Packet, PingReq, PubAck, PubComp, Publish, PubRec, PubRel, SubAck
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet
from broker.errors import MalformedPacket
from federation.links.packets import LENGTH_UNKNOWN, NAMES_MAX, Passage, Rewriter, TopicRule, packet_end

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
def test_a_passage_ends_before_another_packet_and_before_a_part_of_one(packets: list[Packet], cut: int) -> None:
    encoded = [encode_packet(packet, 5) for packet in packets]
    data = b"".join(encoded)
    data = data[: len(data) - cut] if cut <= len(data) else b""
    expected = 0
    for packet, part in zip(packets, encoded, strict=True):
        if packet in OTHERS or expected + len(part) > len(data):
            break
        expected += len(part)
    passage = Passage()
    assert passage.walk(data, 0, len(data)) == expected
    assert passage.take() == data[:expected]
    found = PacketReader().receive_data(data[:expected])
    assert (passage.packets, passage.published) == (len(found), sum(isinstance(each, Publish) for each in found))


def test_refusals_of_the_other_side_are_counted() -> None:
    packets = [PubAck(1), PubAck(2, 0x87), PubAck(3, 0x10), PubAck(4, 0x87)]
    data = b"".join(encode_packet(packet, 5) for packet in packets)
    passage = Passage()
    passage.walk(data, 0, len(data))
    assert passage.refused == {0x87: 2}


@given(st.sampled_from([*FLOW, *OTHERS]), st.binary(max_size=3))
def test_the_end_of_a_packet_is_known_when_its_length_is(packet: Packet, before: bytes) -> None:
    data = before + encode_packet(packet, 5)
    assert packet_end(data, len(before), len(data)) == len(data)
    assert packet_end(data, len(before), len(before) + 1) == LENGTH_UNKNOWN


def test_a_length_of_five_bytes_is_malformed() -> None:
    with pytest.raises(MalformedPacket):
        packet_end(b"\x30\xff\xff\xff\xff\x01", 0, 6)


NAMES: dict[bytes, bytes | None] = {
    b"same": b"same",
    b"a": b"from/north/" + b"a" * 200,
    b"eu/long/name": b"x",
    b"no": None,
}


def rewritten(rewriter: Rewriter, data: bytes) -> tuple[bytes, bytes]:
    assert rewriter.walk(data, 0, len(data)) == len(data)
    return rewriter.take(), rewriter.take_acks()


class Table(TopicRule):
    def other_name(self, topic: bytes) -> bytes | None:
        return NAMES.get(topic, topic)


packets = st.one_of(
    st.builds(
        lambda topic, payload, qos, number, block: Publish(
            topic, payload, qos, packet_id=number if qos else 0, properties=block
        ),
        st.sampled_from(sorted(NAMES)),
        st.binary(max_size=200),
        st.integers(0, 1),
        st.integers(1, 65535),
        st.sampled_from([b"", b"\x01\x01", b"\x26\0\1a\0\1b"]),
    ),
    st.sampled_from([PubAck(3), PubComp(9)]),
)


@given(st.lists(packets, max_size=8))
def test_messages_get_their_names_and_dropped_ones_are_acknowledged(sent: list[Packet]) -> None:
    rewriter = Rewriter(Table(), 0)
    data, acks = rewritten(rewriter, b"".join(encode_packet(packet, 5) for packet in sent))
    expected: list[Packet] = []
    answers: list[Packet] = []
    for packet in sent:
        if not isinstance(packet, Publish):
            expected.append(packet)
            continue
        name = NAMES[packet.topic]
        if name is not None:
            packet.topic = name
            expected.append(packet)
        elif packet.qos:
            answers.append(PubAck(packet.packet_id))
    assert PacketReader().receive_data(data) == expected
    assert PacketReader().receive_data(acks) == answers
    assert rewriter.dropped == len(sent) - len(expected)
    assert rewriter.published == sum(isinstance(packet, Publish) for packet in expected)


@pytest.mark.parametrize(
    "packet", ["320300057a", "300300057a", "320300017a", "300500017a0102", "300800017affffffff01", "320700026e6f000000"]
)
def test_packets_that_the_broker_refuses_pass_as_they_are(packet: str) -> None:
    data = bytes.fromhex(packet)
    rewriter = Rewriter(Table(), 0)
    assert rewritten(rewriter, data) == (data, b"")


def test_bytes_that_need_no_change_are_the_same_object() -> None:
    data = encode_packet(Publish(b"same", b"x"), 5) * 3
    assert rewritten(Rewriter(Table(), 0), data)[0] is data


def test_the_memory_of_names_is_bounded() -> None:
    rewriter = Rewriter(Table(), 0)
    for number in range(NAMES_MAX + 10):
        rewritten(rewriter, encode_packet(Publish(b"t%d" % number, b""), 5))
    assert rewritten(rewriter, encode_packet(Publish(b"a", b""), 5))[0] != b""


@pytest.mark.parametrize("cut", [b"\x30\x00", b"\x30\x01\x00", b"\x32\x02\x00\x05"])
def test_a_packet_without_a_whole_topic_is_passed_on_as_it_came(cut: bytes) -> None:
    assert rewritten(Rewriter(Table(), 0), cut) == (cut, b"")


def test_a_message_that_its_new_name_makes_too_large_does_not_cross() -> None:
    fits, too_large = (encode_packet(Publish(b"a", b"x" * count, 1, packet_id=count), 4) for count in (93, 94))
    rewriter = Rewriter(Table(), 311)
    data, acks = rewritten(rewriter, fits + too_large)
    assert (len(data), rewriter.dropped) == (311, 1)
    assert PacketReader(4).receive_data(acks) == [PubAck(94)]
