"""Probes, relays and broadcasts of one node, packet by packet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.config import LAN
from federation.gossip.counters import Counters, DropReason
from federation.gossip.members import STATE_ALIVE, STATE_SUSPECT
from federation.gossip.messages import (
    ACK,
    INDIRECT_PING,
    NACK,
    OUR_VERSIONS,
    PING,
    SUSPECT,
    Accusation,
    Ack,
    Alive,
    IndirectPing,
    Nack,
    Ping,
)
from federation.gossip.msgpack_fields import encode
from federation.gossip.suspicion import suspicion_timeout
from federation.gossip.wire import make_compound, open_packet
from gossip_node import OWN, GossipNode, address


def test_ping_is_acked_where_it_says() -> None:
    node = GossipNode()
    node.receive(Ping(7, "me", b"", 0, "").encode(), 9)
    node.receive(Ping(8, "", bytes((10, 0, 0, 8)), 99, "n8").encode(), 9)
    acks = [(Ack.decode(body).sequence, destination) for body, destination in node.sent_of(ACK)]
    assert acks == [(7, address(9)), (8, ("10.0.0.8", 99))]


def test_ping_for_another_node_is_dropped() -> None:
    node = GossipNode()
    node.receive(Ping(7, "you", b"", 0, "").encode(), 9)
    assert node.sent() == []
    assert node.gossip.counters.dropped[DropReason.PING_FOR_OTHER] == 1


def test_an_acked_probe_is_the_end_of_it() -> None:
    node = GossipNode()
    node.know(2)
    ping = node.until_probe()
    assert (ping.node, ping.source_node, ping.source_addr, ping.source_port) == ("n2", "me", OWN, 8902)
    node.receive(Ack(ping.sequence, None).encode(), 2)
    node.pass_time(0.9)
    assert node.state(2) == STATE_ALIVE
    assert node.gossip.exchanges.take_requests() == []


def test_an_unanswered_probe_goes_over_others_and_over_a_stream_and_ends_in_suspicion() -> None:
    node = GossipNode()
    node.know(2, 3, 4, 5, 6)
    ping = node.until_probe()
    node.pass_time(0.5)
    requests = [(IndirectPing.decode(body), destination) for body, destination in node.sent_of(INDIRECT_PING)]
    assert len(requests) == 3
    for request, destination in requests:
        assert request.node == ping.node
        assert request.sequence == ping.sequence
        assert request.nack
        assert destination[0] not in (f"10.0.0.{ping.node[1:]}", "10.0.0.1")
    (stream,) = node.gossip.exchanges.take_requests()
    assert stream.address == address(int(ping.node[1:]))
    assert stream.timeout == pytest.approx(0.5)
    # Two of three relays send a nack; the missing one raises the node's own score.
    for _, destination in requests[:2]:
        node.receive(Nack(ping.sequence).encode(), int(destination[0][-1]))
    node.pass_time(0.51)
    assert node.state(int(ping.node[1:])) == STATE_SUSPECT
    assert node.gossip.membership.awareness.score == 1
    assert node.gossip.counters.probes_failed == 1


def test_a_node_that_may_be_slow_itself_waits_longer_before_it_suspects() -> None:
    """Lifeguard's LHA-Probe: the whole probe takes (score + 1) intervals, the first ping keeps its timeout."""
    node = GossipNode()
    node.know(2, 3)
    node.gossip.membership.awareness.adjust(2)
    ping = node.until_probe()
    node.pass_time(0.5)
    assert len(node.sent_of(INDIRECT_PING)) == 1
    (stream,) = node.gossip.exchanges.take_requests()
    assert stream.timeout == pytest.approx(2.5)
    node.pass_time(2.4)
    assert node.state(int(ping.node[1:])) == STATE_ALIVE
    assert node.sent_of(PING) == []  # one probe at a time
    node.receive(Ack(ping.sequence, None).encode(), int(ping.node[1:]))
    assert node.gossip.membership.awareness.score == 1


def test_a_refutation_counts_against_this_node() -> None:
    """Lifeguard: a node that others suspect was too slow for them."""
    node = GossipNode()
    node.know(2)
    node.receive(Accusation(1, "me", "n2").encode(SUSPECT), 2)
    assert node.gossip.membership.awareness.score == 1
    assert node.gossip.membership.own.incarnation == 2


@pytest.mark.parametrize("over_stream", [True, False])
def test_a_late_ack_prevents_the_suspicion(over_stream: bool) -> None:
    node = GossipNode()
    node.know(2, 3)
    ping = node.until_probe()
    node.pass_time(0.6)
    ack = Ack(ping.sequence, None).encode()
    if over_stream:
        (stream,) = node.gossip.exchanges.take_requests()
        assert node.gossip.exchanges.receive_reply(stream.request_id, ack, "", node.now)
    else:
        node.receive(ack, 3)
    node.pass_time(0.41)
    assert node.state(int(ping.node[1:])) == STATE_ALIVE
    assert node.gossip.counters.probes_failed == 0


def test_the_ping_to_a_suspect_carries_the_accusation() -> None:
    node = GossipNode()
    node.know(2)
    node.gossip.membership.suspect("n2", 1, node.now)
    node.gossip.membership.queue.take(0, 1 << 20, 1000, 1)
    while True:
        node.now = node.gossip.next_timeout()
        node.gossip.handle_timeout(node.now)
        kinds = [message[0] for message, _ in node.sent()]
        if PING in kinds:
            assert kinds == [PING, SUSPECT]
            return


