"""One node with keys, a label or allowed networks: what it sends, and what it takes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from federation.gossip.addresses import Networks
from federation.gossip.config import LAN
from federation.gossip.counters import Counters, DropReason
from federation.gossip.keyring import Keyring
from federation.gossip.members import STATE_ALIVE, STATE_DEAD
from federation.gossip.messages import DEAD, OUR_VERSIONS, Accusation, Ack, Alive, Ping, PushPull, PushPullNode
from federation.gossip.sealing import PLAIN, Sealing
from federation.gossip.streams import StreamDecoder
from federation.gossip.wire import add_crc, make_compound, open_packet
from gossip_node import GossipNode, address

KEY, OTHER = b"k" * 16, b"o" * 32


def sealing(*keys: bytes, seed: int = 1, label: str = "") -> Sealing:
    return Sealing(Keyring(keys, Random(seed)), label)


def alive(host: int, incarnation: int = 1, name: str = "") -> bytes:
    return Alive(incarnation, name or f"n{host}", bytes((10, 0, 0, host)), 8902, b"", OUR_VERSIONS).encode()


@pytest.mark.parametrize("label", ["", "x" * 255])
def test_all_that_a_node_sends_is_sealed_and_fits(label: str) -> None:
    ours = sealing(KEY, label=label)
    node = GossipNode(sealing=ours)
    peer = sealing(KEY, seed=2, label=label)
    counters = Counters()
    for host in range(2, 200):
        node.receive(peer.seal_packet(alive(host)), host)
    node.pass_time(5.0)
    packets = node.gossip.packets_to_send()
    assert max(len(data) for data, _ in packets) > 1300
    for data, _ in packets:
        assert len(data) <= LAN.packet_bytes_max
        assert open_packet(data, counters, peer)
        assert open_packet(data, Counters(), sealing(OTHER, label=label)) == []
    assert counters.drops == node.gossip.counters.drops == 0
    node.gossip.exchanges.push_pull(address(2), node.now)
    for request in node.gossip.exchanges.take_requests():
        decoder = StreamDecoder(peer)
        decoder.receive_data(request.data)
        assert decoder.complete


def test_answers_on_streams_are_sealed() -> None:
    peer = sealing(KEY, seed=2, label="x")
    node = GossipNode(sealing=sealing(KEY, label="x"))
    state = PushPull(True, [PushPullNode("n2", bytes((10, 0, 0, 2)), 8902, b"", 1, 0, OUR_VERSIONS)], b"")
    for request, kind in ((Ping(1, "me", b"", 0, "").encode(), 2), (state.encode(), 6), (b"\xff", 13)):
        stream = node.gossip.exchanges.open_incoming()
        assert stream is not None
        answer = StreamDecoder(peer, is_answer=True)
        answer.receive_data(stream.receive_data(peer.seal_request(request), node.now))
        assert answer.message_type == kind
    # Who is plain gets the reason, sealed; who has another label gets nothing.
    stream = node.gossip.exchanges.open_incoming()
    assert stream is not None
    answer = StreamDecoder(peer, is_answer=True)
    answer.receive_data(stream.receive_data(b"\xf4\x01x" + state.encode(), node.now))
    assert answer.message_type == 13
    stream = node.gossip.exchanges.open_incoming()
    assert stream is not None
    assert stream.receive_data(b"\xf4\x01y" + state.encode(), node.now) == b""
    assert stream.closed
    assert node.gossip.counters.dropped[DropReason.PLAIN] == node.gossip.counters.dropped[DropReason.WRONG_LABEL] == 1


def test_forged_packets_are_dropped_and_counted() -> None:
    node = GossipNode(sealing=sealing(KEY))
    peer = sealing(KEY, seed=2)
    node.receive(peer.seal_packet(alive(2)), 2)
    dead = Accusation(1, "n2", "n3").encode(DEAD)
    genuine = peer.seal_packet(alive(3))
    for number, packet in enumerate(
        [
            sealing(OTHER).seal_packet(dead),
            genuine[:-1] + bytes((genuine[-1] ^ 1,)),
            genuine[:13] + bytes((genuine[13] ^ 1,)) + genuine[14:],
            b"\x01" + bytes(60),
        ]
    ):
        node.receive(packet, 3)
        assert node.gossip.counters.dropped[DropReason.WRONG_KEY] == number + 1
    for number, packet in enumerate([dead, add_crc(dead), make_compound([dead, dead]), b"x" * 60]):
        node.receive(packet, 3)
        assert node.gossip.counters.dropped[DropReason.PLAIN] == number + 1
    assert node.gossip.counters.drops == 8
    assert sorted(node.gossip.table.nodes) == ["me", "n2"]
    assert node.state(2) == STATE_ALIVE


def test_a_replayed_packet_changes_nothing() -> None:
    """There is no cache of packets: what a packet says is older than what is known."""
    node = GossipNode(sealing=sealing(KEY))
    peer = sealing(KEY, seed=2)
    recorded = [
        peer.seal_packet(message)
        for message in (alive(2), Accusation(1, "n2", "n3").encode(DEAD), Accusation(1, "me", "n2").encode(DEAD))
    ]
    for packet in recorded:
        node.receive(packet, 2)
    assert node.state(2) == STATE_DEAD
    node.receive(peer.seal_packet(alive(2, incarnation=2)), 2)
    incarnation = node.gossip.membership.own.incarnation
    for _ in range(10):
        for packet in recorded:
            node.receive(packet, 2)
    assert node.state(2) == STATE_ALIVE
    assert node.gossip.membership.own.incarnation == incarnation
    assert len(node.gossip.table) == 2


def test_a_key_is_replaced_while_packets_of_both_are_on_the_way() -> None:
    ours = Keyring([KEY], Random(1))
    theirs = Keyring([KEY], Random(2))
    node = GossipNode(sealing=Sealing(ours))
    peer = Sealing(theirs)
    on_the_way: list[bytes] = []

    def ping() -> None:
        on_the_way.append(peer.seal_packet(Ping(7, "me", b"", 0, "").encode()))

    for change in (ours.install, theirs.install, theirs.use, ours.use):
        ping()
        change(OTHER)
        ping()
    for packet in on_the_way:
        node.receive(packet, 2)
    answers = node.gossip.packets_to_send()
    assert [open_packet(data, Counters(), peer)[0] for data, _ in answers] == [Ack(7, None).encode()] * 8
    ours.remove(KEY)
    for packet in on_the_way:
        node.receive(packet, 2)
    assert node.gossip.counters.dropped[DropReason.WRONG_KEY] == 5
    assert len(node.gossip.packets_to_send()) == 3


def test_networks_of_members() -> None:
    node = GossipNode(replace(LAN, networks=Networks(["10.0.0.0/29"])))
    node.receive(alive(2), 3)
    node.receive(alive(9), 3)
    node.receive(alive(4), 9)
    assert sorted(node.gossip.table.nodes) == ["me", "n2"]
    nodes = [PushPullNode(f"n{host}", bytes((10, 0, 0, host)), 8902, b"", 1, 0, OUR_VERSIONS) for host in (5, 11)]
    stream = node.gossip.exchanges.open_incoming()
    assert stream is not None
    stream.receive_data(PushPull(False, nodes, b"").encode(), node.now)
    assert sorted(node.gossip.table.nodes) == ["me", "n2", "n5"]
    assert node.gossip.counters.dropped[DropReason.ADDRESS_NOT_ALLOWED] == 3
    assert node.gossip.exchanges.admits("10.0.0.7")
    assert not node.gossip.exchanges.admits("10.0.0.8")
    assert node.gossip.counters.drops == node.gossip.counters.dropped[DropReason.ADDRESS_NOT_ALLOWED] == 4


@pytest.mark.parametrize("keys", [(), (KEY,)])
def test_with_compression_all_is_read_and_less_is_sent(keys: tuple[bytes, ...]) -> None:
    sent: dict[bool, int] = {}
    for compression in (False, True):
        ours = sealing(*keys) if keys else PLAIN
        peer = sealing(*keys, seed=2) if keys else PLAIN
        node = GossipNode(replace(LAN, compression=compression), ours)
        counters = Counters()
        for host in range(2, 60):
            node.receive(peer.seal_packet(alive(host)), host)
        node.pass_time(5.0)
        packets = [data for data, _ in node.gossip.packets_to_send()]
        messages = [message for data in packets for message in open_packet(data, counters, peer)]
        assert {message for message in messages if message[0] == 4} >= {alive(host) for host in range(2, 60)}
        node.gossip.exchanges.push_pull(address(2), node.now)
        (request,) = [each for each in node.gossip.exchanges.take_requests() if len(each.data) > 500]
        decoder = StreamDecoder(peer)
        decoder.receive_data(request.data)
        assert decoder.push_pull is not None
        assert len(decoder.push_pull.nodes) == 59
        assert counters.drops == 0
        sent[compression] = sum(map(len, packets)) + len(request.data)
    assert sent[True] < 0.8 * sent[False]
