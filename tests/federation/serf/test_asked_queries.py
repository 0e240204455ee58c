"""Queries of this node, and what is collected for them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.config import LAN
from federation.gossip.counters import DropReason
from federation.gossip.msgpack_fields import decode
from federation.serf import asked_queries
from federation.serf.asked_queries import ASKED_QUERIES_MAX, AskedQuery, QueryParameters
from federation.serf.config import SerfConfig
from federation.serf.events import Event, QueryEnded, QueryReceived, QueryResponded
from federation.serf.messages import FLAG_ACK, Query, QueryResponse
from federation.serf.serf import Serf
from gossip_node import introduce


def new_serf() -> Serf:
    serf = Serf(SerfConfig("me", "10.0.0.1", 8902, {"role": "edge"}), Random(1), 0.0)
    serf.take_events()
    return serf


def know(serf: Serf, count: int) -> None:
    for number in range(2, count + 1):
        other = Serf(SerfConfig(f"n{number}", f"10.0.{number >> 8}.{number & 255}", 8902), Random(number), 0.0)
        introduce(serf, other)
    serf.take_events()


def respond(
    serf: Serf, asked: AskedQuery, origin: str, payload: bytes | None, now: float = 1.0, flags: int = 0
) -> None:
    response = QueryResponse(asked.query.lamport_time, asked.query.query_id, origin, flags, payload)
    serf.user_message(response.encode(), now)


def test_acks_and_responses_are_collected_until_the_deadline() -> None:
    serf = new_serf()
    asked = serf.query("load", b"1m", 0.0, QueryParameters(request_ack=True))
    (first, second) = serf.take_events()
    assert first == QueryResponded(asked.number, "me", b"", True)  # this node acknowledges its own query, too
    assert isinstance(second, QueryReceived)
    serf.answer(second, b"0.1", 0.5)
    respond(serf, asked, "n2", None, flags=FLAG_ACK)
    for payload in (b"0.7", b"0.8"):  # relays repeat it
        respond(serf, asked, "n2", payload)
    stranger = QueryResponse(asked.query.lamport_time, asked.query.query_id ^ 1, "n3", 0, b"")
    serf.user_message(stranger.encode(), 1.0)
    told: list[Event] = [
        QueryResponded(asked.number, "me", b"0.1", False),
        QueryResponded(asked.number, "n2", b"", True),
        QueryResponded(asked.number, "n2", b"0.7", False),
    ]
    assert serf.take_events() == told
    assert serf.next_timeout() <= asked.deadline == pytest.approx(3.2)
    respond(serf, asked, "n4", b"", 3.3)
    serf.handle_timeout(3.3)
    assert serf.take_events() == [QueryEnded(asked.number)]
    respond(serf, asked, "n5", b"", 3.3)
    assert (asked.is_over, list(asked.acks), asked.responses) == (True, ["me", "n2"], {"me": b"0.1", "n2": b"0.7"})
    counters = serf.counters
    assert (counters.query_responses_received, counters.query_responses_repeated, counters.query_responses_late) == (
        4,
        1,
        3,
    )


def test_the_message_has_filters_flags_and_the_address_of_this_node() -> None:
    serf = new_serf()
    parameters = QueryParameters(("n2", "n3"), {"role": "^web"}, True, 3, 2.5)
    serf.query("load", b"1m", 0.0, parameters)
    (message,) = serf.take_broadcasts(2, 1400, 10)
    query = Query.decode(message[2:])
    assert (query.addr, query.port, query.source_node) == (bytes((10, 0, 0, 1)), 8902, "me")
    assert (query.flags, query.relay_factor, query.timeout_ns) == (FLAG_ACK, 3, 2_500_000_000)
    assert query.filters is not None
    assert [(item[0], decode(item[1:])) for item in query.filters] == [
        (0, [b"n2", b"n3"]),
        (1, {b"Expr": b"^web", b"Tag": b"role"}),
    ]
    assert serf.take_events() == []  # the filters leave this node out


def test_a_query_can_be_ended_early_and_a_quiet_one_tells_nothing() -> None:
    serf = new_serf()
    quiet = serf.query("_serf_ping", b"", 0.0, QueryParameters(request_ack=True), is_quiet=True)
    asked = serf.query("_serf_ping", b"", 0.0)
    serf.asked_queries.end(asked)
    serf.asked_queries.end(asked)
    serf.handle_timeout(100.0)
    assert serf.take_events() == [QueryEnded(asked.number)]
    assert quiet.is_over
    assert list(quiet.acks) == ["me"]
    assert len(serf.asked_queries) == 0


@pytest.mark.parametrize(("members", "seconds"), [(1, 3.2), (9, 3.2), (10, 6.4), (99, 6.4), (100, 9.6)])
def test_the_default_timeout_grows_with_the_cluster(members: int, seconds: float) -> None:
    serf = new_serf()
    know(serf, members)
    assert serf.query("load", b"", 7.0).deadline - 7.0 == pytest.approx(seconds)
    assert LAN.gossip_interval * 16 == 3.2


@pytest.mark.parametrize(
    ("payload", "parameters", "reason"),
    [
        (bytes(1024), QueryParameters(), "1024 bytes"),
        (b"", QueryParameters(filter_nodes=("n" * 250,) * 5), "1024 bytes"),
        (b"", QueryParameters(relay_factor=256), "relay factor 256"),
        (b"", QueryParameters(timeout=-1.0), "-1"),
        (b"", QueryParameters(timeout=1e12), "too long"),
        (b"", QueryParameters(timeout=float("nan")), "nan"),
    ],
)
def test_a_query_that_cannot_be_sent_is_refused(payload: bytes, parameters: QueryParameters, reason: str) -> None:
    serf = new_serf()
    with pytest.raises(ValueError, match=reason):
        serf.query("load", payload, 0.0, parameters)
    assert not serf.has_broadcasts()
    assert len(serf.asked_queries) == 0


def test_queries_under_way_are_bounded() -> None:
    serf = new_serf()
    for _ in range(ASKED_QUERIES_MAX):
        serf.query("load", b"", 0.0)
    with pytest.raises(ValueError, match=str(ASKED_QUERIES_MAX)):
        serf.query("load", b"", 0.0)
    serf.query("_serf_conflict", b"me", 0.0, is_quiet=True)
    serf.handle_timeout(100.0)
    serf.query("load", b"", 100.0)


@pytest.mark.interpreted
def test_responses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked_queries, "RESPONSES_MAX", 3)
    monkeypatch.setattr(asked_queries, "RESPONSE_BYTES_MAX", 10)  # names of members count, too
    serf = new_serf()
    asked = serf.query("_serf_ping", b"", 0.0)
    for number, payload in enumerate((b"1", b"123456", b"123", b"", b"")):
        respond(serf, asked, f"n{number}", payload)
    assert asked.responses == {"n0": b"1", "n2": b"123", "n3": b""}
    assert serf.counters.dropped[DropReason.RESPONSES_FULL] == 2
    serf.handle_timeout(100.0)
    again = serf.query("_serf_ping", b"", 100.0)  # the first one's bytes are free
    respond(serf, again, "n1", b"12345", 101.0)
    assert again.responses == {"n1": b"12345"}


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.binary(max_size=3), st.integers(0, 9)), max_size=30)
)
def test_the_collector_has_the_first_of_each_member(steps: list[tuple[str, bool, bytes, int]]) -> None:
    serf = new_serf()
    asked = serf.query("_serf_ping", b"", 0.0, QueryParameters(timeout=5.0, request_ack=True))
    acks: list[str] = []
    responses: dict[str, bytes] = {}
    for origin, is_ack, payload, now in sorted(steps, key=lambda step: step[3]):
        respond(serf, asked, origin, payload, float(now), flags=FLAG_ACK if is_ack else 0)
        if now <= 5 and is_ack and origin not in acks:
            acks.append(origin)
        elif now <= 5 and not is_ack:
            responses.setdefault(origin, payload)
    assert [origin for origin in asked.acks if origin in "abc"] == acks  # the node itself acks, too
    assert asked.responses == responses


def test_acks_that_nobody_asked_for_are_not_kept() -> None:
    serf = new_serf()
    asked = serf.query("_serf_ping", b"", 0.0)
    respond(serf, asked, "n1", b"", flags=FLAG_ACK)
    assert (asked.acks, serf.counters.query_responses_late) == ({}, 1)


@pytest.mark.parametrize(("label", "longest"), [("", 1024), ("l" * 255, 1280 - 2 - 255 - 10)])
def test_a_query_that_no_packet_takes_is_refused(label: str, longest: int) -> None:
    """With small packets and a long label the limit is that of a packet: a longer query would wait in its queue for ever."""
    profile = replace(LAN, packet_bytes_max=1280)
    serf = Serf(SerfConfig("me", "10.0.0.1", 8902, profile=profile, label=label), Random(1), 0.0)
    other = Serf(SerfConfig("n2", "10.0.0.2", 8902, profile=profile), Random(2), 0.0)
    introduce(serf, other)
    serf.gossip.membership.queue.take(0, 1 << 20, 100, 1)
    empty = len(serf.query("load", b"", 0.0, is_quiet=True).query.encode())
    payload = bytes(longest - empty - 2)  # a longer string has two more bytes of length
    with pytest.raises(ValueError, match=str(longest)):
        serf.query("load", payload + b"x", 0.0)
    asked = serf.query("load", payload, 0.0, is_quiet=True)
    assert len(asked.query.encode()) == longest
    sent = serf.take_broadcasts(2, serf.gossip.broadcast_bytes_max + 3, 100)
    assert asked.query.encode() in [message[1:] for message in sent]
