"""Streams of one node: pings, push-pulls and joins in both directions."""

from __future__ import annotations

from random import Random

import pytest

from federation.gossip.addresses import Address
from federation.gossip.config import LAN
from federation.gossip.counters import Counters, DropReason
from federation.gossip.delegate import GossipDelegate
from federation.gossip.exchange import INCOMING_BYTES_MAX, STREAMS_MAX
from federation.gossip.gossip import Gossip
from federation.gossip.keyring import Keyring
from federation.gossip.members import STATE_ALIVE, STATE_SUSPECT, FactsPool
from federation.gossip.merging import SLICE_NODES
from federation.gossip.messages import (
    OUR_VERSIONS,
    PING,
    Ack,
    Ping,
    PushPull,
    PushPullNode,
    encode_error,
)
from federation.gossip.msgpack_fields import encode
from federation.gossip.sealing import Sealing
from gossip_node import OWN, GossipNode, address, merge_all


def state_of(*nodes: PushPullNode, join: bool = True) -> bytes:
    return PushPull(join, list(nodes), b"").encode()


def remote(name: str, host: int, state: int = STATE_ALIVE, versions: bytes = OUR_VERSIONS) -> PushPullNode:
    return PushPullNode(name, bytes((10, 0, 0, host)), 8902, b"", 1, state, versions)


def test_the_answer_to_a_join_does_not_contain_the_joiner() -> None:
    node = GossipNode()
    stream = node.gossip.exchanges.open_incoming()
    assert stream is not None
    request = state_of(remote("n2", 2))
    assert stream.receive_data(request[:10], node.now) == b""
    reply = stream.receive_data(request[10:], node.now)
    assert stream.closed
    assert reply == state_of(remote("me", 1))
    assert node.state(2) == STATE_ALIVE
    stream.abandon()
    assert node.gossip.exchanges.incoming_bytes == node.gossip.exchanges.incoming_streams == 0


def test_ping_over_a_stream() -> None:
    node = GossipNode()
    stream = node.gossip.exchanges.open_incoming()
    assert stream is not None
    assert stream.receive_data(Ping(9, "me", b"", 0, "").encode(), node.now) == Ack(9, None).encode()
    stream = node.gossip.exchanges.open_incoming()
    assert stream is not None
    assert stream.receive_data(Ping(9, "you", b"", 0, "").encode(), node.now) == b""
    assert stream.closed


def test_one_wrong_version_refuses_the_whole_merge() -> None:
    node = GossipNode()
    stream = node.gossip.exchanges.open_incoming()
    assert stream is not None
    stream.receive_data(state_of(remote("n2", 2), remote("n3", 3, versions=bytes((3, 5, 3, 2, 5, 4)))), node.now)
    assert node.gossip.counters.dropped[DropReason.BAD_VERSION] == 1
    assert list(node.gossip.table.nodes) == ["me"]


def many(count: int) -> list[PushPullNode]:
    return [
        PushPullNode(f"n{n}", n.to_bytes(4, "big"), 8902, b"", 1, STATE_ALIVE, OUR_VERSIONS) for n in range(9, count)
    ]


def test_many_nodes_are_merged_in_slices_in_turn_and_the_streams_count_until_then() -> None:
    node = GossipNode()
    exchanges = node.gossip.exchanges
    large, small = exchanges.open_incoming(), exchanges.open_incoming()
    assert large is not None
    assert small is not None
    data = state_of(*many(9 + 3 * SLICE_NODES))
    large.receive_data(data[:-1], node.now)
    while large.is_behind:
        large.receive_data(b"", node.now)
    assert large.receive_data(data[-1:], node.now) == state_of(remote("me", 1))  # the answer does not wait
    large.abandon()
    assert len(node.gossip.table) == 1 + SLICE_NODES
    assert (exchanges.incoming_streams, exchanges.incoming_bytes > 60_000) == (2, True)
    assert len(small.receive_data(state_of(remote("one more", 2)), node.now)) > SLICE_NODES  # the first slice is known
    assert "one more" in node.gossip.table.nodes
    assert merge_all(node.gossip, node.now) == 2
    assert len(node.gossip.table) == 2 + 3 * SLICE_NODES
    assert (exchanges.incoming_streams, exchanges.incoming_bytes) == (1, 0)
    small.abandon()
    assert exchanges.incoming_streams == 0


def test_a_join_ends_with_its_merge_although_the_stream_is_closed_before() -> None:
    pool = FactsPool()
    joins = Joins()
    gossip = Gossip(pool.get("me", OWN, 8902, b"", OUR_VERSIONS), LAN, Random(1), Counters(), joins, pool, 0.0)
    gossip.exchanges.join(address(2), 1, 5, 0.0)
    (request,) = gossip.exchanges.take_requests()
    is_over = gossip.exchanges.receive_reply(request.request_id, state_of(*many(9 + 2 * SLICE_NODES)), "", 0.0)
    while not is_over:
        is_over = gossip.exchanges.receive_reply(request.request_id, b"", "", 0.0)
    assert gossip.exchanges.receive_reply(request.request_id, None, "the connection was closed", 0.0)
    assert joins.results == []
    assert merge_all(gossip, 0.0) == 1
    assert joins.results == [(5, "")]
    assert len(gossip.table) == 1 + 2 * SLICE_NODES


