"""Streams: messages come back from any pieces; invalid ones are refused, endless ones are stopped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.errors import WireError
from federation.gossip.lzw import compress
from federation.gossip.members import MEMBERS_MAX
from federation.gossip.messages import (
    OUR_VERSIONS,
    Alive,
    Nack,
    PushPull,
    PushPullNode,
    encode_error,
)
from federation.gossip.msgpack_fields import encode
from federation.gossip.sealing import StreamRefused
from federation.gossip.streams import SLICE_BYTES, SLICE_NODES, STATE_BYTES_MAX, STREAM_BYTES_MAX, StreamDecoder

NACK = Nack(5).encode()


def compressed(message: bytes) -> bytes:
    return b"\x09" + encode({"Algo": 0, "Buf": compress(message)})


def receive_all(decoder: StreamDecoder, data: bytes) -> None:
    decoder.receive_data(data)
    while decoder.is_behind:
        decoder.receive_data()


NODES = [PushPullNode(f"node{n}", bytes((10, 0, 0, n)), 8902, b"\xff\x80", n, n % 4, OUR_VERSIONS) for n in range(9)]


STATE = PushPull(True, NODES, b"\x02serf")


@given(st.lists(st.integers(1, 200), min_size=1), st.booleans())
def test_any_cut_of_a_push_pull(cuts: list[int], packed: bool) -> None:
    data = compressed(STATE.encode()) if packed else STATE.encode()
    decoder = StreamDecoder()
    index = 0
    while index < len(data):
        for cut in cuts:
            assert not decoder.complete or index >= len(data)
            decoder.receive_data(data[index : index + cut])
            index += cut
    assert decoder.complete
    found = decoder.push_pull
    assert found is not None
    assert found.encode() == STATE.encode()


@pytest.mark.parametrize(
    "field",
    [
        {"Name": b"\xff\xfe"},
        {"Name": "x" * 256},
        {"Meta": bytes(513)},
        {"Addr": bytes(5)},
        {"Incarnation": 1 << 32},
        {"Port": -1},
        {"State": 4},
    ],
)
def test_the_valid_nodes_of_a_push_pull_are_kept(field: dict[str, object]) -> None:
    node: dict[str, object] = {"Addr": bytes(4), "Incarnation": 1, "Meta": b"", "Name": "bad", "Port": 1, "State": 0}
    encoded = [node.encode_map() for node in NODES]
    encoded.insert(4, encode(node | {"Vsn": OUR_VERSIONS} | field))
    data = b"\x06" + encode({"Join": True, "Nodes": 10, "UserStateLen": 5}) + b"".join(encoded) + b"\x02serf"
    for stream in (data, compressed(data)):
        decoder = StreamDecoder()
        decoder.receive_data(stream)
        assert decoder.push_pull is not None
        assert decoder.push_pull.encode() == STATE.encode()
        assert decoder.nodes_refused == 1


def test_user_message_and_error_on_a_stream() -> None:
    decoder = StreamDecoder()
    decoder.receive_data(b"\x08" + encode({"UserMsgLen": 10}) + b"serf bytes" + b"and what follows")
    assert decoder.complete
    assert decoder.user_message == b"serf bytes"
    decoder = StreamDecoder()
    decoder.receive_data(compressed(encode_error("no")))
    assert decoder.fields == {b"Error": b"no"}


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"\x04" + Alive(1, "a", bytes(4), 1, b"", OUR_VERSIONS).encode(),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x06\xc1",
        b"\x06" + encode({"Join": True, "Nodes": 1 << 40, "UserStateLen": 0}),
        b"\x06" + encode({"Join": True, "Nodes": 0, "UserStateLen": 1 << 40}),
        b"\x06" + encode({"Join": True, "Nodes": 1, "UserStateLen": 0}) + encode("node"),
        b"\x08" + encode({"UserMsgLen": -1}),
        compressed(compressed(NACK)),
        compressed(STATE.encode()[:-1]),
        b"\x06\xdd\x00\x7f\xff\xff",
        b"\x06\xdf\x00\x3f\xff\xff",
        b"\xf4\x01x",
    ],
)
def test_bad_streams(data: bytes) -> None:
    with pytest.raises(WireError):
        StreamDecoder().receive_data(data)


def test_encrypted_stream_is_named() -> None:
    with pytest.raises(StreamRefused, match="no key"):
        StreamDecoder().receive_data(b"\x0a\x00\x00\x00\x40")


def feed_nodes(decoder: StreamDecoder, size: int) -> None:
    some = NODES[0].encode_map() * 6000
    for _ in range(size // len(some) + 1):
        decoder.receive_data(some)


def test_endless_stream_is_stopped() -> None:
    decoder = StreamDecoder()
    decoder.receive_data(b"\x06" + encode({"Join": False, "Nodes": 1 << 20, "UserStateLen": STATE_BYTES_MAX}))
    with pytest.raises(WireError, match="longer than"):
        feed_nodes(decoder, STREAM_BYTES_MAX)


def test_compressed_stream_that_is_garbage_is_stopped_at_once() -> None:
    decoder = StreamDecoder()
    decoder.receive_data(b"\x09\x82\xa4Algo\x00\xa3Buf\xdb\x7f\xff\xff\xff")
    with pytest.raises(WireError):
        decoder.receive_data(bytes(65536))


@pytest.mark.parametrize(
    "head",
    [
        b"\x80",
        b"\x81\xa4Algo\x00",
        b"\x82\xa4Algo\x01\xa3Buf\xa1x",
        b"\x81\xa3Buf\x90",
        b"\x81\xa1x\xda\x01\x00" + bytes(300),
        b"\xc1",
        b"\x93",
    ],
)
def test_heads_of_compressed_streams(head: bytes) -> None:
    decoder = StreamDecoder()
    with pytest.raises(WireError):
        decoder.receive_data(b"\x09" + head)


def test_compressed_streams_of_any_form() -> None:
    """The keys in another order, unknown ones, and each form of binary."""
    packed = compress(STATE.encode())
    size = len(packed)
    for head in (
        b"\x83\xa4Algo\x00\xa1x\xc0\xa3Buf\xda" + size.to_bytes(2, "big"),
        b"\x82\xa3Buf\xc5" + size.to_bytes(2, "big"),
        b"\xde\x00\x02\xd9\x04Algo\xc0\xc4\x03Buf\xc6" + size.to_bytes(4, "big"),
    ):
        decoder = StreamDecoder()
        for value in b"\x09" + head + packed + b"\xa4Algo\x00":
            decoder.receive_data(bytes((value,)))
        assert decoder.push_pull is not None
        assert decoder.push_pull.encode() == STATE.encode()


@pytest.mark.parametrize("packed", [False, True])
def test_more_nodes_than_the_table_takes_are_passed_over(packed: bool) -> None:
    """memberlist's bound is 1,048,576: the others are of a cluster that this node cannot know whole."""
    count = MEMBERS_MAX + 5000
    node = NODES[1].encode_map()
    data = b"\x06" + encode({"Join": True, "Nodes": count, "UserStateLen": 5}) + node * count + b"\x02serf"
    if packed:
        data = compressed(data)
    decoder = StreamDecoder()
    for at in range(0, len(data), 65536):
        receive_all(decoder, data[at : at + 65536])
    assert decoder.push_pull is not None
    assert (len(decoder.push_pull.nodes), decoder.nodes_refused) == (MEMBERS_MAX, 5000)
    assert decoder.push_pull.user_state == b"\x02serf"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("node", "accepted"), [({"State": 4}, 0), ({}, MEMBERS_MAX)])
