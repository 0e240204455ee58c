"""Queries of one node: responses are collected, the node that asks decides on its name."""

from __future__ import annotations

from random import Random

import pytest

from federation.gossip.messages import USER
from federation.gossip.wire import open_packet
from federation.serf.config import SerfConfig
from federation.serf.events import MemberStatus, NameConflict, QueryFinished, QueryReceived
from federation.serf.messages import FLAG_ACK, QUERY_RESPONSE, ConflictResponse, Query, QueryResponse
from federation.serf.messages import encode_unknown_name as unknown
from federation.serf.queries import PENDING_QUERIES_MAX
from federation.serf.query_handler import QUERY_CONFLICT
from federation.serf.serf import Serf

OUR_VERSIONS = bytes((1, 5, 2, 2, 5, 4))


def new_serf() -> Serf:
    serf = Serf(SerfConfig("me", "10.0.0.1", 8902), Random(1), 0.0)
    serf.take_events()
    return serf


def responses_sent(serf: Serf) -> list[QueryResponse]:
    return [
        QueryResponse.decode(message[2:])
        for data, _ in serf.packets_to_send()
        for message in open_packet(data, serf.counters)
        if message[:2] == bytes((USER, QUERY_RESPONSE))
    ]


def test_one_ack_and_one_response_of_each_member_count_until_the_deadline() -> None:
    serf = new_serf()
    query_id = serf.query("load", b"cpu", 0.0, timeout=2.0, want_acks=True)
    (own,) = [event for event in serf.take_events() if isinstance(event, QueryReceived)]
    for payload in (b"first", b"second"):
        serf.user_message(QueryResponse(own.lamport_time, query_id, "n2", 0, payload).encode(), 1.0)
        serf.user_message(QueryResponse(own.lamport_time, query_id, "n2", FLAG_ACK, None).encode(), 1.0)
    serf.user_message(QueryResponse(own.lamport_time, query_id + 1, "n3", 0, b"another query").encode(), 1.0)
    serf.user_message(QueryResponse(own.lamport_time, query_id, "n3", 0, b"late").encode(), 2.1)
    serf.handle_timeout(2.1)
    finished = [event for event in serf.take_events() if isinstance(event, QueryFinished)]
    assert finished == [QueryFinished(query_id, ["me", "n2"], {"n2": b"first"})]


def test_a_query_is_answered_once_and_not_after_its_deadline() -> None:
    serf = new_serf()
    query = Query(5, 9, bytes((10, 0, 0, 2)), 8902, "n2", [], FLAG_ACK, 0, 10**9, "load", b"")
    for _ in range(2):
        serf.user_message(query.encode(), 0.0)
    (received,) = [event for event in serf.take_events() if isinstance(event, QueryReceived)]
    assert received.deadline == 1.0
    assert [response.flags for response in responses_sent(serf)] == [FLAG_ACK]
    serf.respond(received, b"42", 0.9)
    serf.respond(received, b"late", 1.1)
    assert [response.payload for response in responses_sent(serf)] == [b"42"]
    with pytest.raises(ValueError, match="at most 1024"):
        serf.respond(received, bytes(1024), 0.9)


def test_queries_under_way_are_bounded() -> None:
    serf = new_serf()
    for _ in range(PENDING_QUERIES_MAX):
        serf.query("q", b"", 0.0)
    with pytest.raises(ValueError, match="128 queries are under way"):
        serf.query("q", b"", 0.0)
    with pytest.raises(ValueError, match="at most 1024"):
        new_serf().query("q", bytes(1024), 0.0)


def claim(host: int, status: MemberStatus = MemberStatus.ALIVE) -> bytes:
    """A response: the name belongs to the member at this address."""
    return ConflictResponse("me", bytes((10, 0, 0, host)), 8902, {}, status, OUR_VERSIONS).encode()


@pytest.mark.parametrize(
    ("claims", "lost"),
    [
        ([], False),
        ([claim(9)], True),
        ([claim(1)], False),
        ([claim(1), claim(9)], True),  # half is no majority
        ([claim(1), claim(1), claim(9)], False),
        ([claim(9, MemberStatus.FAILED)], False),
        ([unknown(), b"", b"\x05\x80", b"\x06\xc1"], False),
        ([unknown(), claim(9)], True),
    ],
)
def test_the_majority_keeps_the_name(claims: list[bytes], lost: bool) -> None:
    serf = new_serf()
    own = serf.gossip.membership.own.facts
    other = Serf(SerfConfig("me", "10.0.0.9", 8902), Random(2), 0.0).gossip.membership.own.facts
    serf.node_conflict(own, other, 0.0)
    (message,) = [message for message in serf.take_broadcasts(0, 1400, 10) if message[1] == 4]
    query = Query.decode(message[2:])
    assert (query.name, query.payload) == (QUERY_CONFLICT, b"me")
    for number, payload in enumerate(claims):
        serf.user_message(QueryResponse(query.lamport_time, query.query_id, f"n{number}", 0, payload).encode(), 0.5)
    assert serf.take_events() == [NameConflict("me", "10.0.0.9", 8902, True, False)]
    serf.handle_timeout(60.0)
    decided = [event for event in serf.take_events() if isinstance(event, NameConflict)]
    assert decided == ([NameConflict("me", "10.0.0.9", 8902, True, True)] if lost else [])
