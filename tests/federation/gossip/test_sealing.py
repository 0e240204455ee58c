"""Label and encryption around packets and streams: what one node sends another one of the cluster opens, nobody else."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.counters import Counters, DropReason
from federation.gossip.errors import WireError
from federation.gossip.keyring import Keyring
from federation.gossip.messages import OUR_VERSIONS, Nack, Ping, PushPull, PushPullNode
from federation.gossip.sealing import PLAIN, Sealing, StreamRefused
from federation.gossip.streams import SEALED_BYTES_MAX, StreamDecoder
from federation.gossip.wire import open_packet

PING = Ping(1, "a", b"\x7f\x00\x00\x01", 17947, "b").encode()
STATE = PushPull(True, [PushPullNode("a", bytes(4), 1, b"", 1, 0, OUR_VERSIONS)], b"\x02serf").encode()
A, B = bytes(16), b"b" * 32


def sealing(*keys: bytes, label: str = "", incoming: bool = True, outgoing: bool = True) -> Sealing:
    return Sealing(Keyring(keys, Random(1)) if keys else None, label, incoming, outgoing)


labels = st.text(max_size=60)
members = st.tuples(st.sampled_from([(), (A,), (B,), (A, B), (B, A)]), labels)


@given(members)
def test_a_member_opens_what_another_one_sends(member: tuple[tuple[bytes, ...], str]) -> None:
    keys, label = member
    sender, receiver = sealing(*keys, label=label), sealing(*reversed(keys), label=label)
    packet = sender.seal_packet(PING)
    assert len(packet) == len(PING) + sender.overhead
    counters = Counters()
    assert open_packet(packet, counters, receiver) == [PING]
    assert counters.drops == 0
    for data, is_answer in ((sender.seal_request(STATE), False), (sender.seal_answer(STATE), True)):
        decoder = StreamDecoder(receiver, is_answer)
        for at in range(len(data)):
            assert not decoder.complete
            decoder.receive_data(data[at : at + 1])
        assert decoder.push_pull is not None
        assert decoder.push_pull.encode() == STATE


def receive_all(decoder: StreamDecoder, pieces: list[bytes]) -> None:
    for piece in pieces:
        decoder.receive_data(piece)


# What a sender seals -> what a receiver counts.
REFUSED = [
    (sealing(A), PLAIN, DropReason.ENCRYPTED),
    (PLAIN, sealing(A), DropReason.PLAIN),
    (sealing(A, outgoing=False), sealing(A), DropReason.PLAIN),
    (sealing(A), sealing(B), DropReason.WRONG_KEY),
    (sealing(A), sealing(B, incoming=False), DropReason.WRONG_KEY),
    (sealing(A, label="x"), sealing(A), DropReason.WRONG_LABEL),
    (sealing(A), sealing(A, label="x"), DropReason.WRONG_LABEL),
    (sealing(A, label="xy"), sealing(A, label="x"), DropReason.WRONG_LABEL),
    (sealing(label="y"), sealing(label="x"), DropReason.WRONG_LABEL),
    (PLAIN, sealing(label="x"), DropReason.WRONG_LABEL),
]


@pytest.mark.parametrize(("sender", "receiver", "reason"), REFUSED)
def test_who_does_not_belong_to_the_cluster_is_counted(sender: Sealing, receiver: Sealing, reason: DropReason) -> None:
    counters = Counters()
    assert open_packet(sender.seal_packet(PING), counters, receiver) == []
    assert (counters.dropped[reason], counters.drops) == (1, 1)
    data = sender.seal_request(STATE)
    for size in (1, len(data)):
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        with pytest.raises(StreamRefused) as refused:
            receive_all(StreamDecoder(receiver), pieces)
        assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("sender", "receiver"),
    [
        (PLAIN, sealing(A, incoming=False)),
        (sealing(A, outgoing=False), PLAIN),
        (sealing(A, incoming=False, outgoing=False), PLAIN),
        (sealing(A, incoming=False, outgoing=False), sealing(A, incoming=False)),
        (sealing(A), sealing(A, incoming=False, outgoing=False)),
    ],
)
def test_the_way_of_a_plain_cluster_to_an_encrypted_one(sender: Sealing, receiver: Sealing) -> None:
    """Every pair of neighbouring steps: no key, key with both false, outgoing true, incoming true."""
    counters = Counters()
    assert open_packet(sender.seal_packet(PING), counters, receiver) == [PING]
    assert counters.drops == 0
    decoder = StreamDecoder(receiver)
    decoder.receive_data(sender.seal_request(STATE))
    assert decoder.complete


def test_a_label_is_authenticated() -> None:
    """A packet of one cluster does not become one of another cluster by another header."""
    packet = sealing(A, label="one").seal_packet(PING)
    counters = Counters()
    assert open_packet(b"\xf4\x03two" + packet[5:], counters, sealing(A, label="two")) == []
    assert counters.dropped[DropReason.WRONG_KEY] == 1
    stream = sealing(A, label="one").seal_request(STATE)
    with pytest.raises(StreamRefused) as refused:
        StreamDecoder(sealing(A, label="two")).receive_data(b"\xf4\x03two" + stream[5:])
    assert refused.value.reason == DropReason.WRONG_KEY


@pytest.mark.parametrize("label", ["", "x"])
@pytest.mark.parametrize("header", [b"\xf4", b"\xf4\x00", b"\xf4\x02x", b"\xf4\xff"])
def test_headers_of_labels_that_are_cut_off_or_empty(header: bytes, label: str) -> None:
    for receiver in (sealing(A, label=label), sealing(label=label)):
        counters = Counters()
        assert open_packet(header, counters, receiver) == []
        assert counters.dropped[DropReason.WRONG_LABEL] == 1
        if (header, label) == (b"\xf4", "x"):
            StreamDecoder(receiver).receive_data(header)  # the rest may follow
            continue
        with pytest.raises(StreamRefused) as refused:
            StreamDecoder(receiver).receive_data(header)
        assert refused.value.reason == DropReason.WRONG_LABEL


def test_labels_that_are_too_long() -> None:
    Sealing(label="ä" * 127)
    with pytest.raises(ValueError, match="256 bytes"):
        Sealing(label="ä" * 128)


@pytest.mark.parametrize("message", [Nack(5).encode(), PING])
@pytest.mark.parametrize("label", ["", "x"])
def test_packets_cut_off_at_each_byte(message: bytes, label: str) -> None:
    receiver = sealing(A, label=label)
    packet = receiver.seal_packet(message)
    for size in range(len(packet)):
        counters = Counters()
        assert open_packet(packet[:size], counters, receiver) == []
        assert counters.drops == 1


def test_streams_cut_off_at_each_byte_are_not_complete() -> None:
    for receiver in (PLAIN, sealing(A), sealing(A, label="x")):
        stream = receiver.seal_request(STATE)
        for size in range(len(stream)):
            decoder = StreamDecoder(receiver)
            decoder.receive_data(stream[:size])
            assert not decoder.complete


def test_nothing_inside() -> None:
    receiver = sealing(A)
    counters = Counters()
    assert open_packet(receiver.seal_packet(b""), counters, receiver) == []
    assert counters.dropped[DropReason.MALFORMED_PACKET] == 1
    assert receiver.keyring is not None
    header = b"\x0a\x00\x00\x00\x1d"
    with pytest.raises(WireError, match="empty"):
        StreamDecoder(receiver).receive_data(header + receiver.keyring.seal(b"", header))


def test_the_length_of_a_block_is_refused_before_it_comes() -> None:
    with pytest.raises(WireError, match="longer than"):
        StreamDecoder(sealing(A)).receive_data(b"\x0a" + (SEALED_BYTES_MAX + 1).to_bytes(4, "big"))


@given(st.binary(max_size=300), st.sampled_from([b"", b"\x00", b"\x01", b"\xf4\x01x", b"\xf4\x01x\x01", b"\x0a"]))
def test_garbage_never_raises_anything_else(data: bytes, start: bytes) -> None:
    for receiver in (PLAIN, sealing(A), sealing(A, B, label="x"), sealing(A, incoming=False)):
        open_packet(start + data, Counters(), receiver)
        for is_answer in (False, True):
            try:
                StreamDecoder(receiver, is_answer).receive_data(start + data)
            except WireError:
                pass
