"""Packets that took memberlist's nodes down, or filled their memory, until 2026: here they are refused and counted.

The commits of memberlist that mended them: 371698b (counts of a push-pull), bc32294 (user messages), 7de15ac (decompression),
defd4ba (nothing left after it), 1b4c746 (`Vsn`), b72e704 (labels that are cut off or empty), 313d20c (keyring).
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from federation.gossip.counters import DropReason
from federation.gossip.keyring import Keyring
from federation.gossip.lzw import compress
from federation.gossip.messages import OUR_VERSIONS, Accusation, Ack, Alive, Ping
from federation.gossip.msgpack_fields import encode
from federation.gossip.sealing import PLAIN, Sealing
from gossip_node import OWN, GossipNode, merge_all
from lzw_encoder import packed_zeros

KEY = b"k" * 32
MIB = 1 << 20
MEMORY_MAX = 24 * MIB
"""Of one stream that is refused: what came of it, and what it decompresses to."""


def sealings() -> list[tuple[Sealing, Sealing]]:
    """Of the node, and of the peer that sends."""
    keyed = [Sealing(Keyring([KEY], Random(seed)), label) for label in ("", "x") for seed in (1, 2)]
    return [(PLAIN, PLAIN), (keyed[0], keyed[1]), (keyed[2], keyed[3])]


SEALINGS = pytest.mark.parametrize(("sealing", "peer"), sealings(), ids=("plain", "encrypted", "labelled"))


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MEMORY_MAX
    finally:
        tracemalloc.stop()


def stream_to(node: GossipNode, data: bytes) -> bytes:
    """The answer to a stream that comes in pieces, and the node still answers a ping afterwards."""
    stream = node.gossip.exchanges.open_incoming()
    assert stream is not None
    answer = b""
    for at in range(0, len(data), 65536):
        answer += stream.receive_data(data[at : at + 65536], node.now)
        while stream.is_behind:
            answer += stream.receive_data(b"", node.now)
    stream.abandon()
    merge_all(node.gossip, node.now)
    exchanges = node.gossip.exchanges
    assert (exchanges.incoming_bytes, exchanges.incoming_streams) == (0, 0)
    return answer


def check_alive(node: GossipNode, peer: Sealing) -> None:
    node.gossip.packets_to_send()
    node.receive(peer.seal_packet(Ping(7, "me", b"", 0, "").encode()), 2)
    (packet,) = node.gossip.packets_to_send()
    assert peer.open_packet(packet[0], node.gossip.counters)[-len(Ack(7, None).encode()) :]
    assert node.gossip.membership.own.state == 0
    assert next(iter(node.gossip.table.nodes)) == "me"


def push_pull(nodes: int, state: int, body: bytes = b"") -> bytes:
    return b"\x06" + encode({"Join": False, "Nodes": nodes, "UserStateLen": state}) + body


def packed(data: bytes) -> bytes:
    return b"\x09" + encode({"Algo": 0, "Buf": data})


def bomb(megabytes: int) -> bytes:
    """LZW of a push-pull header and that many zeros."""
    return packed(packed_zeros(push_pull(0, megabytes * MIB), megabytes * MIB))


STREAMS = {
    "nodes": push_pull(1_048_577, 0),
    "more nodes": push_pull((1 << 63) - 1, 0),
    "negative nodes": push_pull(-1, 0),
    "state": push_pull(0, 20 * MIB + 1),
    "negative state": push_pull(0, -1),
    "user message": b"\x08" + encode({"UserMsgLen": 20 * MIB + 1}),
    "negative user message": b"\x08" + encode({"UserMsgLen": -1}),
    "endless user message": b"\x08" + encode({"UserMsgLen": 20 * MIB}) + bytes(20 * MIB),
    "bomb": bomb(41),
    "nothing left": packed(compress(b"")),
    "nothing inside": packed(b""),
    "no type": packed(b"\x00\x03\x02"),
}


@SEALINGS
def test_streams_that_claim_much_or_hold_nothing(sealing: Sealing, peer: Sealing) -> None:
    for name, message in STREAMS.items():
        node = GossipNode(sealing=sealing)
        data = peer.seal_request(message)
        with little_memory():
            answer = stream_to(node, data)
        assert answer, name
        assert node.gossip.counters.dropped[DropReason.MALFORMED_STREAM] == 1, name
        check_alive(node, peer)


@SEALINGS
def test_the_longest_state_is_read(sealing: Sealing, peer: Sealing) -> None:
    """An encrypted stream has no room for 20 MiB of it, as in memberlist."""
    size = 20 * MIB if sealing.keyring is None else 20 * MIB - 200
    node = GossipNode(sealing=sealing)
    assert stream_to(node, peer.seal_request(push_pull(0, size, bytes(size))))
    assert node.gossip.counters.drops == 0
    assert node.gossip.exchanges.merges.merged_at == node.now


@SEALINGS
def test_packets_that_decompress_to_much_or_to_nothing(sealing: Sealing, peer: Sealing) -> None:
    node = GossipNode(sealing=sealing)
    zeros = packed(packed_zeros(b"", 7 * MIB))
    for number, message in enumerate([zeros, packed(packed_zeros(b"", MIB)), packed(compress(b"")), packed(b"")]):
        with little_memory():
            node.receive(peer.seal_packet(message), 2)
        assert node.gossip.counters.dropped[DropReason.MALFORMED_PACKET] == number + 1
        check_alive(node, peer)


def alive(versions: object) -> bytes:
    fields: dict[str, object] = {"Addr": bytes((10, 0, 0, 9)), "Incarnation": 1, "Meta": b"", "Node": "n9", "Port": 1}
    return b"\x04" + encode(fields if versions is None else fields | {"Vsn": versions})


@SEALINGS
@pytest.mark.parametrize("versions", [None, b"", *(OUR_VERSIONS[:length] for length in range(1, 6)), [1, 5], []])
def test_versions_that_are_missing_or_too_short(versions: object, sealing: Sealing, peer: Sealing) -> None:
    node = GossipNode(sealing=sealing)
    node.receive(peer.seal_packet(alive(versions)), 2)
    assert node.gossip.counters.dropped[DropReason.MALFORMED_MESSAGE] == 1
    for state in range(4):
        fields: dict[str, object] = {"Addr": bytes(4), "Incarnation": 1, "Name": "n9", "Port": 1, "State": state}
        stream_to(
            node, peer.seal_request(push_pull(1, 0, encode(fields if versions is None else fields | {"Vsn": versions})))
        )
    assert node.gossip.counters.dropped[DropReason.BAD_VERSION] == 4
    assert list(node.gossip.table.nodes) == ["me"]
    check_alive(node, peer)


@SEALINGS
@pytest.mark.parametrize("header", [b"\xf4", b"\xf4\x00", b"\xf4\x00\x00", b"\xf4\x05abc", b"\xf4\xff"])
def test_labels_that_are_empty_or_cut_off(header: bytes, sealing: Sealing, peer: Sealing) -> None:
    node = GossipNode(sealing=sealing)
    node.receive(header, 2)
    assert node.gossip.counters.dropped[DropReason.WRONG_LABEL] == 1
    assert stream_to(node, header) == b""
    check_alive(node, peer)


def test_a_keyring_that_changes_while_it_is_used() -> None:
    """memberlist's changed the list under the one who walked over it."""
    keys = [bytes((number,)) * 16 for number in range(5)]
    keyring = Keyring(keys, Random(1))
    walked: list[bytes] = []
    for key in keyring.keys:
        walked.append(key)
        for other in keys:
            if other != keyring.keys[0]:
                keyring.remove(other)
        keyring.install(b"new" * 8)
        keyring.use(b"new" * 8)
    assert walked == keys
    assert keyring.keys == (b"new" * 8,)
    node = GossipNode(sealing=Sealing(keyring))
    peer = Sealing(Keyring([b"new" * 8], Random(2)))
    check_alive(node, peer)