def test_a_suspect_is_told_again_and_again_until_it_refutes() -> None:
    """In a large cluster the next probe of a suspect is far, and the accusation may have been lost in a cut of the network."""
    node = GossipNode()
    node.know(*range(2, 202))
    node.gossip.membership.suspect("n2", 1, node.now)
    node.gossip.membership.receive_suspect(Accusation(1, "n3", "n4"), b"", node.now)  # that is up to n4
    node.gossip.membership.queue.take(0, 1 << 20, 1000, 1)
    told: list[float] = []
    began = node.now
    while node.state(2) == STATE_SUSPECT:
        node.now = node.gossip.next_timeout()
        node.gossip.handle_timeout(node.now)
        for message, destination in node.sent():
            if message[0] == SUSPECT:
                assert destination == address(2)
                told.append(node.now - began)
            elif message[0] == PING and destination != address(2):
                node.receive(Ack(Ping.decode(message[1:]).sequence, None).encode(), 3)
        if len(told) == 3:
            facts = node.gossip.table.nodes["n2"].facts
            node.receive(Alive(2, "n2", facts.addr, facts.port, facts.meta, OUR_VERSIONS).encode(), 2)
    half = suspicion_timeout(LAN.suspicion_mult, 201, LAN.probe_interval) / 2
    for number, at in enumerate(told, 1):
        assert number * half <= at < number * (half + 1.0)  # with the next tick of the probes
    node.now += 10.0
    node.gossip.handle_timeout(node.now)
    assert [message for message, _ in node.sent() if message[0] == SUSPECT] == []


def test_a_failed_probe_does_not_count_against_a_later_incarnation() -> None:
    node = GossipNode()
    node.know(2)
    assert node.until_probe().node == "n2"
    node.pass_time(0.3)
    facts = node.gossip.table.nodes["n2"].facts
    node.receive(Alive(2, "n2", facts.addr, facts.port, facts.meta, OUR_VERSIONS).encode(), 3)
    node.pass_time(0.8)
    assert node.gossip.counters.probes_failed == 1
    assert node.state(2) == STATE_ALIVE


def test_the_pings_of_a_node_that_left_do_not_name_it() -> None:
    node = GossipNode()
    node.know(2)
    assert node.until_probe().source_node == "me"
    node.gossip.membership.leave(node.now)
    ping = node.until_probe()
    assert (ping.node, ping.source_node, ping.source_port) == ("n2", "", 8902)


def test_a_node_without_broadcasts_is_not_woken_to_gossip() -> None:
    node = GossipNode()
    node.gossip.membership.queue.queue(b"\x05news", "n9")
    assert node.wakes(10.0) <= 11  # there is no other member
    node.know(2)
    node.gossip.membership.queue.queue(b"\x05news", "n9")
    node.pass_time(LAN.gossip_interval)
    assert (b"news", address(2)) in node.sent_of(5)
    node.pass_time(5.0)
    assert node.wakes(10.0) <= 33  # a ping, the next step, and the end of each probe


def test_an_indirect_ping_is_answered_by_an_ack_or_a_nack() -> None:
    node = GossipNode()
    request = IndirectPing(70, bytes((10, 0, 0, 3)), 8902, "n3", True, bytes((10, 0, 0, 2)), 8902, "n2")
    node.receive(request.encode(), 2)
    node.receive(request.encode(), 2)
    pings = [(Ping.decode(body), destination) for body, destination in node.sent_of(PING)]
    assert [(ping.node, destination) for ping, destination in pings] == [("n3", address(3))] * 2
    node.receive(Ack(pings[0][0].sequence, None).encode(), 3)
    assert [(Ack.decode(body).sequence, to) for body, to in node.sent_of(ACK)] == [(70, address(2))]
    node.pass_time(0.5)
    assert [(Nack.decode(body).sequence, to) for body, to in node.sent_of(NACK)] == [(70, address(2))]


def test_broadcasts_travel_with_acks_within_the_packet_size() -> None:
    node = GossipNode()
    for host in range(2, 60):
        alive = Alive(1, f"n{host}", bytes((10, 0, 0, host)), 8902, b"x" * 60, OUR_VERSIONS)
        node.receive(alive.encode(), host)
    node.receive(Ping(7, "me", b"", 0, "").encode(), 2)
    ((data, _),) = node.gossip.packets_to_send()
    assert 1200 < len(data) <= LAN.packet_bytes_max
    assert open_packet(data, Counters())[0] == Ack(7, None).encode()


def test_each_broadcast_leaves_four_times_in_a_small_cluster() -> None:
    node = GossipNode()
    node.know(2, 3, 4)
    alive = Alive(2, "n2", bytes((10, 0, 0, 2)), 8902, b"news", OUR_VERSIONS).encode()
    node.receive(alive, 2)
    node.pass_time(3.0)
    assert [message for message, _ in node.sent()].count(alive) == 4


@given(
    st.lists(
        st.tuples(st.integers(0, 14), st.binary(max_size=60))
        | st.tuples(
            st.integers(0, 14),
            st.dictionaries(
                st.sampled_from(["Node", "SeqNo", "Addr", "Port", "Incarnation", "Vsn", "Meta", "From", "Target"]),
                st.integers(-5, 1 << 40) | st.text(max_size=5) | st.binary(max_size=20) | st.none() | st.just([1, 2]),
                max_size=6,
            ).map(encode),
        ),
        max_size=20,
    )
)
def test_garbage_is_dropped_and_counted(parts: list[tuple[int, bytes]]) -> None:
    node = GossipNode()
    node.know(2)
    messages = [bytes((kind,)) + body for kind, body in parts]
    for message in messages:
        node.receive(message, 2)
    if messages:
        node.receive(make_compound(messages), 2)
    node.pass_time(5.0)
    assert node.gossip.membership.own.state == STATE_ALIVE