def test_members_that_others_hold_for_dead_become_suspects() -> None:
    node = GossipNode()
    node.know(2, 3, 4)
    stream = node.gossip.exchanges.open_incoming()
    assert stream is not None
    stream.receive_data(state_of(remote("n2", 2, 2), remote("n3", 3, 1), remote("n4", 4, 3)), node.now)
    assert [node.state(host) for host in (2, 3, 4)] == [STATE_SUSPECT, STATE_SUSPECT, 3]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x0a\x00\x00\x01\x00", DropReason.ENCRYPTED),
        (b"\xffgarbage", DropReason.MALFORMED_STREAM),
        (b"\x06\x01\x02\x03", DropReason.MALFORMED_STREAM),
    ],
)
def test_stream_garbage_is_answered_with_an_error(data: bytes, reason: DropReason) -> None:
    node = GossipNode()
    stream = node.gossip.exchanges.open_incoming()
    assert stream is not None
    assert stream.receive_data(data, node.now)[0] == 13
    assert stream.closed
    assert node.gossip.counters.dropped[reason] == 1
    assert node.gossip.exchanges.incoming_bytes == 0
    assert node.gossip.exchanges.incoming_streams == 1  # until the shell has closed it
    stream.abandon()
    stream.abandon()
    assert node.gossip.exchanges.incoming_streams == 0


def test_large_streams_keep_out_no_small_one() -> None:
    """Nobody needs a key for the begin of an encrypted stream, which is held until it is whole."""
    node = GossipNode()
    exchanges = node.gossip.exchanges
    sealing = Sealing(Keyring([bytes(range(32))], Random(1)), "")
    exchanges._sealing = sealing
    large = [exchanges.open_incoming() for _ in range(4)]
    for stream in large:
        assert stream is not None
        stream.receive_data(b"\x0a" + (20 << 20).to_bytes(4, "big"), node.now)
        stream.receive_data(bytes((16 << 20) - 5), node.now)
    assert exchanges.incoming_bytes == INCOMING_BYTES_MAX
    request = sealing.seal_request(state_of(*(remote(f"n{host}", host, 1) for host in range(2, 42))))
    small = exchanges.open_incoming()
    assert small is not None
    assert small.receive_data(request[:1000], node.now) == b""
    assert small.receive_data(request[1000:], node.now) != b""
    assert [stream is not None and stream.closed for stream in large].count(True) == 1
    assert node.gossip.counters.dropped[DropReason.STREAM_BYTES_FULL] == 1
    assert exchanges.incoming_bytes == 3 * (16 << 20)
    for stream in (*large, small):
        assert stream is not None
        stream.abandon()
    assert (exchanges.incoming_bytes, exchanges.incoming_streams) == (0, 0)


def test_streams_are_bounded_in_number_and_bytes() -> None:
    node = GossipNode()
    streams = [node.gossip.exchanges.open_incoming() for _ in range(STREAMS_MAX)]
    assert node.gossip.exchanges.open_incoming() is None
    assert node.gossip.counters.dropped[DropReason.STREAMS_FULL] == 1
    header = b"\x06" + encode({"Join": False, "Nodes": 0, "UserStateLen": 8 << 20})
    piece = bytes(1 << 20)
    for stream in streams:
        assert stream is not None
        stream.receive_data(header, node.now)
        for _ in range(7):
            stream.receive_data(piece, node.now)
    assert node.gossip.counters.dropped[DropReason.STREAM_BYTES_FULL] > 0
    assert node.gossip.exchanges.incoming_bytes <= INCOMING_BYTES_MAX
    for stream in streams:
        assert stream is not None
        stream.abandon()
    assert node.gossip.exchanges.incoming_bytes == node.gossip.exchanges.incoming_streams == 0


def test_periodic_push_pull_goes_to_a_living_member() -> None:
    node = GossipNode()
    node.know(2)
    for _ in range(400):
        node.pass_time(0.1)
        for message, destination in node.sent():
            if message[0] == PING:
                node.receive(Ack(Ping.decode(message[1:]).sequence, None).encode(), int(destination[0][-1]))
        requests = node.gossip.exchanges.take_requests()
        if requests:
            assert requests[0].address == address(2)
            assert requests[0].data[0] == 6
            answer = state_of(remote("n2", 2), remote("n9", 9), join=False)
            assert not node.gossip.exchanges.receive_reply(requests[0].request_id, answer[:5], "", node.now)
            assert node.gossip.exchanges.receive_reply(requests[0].request_id, answer[5:], "", node.now)
            assert node.state(9) == STATE_ALIVE
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