def test_refused_nodes_count_as_read_and_one_call_reads_few(packed: bool, node: object, accepted: int) -> None:
    """Small nodes that are refused are packed to a hundredth: some kilobytes bring a million of them."""
    count = MEMBERS_MAX + 5000
    data = b"\x06" + encode({"Join": True, "Nodes": count + 1, "UserStateLen": 5}) + encode(node) * count
    data += NODES[0].encode_map() + b"\x02serf"
    decoder = StreamDecoder()
    decoder.receive_data(compressed(data) if packed else data)
    calls = 1
    while decoder.is_behind:
        decoder.receive_data()
        calls += 1
    assert calls >= count // SLICE_NODES
    assert decoder.push_pull is not None
    assert (len(decoder.push_pull.nodes), decoder.nodes_refused) == (accepted, count + 1 - accepted)
    assert NODES[0].name not in {found.name for found in decoder.push_pull.nodes}
    assert decoder.push_pull.user_state == b"\x02serf"


def test_a_value_of_any_length_is_read_in_slices() -> None:
    """The library goes on where it was, and does not begin the value again."""
    text = "x" * (3 * SLICE_BYTES)
    decoder = StreamDecoder()
    calls = 1
    decoder.receive_data(b"\x06" + encode({"Join": True, "Nodes": 1, "UserStateLen": 0, "Unknown": text, "More": text}))
    while decoder.is_behind:
        decoder.receive_data()
        calls += 1
    assert calls == 7
    decoder.receive_data(NODES[0].encode_map())
    assert decoder.complete


@given(st.binary(max_size=200), st.sampled_from(list(range(14))))
def test_stream_garbage_is_a_wire_error_or_nothing(data: bytes, kind: int) -> None:
    decoder = StreamDecoder()
    try:
        decoder.receive_data(bytes((kind,)) + data)
    except WireError:
        pass