# --- beyond memberlist's


@SEALINGS
def test_messages_cut_off_at_each_byte(sealing: Sealing, peer: Sealing) -> None:
    node = GossipNode(sealing=sealing)
    messages = [
        alive(OUR_VERSIONS),
        Accusation(1, "me", "x").encode(3),
        Ping(1, "me", OWN, 8902, "x").encode(),
        packed(compress(Ping(1, "me", OWN, 8902, "x").encode())),
    ]
    for message in messages:
        whole = peer.seal_packet(message)
        for size in range(len(whole)):  # the packet, and then what is inside of a packet that is whole
            node.receive(whole[:size], 2)
        for size in range(len(message)):
            node.receive(peer.seal_packet(message[:size]), 2)
    counters = node.gossip.counters
    assert counters.drops >= sum(len(message) for message in messages)
    assert list(node.gossip.table.nodes) == ["me"]
    check_alive(node, peer)


def nested(value: bytes, depth: int) -> bytes:
    return value * depth + b"\xc0"


@SEALINGS
@pytest.mark.parametrize("depth", [5, 100, 10_000])
def test_what_is_nested(depth: int, sealing: Sealing, peer: Sealing) -> None:
    node = GossipNode(sealing=sealing)
    compound, compressed = b"\x0b\x81\xa5SeqNo\x01", b"\x0b\x81\xa5SeqNo\x01"
    for level in range(min(depth, 100)):
        compound = b"\x07\x01" + len(compound).to_bytes(2, "big") + compound
        if level < 10:  # each is longer than the last one
            compressed = packed(compress(compressed))
    for number, message in enumerate([compound, compressed]):
        node.receive(peer.seal_packet(message), 2)
        assert node.gossip.counters.dropped[DropReason.MALFORMED_PACKET] == number + 1
    for body in (nested(b"\x91", depth), nested(b"\x81\xa1x", depth), nested(b"\x81\xa4Node", depth)):
        for kind in range(14):
            node.receive(peer.seal_packet(bytes((kind,)) + body), 2)
            stream_to(node, peer.seal_request(bytes((kind,)) + body))
    assert node.gossip.counters.drops > 40
    assert list(node.gossip.table.nodes) == ["me"]
    check_alive(node, peer)


