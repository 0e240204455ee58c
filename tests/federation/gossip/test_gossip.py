"""Probes, relays, push-pulls and streams of one node, told packet by packet."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.gossip import counters as reasons
from federation.gossip.addresses import Address
from federation.gossip.config import LAN
from federation.gossip.counters import Counters
from federation.gossip.delegate import GossipDelegate
from federation.gossip.exchange import INCOMING_BYTES_MAX, STREAMS_MAX
from federation.gossip.gossip import Gossip
from federation.gossip.members import STATE_ALIVE, STATE_SUSPECT, FactsPool
from federation.gossip.messages import (
    ACK,
    INDIRECT_PING,
    NACK,
    OUR_VERSIONS,
    PING,
    SUSPECT,
    Ack,
    Alive,
    IndirectPing,
    Nack,
    Ping,
    PushPull,
    PushPullNode,
    encode_error,
)
from federation.gossip.msgpack_fields import encode
from federation.gossip.wire import make_compound, open_packet

OWN = bytes((10, 0, 0, 1))


def address(host: int) -> Address:
    return (f"10.0.0.{host}", 8902)


class Bench:
    """One node named "me" at 10.0.0.1 on a clock of its own."""

    def __init__(self) -> None:
        self.now = 100.0
        pool = FactsPool()
        facts = pool.get("me", OWN, 8902, b"", OUR_VERSIONS)
        self.joined: list[str] = []
        self.gossip = Gossip(facts, LAN, Random(3), Counters(), GossipDelegate(), pool, self.now)
        self.gossip.membership.queue.take(0, 1 << 20, 1000, 1)

    def know(self, *hosts: int) -> None:
        for host in hosts:
            alive = Alive(1, f"n{host}", bytes((10, 0, 0, host)), 8902, b"", OUR_VERSIONS)
            self.receive(alive.encode(), host)
        self.gossip.membership.queue.take(0, 1 << 20, 1000, 1)

    def receive(self, packet: bytes, host: int) -> None:
        self.gossip.receive_packet(packet, address(host), self.now)

    def sent(self) -> list[tuple[bytes, Address]]:
        """Single messages."""
        return [
            (message, destination)
            for data, destination in self.gossip.packets_to_send()
            for message in open_packet(data, Counters())
        ]

    def sent_of(self, kind: int) -> list[tuple[bytes, Address]]:
        return [(message[1:], destination) for message, destination in self.sent() if message[0] == kind]

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while (deadline := self.gossip.next_timeout()) <= end:
            self.now = max(self.now, deadline)
            self.gossip.handle_timeout(self.now)
        self.now = end

    def wakes(self, seconds: float) -> int:
        """How often it wants to be woken in this time."""
        end = self.now + seconds
        count = 0
        while (deadline := self.gossip.next_timeout()) <= end:
            count += 1
            self.now = max(self.now, deadline)
            self.gossip.handle_timeout(self.now)
        self.now = end
        return count

    def until_probe(self) -> Ping:
        """The next ping that it sends by itself."""
        while True:
            self.now = self.gossip.next_timeout()
            self.gossip.handle_timeout(self.now)
            pings = self.sent_of(PING)
            if pings:
                return Ping.decode(pings[0][0])

    def state(self, host: int) -> int:
        return self.gossip.table.nodes[f"n{host}"].state


def test_ping_is_acked_where_it_says() -> None:
    bench = Bench()
    bench.receive(Ping(7, "me", b"", 0, "").encode(), 9)
    bench.receive(Ping(8, "", bytes((10, 0, 0, 8)), 99, "n8").encode(), 9)
    acks = [(Ack.decode(body).sequence, destination) for body, destination in bench.sent_of(ACK)]
    assert acks == [(7, address(9)), (8, ("10.0.0.8", 99))]


def test_ping_for_another_node_is_dropped() -> None:
    bench = Bench()
    bench.receive(Ping(7, "you", b"", 0, "").encode(), 9)
    assert bench.sent() == []
    assert bench.gossip.counters.dropped[reasons.PING_FOR_OTHER] == 1


def test_an_acked_probe_is_the_end_of_it() -> None:
    bench = Bench()
    bench.know(2)
    ping = bench.until_probe()
    assert (ping.node, ping.source_node, ping.source_addr, ping.source_port) == ("n2", "me", OWN, 8902)
    bench.receive(Ack(ping.sequence, None).encode(), 2)
    bench.pass_time(0.9)
    assert bench.state(2) == STATE_ALIVE
    assert bench.gossip.exchanges.take_requests() == []


def test_an_unanswered_probe_goes_over_others_and_over_a_stream_and_ends_in_suspicion() -> None:
    bench = Bench()
    bench.know(2, 3, 4, 5, 6)
    ping = bench.until_probe()
    bench.pass_time(0.5)
    requests = [(IndirectPing.decode(body), destination) for body, destination in bench.sent_of(INDIRECT_PING)]
    assert len(requests) == 3
    for request, destination in requests:
        assert request.node == ping.node
        assert request.sequence == ping.sequence
        assert request.nack
        assert destination[0] not in (f"10.0.0.{ping.node[1:]}", "10.0.0.1")
    (stream,) = bench.gossip.exchanges.take_requests()
    assert stream.address == address(int(ping.node[1:]))
    assert stream.timeout == pytest.approx(0.5)
    # Two of three relays answer with a nack: one miss speaks against ourselves.
    for _, destination in requests[:2]:
        bench.receive(Nack(ping.sequence).encode(), int(destination[0][-1]))
    bench.pass_time(0.51)
    assert bench.state(int(ping.node[1:])) == STATE_SUSPECT
    assert bench.gossip.membership.awareness.score == 1
    assert bench.gossip.counters.probes_failed == 1


@pytest.mark.parametrize("over_stream", [True, False])
def test_a_late_ack_saves(over_stream: bool) -> None:
    bench = Bench()
    bench.know(2, 3)
    ping = bench.until_probe()
    bench.pass_time(0.6)
    ack = Ack(ping.sequence, None).encode()
    if over_stream:
        (stream,) = bench.gossip.exchanges.take_requests()
        assert bench.gossip.exchanges.receive_reply(stream.request_id, ack, "", bench.now)
    else:
        bench.receive(ack, 3)
    bench.pass_time(0.41)
    assert bench.state(int(ping.node[1:])) == STATE_ALIVE
    assert bench.gossip.counters.probes_failed == 0


def test_a_suspect_hears_it_with_the_ping() -> None:
    bench = Bench()
    bench.know(2)
    bench.gossip.membership.suspect("n2", 1, bench.now)
    bench.gossip.membership.queue.take(0, 1 << 20, 1000, 1)
    while True:
        bench.now = bench.gossip.next_timeout()
        bench.gossip.handle_timeout(bench.now)
        kinds = [message[0] for message, _ in bench.sent()]
        if PING in kinds:
            assert kinds == [PING, SUSPECT]
            return


def test_silence_says_nothing_about_a_later_incarnation() -> None:
    bench = Bench()
    bench.know(2)
    assert bench.until_probe().node == "n2"
    bench.pass_time(0.3)
    node = bench.gossip.table.nodes["n2"].facts
    bench.receive(Alive(2, "n2", node.addr, node.port, node.meta, OUR_VERSIONS).encode(), 3)
    bench.pass_time(0.8)
    assert bench.gossip.counters.probes_failed == 1
    assert bench.state(2) == STATE_ALIVE


def test_nobody_takes_one_that_left_for_a_member() -> None:
    bench = Bench()
    bench.know(2)
    assert bench.until_probe().source_node == "me"
    bench.gossip.membership.leave(bench.now)
    ping = bench.until_probe()
    assert (ping.node, ping.source_node, ping.source_port) == ("n2", "", 8902)


def test_without_news_nobody_is_woken_to_gossip() -> None:
    bench = Bench()
    bench.gossip.membership.queue.queue(b"\x05news", "n9")
    assert bench.wakes(10.0) <= 11  # nobody is there to be told
    bench.know(2)
    bench.gossip.membership.queue.queue(b"\x05news", "n9")
    bench.pass_time(LAN.gossip_interval)
    assert (b"news", address(2)) in bench.sent_of(5)
    bench.pass_time(5.0)
    assert bench.wakes(10.0) <= 33  # a ping, the next step, and the end of each probe


def test_we_ping_for_others_and_say_when_nothing_came() -> None:
    bench = Bench()
    request = IndirectPing(70, bytes((10, 0, 0, 3)), 8902, "n3", True, bytes((10, 0, 0, 2)), 8902, "n2")
    bench.receive(request.encode(), 2)
    bench.receive(request.encode(), 2)
    pings = [(Ping.decode(body), destination) for body, destination in bench.sent_of(PING)]
    assert [(ping.node, destination) for ping, destination in pings] == [("n3", address(3))] * 2
    bench.receive(Ack(pings[0][0].sequence, None).encode(), 3)
    assert [(Ack.decode(body).sequence, to) for body, to in bench.sent_of(ACK)] == [(70, address(2))]
    bench.pass_time(0.5)
    assert [(Nack.decode(body).sequence, to) for body, to in bench.sent_of(NACK)] == [(70, address(2))]


def test_broadcasts_ride_on_acks_within_the_packet_size() -> None:
    bench = Bench()
    for host in range(2, 60):
        alive = Alive(1, f"n{host}", bytes((10, 0, 0, host)), 8902, b"x" * 60, OUR_VERSIONS)
        bench.receive(alive.encode(), host)
    bench.receive(Ping(7, "me", b"", 0, "").encode(), 2)
    ((data, _),) = bench.gossip.packets_to_send()
    assert 1200 < len(data) <= LAN.packet_bytes_max
    assert open_packet(data, Counters())[0] == Ack(7, None).encode()


def test_each_broadcast_leaves_four_times_in_a_small_cluster() -> None:
    bench = Bench()
    bench.know(2, 3, 4)
    alive = Alive(2, "n2", bytes((10, 0, 0, 2)), 8902, b"news", OUR_VERSIONS).encode()
    bench.receive(alive, 2)
    bench.pass_time(3.0)
    assert [message for message, _ in bench.sent()].count(alive) == 4


# --- streams


def state_of(*nodes: PushPullNode, join: bool = True) -> bytes:
    return PushPull(join, list(nodes), b"").encode()


def remote(name: str, host: int, state: int = STATE_ALIVE, versions: bytes = OUR_VERSIONS) -> PushPullNode:
    return PushPullNode(name, bytes((10, 0, 0, host)), 8902, b"", 1, state, versions)


def test_the_answer_to_a_join_does_not_contain_the_joiner() -> None:
    bench = Bench()
    stream = bench.gossip.exchanges.open_incoming()
    assert stream is not None
    request = state_of(remote("n2", 2))
    assert stream.receive_data(request[:10], bench.now) == b""
    reply = stream.receive_data(request[10:], bench.now)
    assert stream.closed
    assert reply == state_of(remote("me", 1))
    assert bench.state(2) == STATE_ALIVE
    stream.abandon()
    assert bench.gossip.exchanges.incoming_bytes == bench.gossip.exchanges.incoming_streams == 0


def test_ping_over_a_stream() -> None:
    bench = Bench()
    stream = bench.gossip.exchanges.open_incoming()
    assert stream is not None
    assert stream.receive_data(Ping(9, "me", b"", 0, "").encode(), bench.now) == Ack(9, None).encode()
    stream = bench.gossip.exchanges.open_incoming()
    assert stream is not None
    assert stream.receive_data(Ping(9, "you", b"", 0, "").encode(), bench.now) == b""
    assert stream.closed


def test_one_wrong_version_refuses_the_whole_merge() -> None:
    bench = Bench()
    stream = bench.gossip.exchanges.open_incoming()
    assert stream is not None
    stream.receive_data(state_of(remote("n2", 2), remote("n3", 3, versions=bytes((3, 5, 3, 2, 5, 4)))), bench.now)
    assert bench.gossip.counters.dropped[reasons.BAD_VERSION] == 1
    assert list(bench.gossip.table.nodes) == ["me"]


def test_dead_ones_of_others_are_suspects_of_ours() -> None:
    bench = Bench()
    bench.know(2, 3, 4)
    stream = bench.gossip.exchanges.open_incoming()
    assert stream is not None
    stream.receive_data(state_of(remote("n2", 2, 2), remote("n3", 3, 1), remote("n4", 4, 3)), bench.now)
    assert [bench.state(host) for host in (2, 3, 4)] == [STATE_SUSPECT, STATE_SUSPECT, 3]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x0a\x00\x00\x01\x00", reasons.ENCRYPTED),
        (b"\xf4\x03lab\x06", reasons.LABELLED),
        (b"\xffgarbage", reasons.MALFORMED_STREAM),
        (b"\x06\x01\x02\x03", reasons.MALFORMED_STREAM),
    ],
)
def test_stream_garbage_is_answered_with_an_error(data: bytes, reason: str) -> None:
    bench = Bench()
    stream = bench.gossip.exchanges.open_incoming()
    assert stream is not None
    assert stream.receive_data(data, bench.now)[0] == 13
    assert stream.closed
    assert bench.gossip.counters.dropped[reason] == 1
    assert (bench.gossip.exchanges.incoming_bytes, bench.gossip.exchanges.incoming_streams) == (
        0,
        1,
    )  # it counts until its answer was taken
    stream.abandon()
    stream.abandon()
    assert bench.gossip.exchanges.incoming_streams == 0


def test_streams_are_bounded_in_number_and_bytes() -> None:
    bench = Bench()
    streams = [bench.gossip.exchanges.open_incoming() for _ in range(STREAMS_MAX)]
    assert bench.gossip.exchanges.open_incoming() is None
    assert bench.gossip.counters.dropped[reasons.STREAMS_FULL] == 1
    header = b"\x06" + encode({"Join": False, "Nodes": 0, "UserStateLen": 8 << 20})
    piece = bytes(1 << 20)
    for stream in streams:
        assert stream is not None
        stream.receive_data(header, bench.now)
        for _ in range(7):
            stream.receive_data(piece, bench.now)
    assert bench.gossip.counters.dropped[reasons.STREAM_BYTES_FULL] > 0
    assert bench.gossip.exchanges.incoming_bytes <= INCOMING_BYTES_MAX
    for stream in streams:
        assert stream is not None
        stream.abandon()
    assert bench.gossip.exchanges.incoming_bytes == bench.gossip.exchanges.incoming_streams == 0


def test_periodic_push_pull_goes_to_a_living_member() -> None:
    bench = Bench()
    bench.know(2)
    for _ in range(400):
        bench.pass_time(0.1)
        for message, destination in bench.sent():
            if message[0] == PING:
                bench.receive(Ack(Ping.decode(message[1:]).sequence, None).encode(), int(destination[0][-1]))
        requests = bench.gossip.exchanges.take_requests()
        if requests:
            assert requests[0].address == address(2)
            assert requests[0].data[0] == 6
            answer = state_of(remote("n2", 2), remote("n9", 9), join=False)
            assert not bench.gossip.exchanges.receive_reply(requests[0].request_id, answer[:5], "", bench.now)
            assert bench.gossip.exchanges.receive_reply(requests[0].request_id, answer[5:], "", bench.now)
            assert bench.state(9) == STATE_ALIVE
            return
    raise AssertionError("no push-pull within 40 s")


class Joins(GossipDelegate):
    def __init__(self) -> None:
        self.results: list[tuple[int, str]] = []
        self.taken: list[Address] = []

    def join_finished(self, join_id: int, index: int, error: str, now: float) -> None:
        self.results.append((index, error))

    def name_taken(self, ip: str, port: int, now: float) -> None:
        self.taken.append((ip, port))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (state_of(remote("n2", 2)), ""),
        (encode_error("nope"), "refused: nope"),
        (b"HTTP/1.1 400", "does not speak this gossip: message type 72 does not belong on a stream"),
        (Ack(1, None).encode(), "answered a push-pull with something else"),
        (
            state_of(remote("n2", 2), remote("me", 9)),
            "the node name 'me' is taken by 10.0.0.9:8902; give each node its own name",
        ),
        (
            state_of(remote("n2", 2, versions=bytes((1, 5, 2, 2, 3, 3)))),
            "node 'n2' speaks Serf protocol 3, the cluster needs",
        ),
        (None, "Connection refused"),
    ],
)
def test_join_results(answer: bytes | None, error: str) -> None:
    pool = FactsPool()
    joins = Joins()
    gossip = Gossip(pool.get("me", OWN, 8902, b"", OUR_VERSIONS), LAN, Random(1), Counters(), joins, pool, 0.0)
    gossip.exchanges.join(address(2), 1, 5, 0.0)
    (request,) = gossip.exchanges.take_requests()
    if error.startswith("node 'n2'"):
        error = "node 'me' speaks Serf protocol 4, the cluster needs 2 to 3"
    assert gossip.exchanges.receive_reply(request.request_id, answer, "Connection refused", 0.0)
    assert joins.results == [(5, error)]
    if "taken" in error:
        (question,) = gossip.exchanges.take_requests()
        assert question.address == address(9)
        gossip.exchanges.receive_reply(question.request_id, Ack(1, None).encode(), "", 0.0)
        assert joins.taken == [address(9)]
        assert list(gossip.table.nodes) == ["me"]


# --- garbage


@settings(deadline=None)
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
def test_garbage_only_counts_drops(parts: list[tuple[int, bytes]]) -> None:
    bench = Bench()
    bench.know(2)
    messages = [bytes((kind,)) + body for kind, body in parts]
    for message in messages:
        bench.receive(message, 2)
    if messages:
        bench.receive(make_compound(messages), 2)
    bench.pass_time(5.0)
    assert bench.gossip.membership.own.state == STATE_ALIVE
