"""Layers of datagrams and streams: what is built comes back, in any cut; garbage only counts drops."""

from __future__ import annotations

import tracemalloc
import zlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.gossip import counters as reasons
from federation.gossip.counters import Counters
from federation.gossip.errors import WireError
from federation.gossip.lzw import compress, decompress
from federation.gossip.messages import (
    OUR_VERSIONS,
    Alive,
    Nack,
    Ping,
    PushPull,
    PushPullNode,
    encode_error,
    encode_user_stream,
)
from federation.gossip.msgpack_fields import decode, encode
from federation.gossip.streams import STREAM_BYTES_MAX, STREAM_COMPRESSED_MAX, StreamDecoder, StreamEncrypted
from federation.gossip.wire import PACKET_DECOMPRESSED_MAX, add_crc, make_compound, open_packet

NACK = Nack(5).encode()
PING = Ping(1, "a", b"\x7f\x00\x00\x01", 17947, "b").encode()


def compressed(message: bytes) -> bytes:
    return b"\x09" + encode({"Algo": 0, "Buf": compress(message)})


def test_small_vectors_of_the_specification() -> None:
    assert PING.hex() == (
        "0085a44e6f6465a161a55365714e6f01aa536f7572636541646472a47f000001aa536f757263654e6f6465a162aa536f75726365506f7274cd461b"
    )


@given(st.binary(max_size=3000))
def test_lzw_gives_back_what_it_got(data: bytes) -> None:
    assert decompress(compress(data), len(data)) == data


@given(st.lists(st.sampled_from([b"a", b"ab", b"\x00", bytes(300)]), max_size=200))
def test_lzw_with_much_repetition(parts: list[bytes]) -> None:
    data = b"".join(parts)
    assert decompress(compress(data), len(data)) == data


def test_lzw_through_full_tables() -> None:
    data = bytes(Random(1).choices(range(7), k=100_000))
    assert decompress(compress(data), len(data)) == data


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x01", b"\xff\xff\xff\xff", b"\x05\x05"])
def test_lzw_garbage(data: bytes) -> None:
    with pytest.raises(WireError):
        decompress(data, 1000)


def test_lzw_bomb_is_stopped() -> None:
    with pytest.raises(WireError, match="grows past 1000 bytes"):
        decompress(compress(bytes(1_000_000)), 1000)


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
        (b"", [], reasons.MALFORMED_PACKET),
        (b"\x0c" + bytes(4) + NACK, [], reasons.CRC_MISMATCH),
        (b"\xf4\x01x" + NACK, [], reasons.LABELLED),
        (b"\x01" + bytes(60), [], reasons.ENCRYPTED),
        (b"\x07", [], reasons.MALFORMED_PACKET),
        (b"\x07\x02\x00", [], reasons.MALFORMED_PACKET),
        # cut off: the complete leading part is handled
        (make_compound([NACK, PING])[:-1], [NACK], reasons.MALFORMED_PACKET),
        # one broken part does not harm the others
        (make_compound([b"\x09\xff", NACK]), [NACK], reasons.MALFORMED_PACKET),
        (make_compound([b"", NACK]), [NACK], reasons.MALFORMED_PACKET),
        (b"\x09" + encode({"Algo": 1, "Buf": b"x"}), [], reasons.MALFORMED_PACKET),
        (b"\x09" + encode([1]), [], reasons.MALFORMED_PACKET),
        (compressed(bytes(PACKET_DECOMPRESSED_MAX + 1)), [], reasons.MALFORMED_PACKET),
        (nested(5), [], reasons.MALFORMED_PACKET),
    ],
)
def test_bad_packets_are_counted(packet: bytes, messages: list[bytes], reason: str) -> None:
    counters = Counters()
    assert open_packet(packet, counters) == messages
    assert counters.dropped[reason] == 1
    assert counters.drops == 1


def test_messages_of_one_packet_are_bounded() -> None:
    tiny = make_compound([NACK] * 100)
    packet = make_compound([tiny] * 20)
    counters = Counters()
    assert len(open_packet(packet, counters)) == 1024
    assert counters.dropped[reasons.MALFORMED_PACKET] > 0


def test_all_parts_of_one_packet_share_the_room_for_decompressed_bytes() -> None:
    # Each part alone would fit; together they would be 65 MB.
    half = compressed(bytes(PACKET_DECOMPRESSED_MAX // 2))
    inner = compressed(make_compound([half] * 100))
    counters = Counters()
    messages = open_packet(make_compound([NACK, half, *[inner] * 20]), counters)
    assert [len(message) for message in messages] == [len(NACK), PACKET_DECOMPRESSED_MAX // 2]
    assert counters.dropped[reasons.MALFORMED_PACKET] == 100 + 19


def test_arrays_are_not_believed_before_their_elements_are_there() -> None:
    claims = b"\xdc\xf0\x00" * 500  # 500 arrays in one another of 61,440 elements each: 246 MB of room
    body = claims + bytes(62_000 - len(claims))
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="not msgpack"):
            decode(body)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert decode(b"\x92\x01\xa1x") == [1, b"x"]
    with pytest.raises(WireError, match="bytes follow it"):
        decode(b"\x01\x02")


@given(st.binary(max_size=300), st.sampled_from([b"", b"\x07", b"\x09", b"\x0c", b"\x07\x03", b"\x09\x82"]))
def test_garbage_never_raises(data: bytes, start: bytes) -> None:
    open_packet(start + data, Counters())
    open_packet(b"\x0c" + zlib.crc32(data).to_bytes(4, "big") + data, Counters())


# --- streams

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
def test_one_wrong_node_does_not_cost_the_others(field: dict[str, object]) -> None:
    node: dict[str, object] = {"Addr": bytes(4), "Incarnation": 1, "Meta": b"", "Name": "bad", "Port": 1, "State": 0}
    encoded = [node.encode() for node in NODES]
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
    decoder.receive_data(encode_user_stream(b"serf bytes") + b"and what follows")
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
    with pytest.raises(StreamEncrypted, match="no key"):
        StreamDecoder().receive_data(b"\x0a\x00\x00\x00\x40")


def feed(decoder: StreamDecoder, size: int) -> None:
    for _ in range(size // 65536 + 1):
        decoder.receive_data(bytes(65536))


def test_endless_stream_is_stopped() -> None:
    decoder = StreamDecoder()
    decoder.receive_data(b"\x06" + encode({"Join": False, "Nodes": 0, "UserStateLen": STREAM_BYTES_MAX}))
    with pytest.raises(WireError, match="longer than"):
        feed(decoder, STREAM_BYTES_MAX)


def test_compressed_stream_that_promises_too_much_is_stopped() -> None:
    decoder = StreamDecoder()
    decoder.receive_data(b"\x09\x82\xa4Algo\x00\xa3Buf\xdb\x7f\xff\xff\xff")
    with pytest.raises(WireError, match="longer than"):
        feed(decoder, STREAM_COMPRESSED_MAX)


@given(st.binary(max_size=200), st.sampled_from(list(range(14))))
def test_stream_garbage_is_a_wire_error_or_nothing(data: bytes, kind: int) -> None:
    decoder = StreamDecoder()
    try:
        decoder.receive_data(bytes((kind,)) + data)
    except WireError:
        pass