@SEALINGS
def test_maps_and_arrays_of_a_million_keys(sealing: Sealing, peer: Sealing) -> None:
    node = GossipNode(sealing=sealing)
    million = (1_000_000).to_bytes(4, "big")
    claims = [b"\xdf" + million, b"\xdd" + million, b"\x81\xa4Node\xdf" + million, b"\x81\xa3Buf\xdd" + million]
    for kind in range(14):
        for claim in claims:
            with little_memory():
                node.receive(peer.seal_packet(bytes((kind,)) + claim + b"\xa1x\x01" * 15_000), 2)
                stream_to(node, peer.seal_request(bytes((kind,)) + claim + b"\xa1x\x01" * MIB))
    assert list(node.gossip.table.nodes) == ["me"]
    check_alive(node, peer)


@SEALINGS
def test_a_member_that_claims_this_nodes_name(sealing: Sealing, peer: Sealing) -> None:
    node = GossipNode(sealing=sealing)
    for incarnation in (0, 1, 7, (1 << 32) - 1):
        other = Alive(incarnation, "me", bytes((10, 0, 0, 66)), 8902, b"", OUR_VERSIONS)
        node.receive(peer.seal_packet(other.encode()), 66)
        node.receive(peer.seal_packet(Accusation(incarnation, "me", "me").encode(5)), 66)
    own = node.gossip.membership.own
    assert (own.facts.addr, own.state) == (OWN, 0)
    assert node.gossip.counters.dropped[DropReason.NAME_CONFLICT] == 4
    check_alive(node, peer)
