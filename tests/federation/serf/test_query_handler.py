"""Queries: others are acknowledged and passed on, and the node that asks about its name decides on it."""

from __future__ import annotations

from random import Random

import pytest

from federation.gossip.counters import DropReason
from federation.gossip.messages import USER
from federation.gossip.wire import open_packet
from federation.serf.config import SerfConfig
from federation.serf.events import MemberStatus, NameConflict, QueryReceived
from federation.serf.messages import (
    FLAG_ACK,
    FLAG_NO_BROADCAST,
    QUERY_RESPONSE,
    RELAY,
    ConflictResponse,
    Query,
    QueryResponse,
    RelayMessage,
)
from federation.serf.messages import encode_unknown_name as unknown
from federation.serf.query_handler import QUERY_CONFLICT, RELAYS_OF_RESPONSE_MAX
from federation.serf.serf import Serf
from gossip_node import introduce

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


def query(name: str, query_id: int = 9, flags: int = FLAG_ACK) -> bytes:
    return Query(5, query_id, bytes((10, 0, 0, 2)), 8902, "n2", None, flags, 0, 10**9, name, b"").encode()


@pytest.mark.parametrize("name", ["load", "_serf_ping", "_serf_list-keys", "_serf_new"])
def test_a_query_is_acknowledged_once_and_passed_on(name: str) -> None:
    serf = new_serf()
    for _ in range(2):
        serf.user_message(query(name), 0.0)
    responses = responses_sent(serf)
    assert [response.flags for response in responses] == ([FLAG_ACK, 0] if name == "_serf_list-keys" else [FLAG_ACK])
    assert all(b"not encrypted" in (response.payload or b"") for response in responses[1:])
    assert serf.counters.dropped[DropReason.UNKNOWN_QUERY] == (1 if name == "_serf_new" else 0)
    assert serf.take_broadcasts(2, 1400, 10) == [b"\x08" + query(name)]
    received = [event.query.name for event in serf.take_events() if isinstance(event, QueryReceived)]
    assert received == (["load"] if name == "load" else [])


def test_no_ack_is_sent_unless_asked_for() -> None:
    serf = new_serf()
    serf.user_message(query("load", flags=0), 0.0)
    assert responses_sent(serf) == []


def test_a_query_with_the_flag_is_not_passed_on() -> None:
    serf = new_serf()
    serf.user_message(query("load", flags=FLAG_NO_BROADCAST), 0.0)
    assert not serf.has_broadcasts()
    assert [type(event) for event in serf.take_events()] == [QueryReceived]


def test_a_query_from_before_the_join_is_dropped() -> None:
    serf = new_serf()
    serf._queries.min_time = 6
    serf.user_message(query("load"), 0.0)
    assert (serf.take_events(), responses_sent(serf), serf.has_broadcasts()) == ([], [], False)


def received_query(serf: Serf) -> QueryReceived:
    serf.user_message(query("load", flags=0), 10.0)
    (received,) = serf.take_events()
    assert isinstance(received, QueryReceived)
    return received


def test_a_query_is_answered_once_before_its_deadline() -> None:
    serf = new_serf()
    received = received_query(serf)
    with pytest.raises(ValueError, match="1024"):
        serf.answer(received, bytes(1024), 10.5)
    serf.answer(received, b"0.7", 11.0)
    (response,) = responses_sent(serf)
    assert (response.origin, response.flags, response.payload) == ("me", 0, b"0.7")
    with pytest.raises(ValueError, match="already"):
        serf.answer(received, b"0.8", 11.0)
    late = received_query(new_serf())
    with pytest.raises(ValueError, match="deadline"):
        serf.answer(late, b"0.7", 11.1)
    assert responses_sent(serf) == []


@pytest.mark.parametrize(("factor", "others", "relays"), [(0, 4, 0), (2, 4, 2), (4, 4, 4), (5, 4, 0), (255, 300, None)])
def test_a_response_is_relayed_by_others(factor: int, others: int, relays: int | None) -> None:
    """Serf sends no relays when it knows too few members."""
    serf = new_serf()
    for number in range(2, others + 2):
        node = Serf(SerfConfig(f"n{number}", f"10.0.{number >> 8}.{number & 255}", 8902), Random(number), 0.0)
        introduce(serf, node)
    serf.packets_to_send()
    asked = Query(5, 9, bytes((10, 0, 0, 2)), 8902, "n2", None, FLAG_ACK, factor, 10**9, "_serf_ping", None)
    serf.user_message(asked.encode(), 0.0)
    found = [
        (RelayMessage.decode(message[2:]), destination)
        for data, destination in serf.packets_to_send()
        for message in open_packet(data, serf.counters)
        if message[:2] == bytes((USER, RELAY))
    ]
    assert len(found) == (RELAYS_OF_RESPONSE_MAX if relays is None else relays)
    assert len({destination for _, destination in found}) == len(found)
    assert ("10.0.0.1", 8902) not in [destination for _, destination in found]
    for relay, _ in found:
        assert (relay.addr, relay.port) == (bytes((10, 0, 0, 2)), 8902)
        assert QueryResponse.decode(relay.message[1:]).origin == "me"


def test_a_response_of_more_than_1024_bytes_is_dropped() -> None:
    serf = Serf(SerfConfig("m" * 255, "10.0.0.1", 8902), Random(1), 0.0)
    name = "n" * 255
    other = Serf(SerfConfig(name, "10.0.0.9", 8902, {"a": "x" * 500}), Random(2), 0.0)
    introduce(serf, other)
    asked = Query(5, 9, bytes((10, 0, 0, 2)), 8902, "n2", None, 0, 0, 10**9, QUERY_CONFLICT, name.encode())
    serf.user_message(asked.encode(), 0.0)
    assert responses_sent(serf) == []
    assert serf.counters.dropped[DropReason.MESSAGE_TOO_LARGE] == 1


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
    asked = Query.decode(message[2:])
    assert (asked.name, asked.payload) == (QUERY_CONFLICT, b"me")
    for number, payload in enumerate(claims):
        for answer in (payload, claim(1)):  # the first response of each member counts
            response = QueryResponse(asked.lamport_time, asked.query_id, f"n{number}", 0, answer)
            serf.user_message(response.encode(), 0.5)
    assert serf.take_events() == [NameConflict("me", "10.0.0.9", 8902, True, False)]
    for query_id, flags, time in (
        (asked.query_id + 1, 0, 0.5),
        (asked.query_id, FLAG_ACK, 0.5),
        (asked.query_id, 0, 30.0),
    ):
        stranger = QueryResponse(
            asked.lamport_time, query_id, "late", flags, claim(9)
        )  # of another query, an ack, late
        serf.user_message(stranger.encode(), time)
    serf.handle_timeout(60.0)
    decided = [event for event in serf.take_events() if isinstance(event, NameConflict)]
    assert decided == ([NameConflict("me", "10.0.0.9", 8902, True, True)] if lost else [])
