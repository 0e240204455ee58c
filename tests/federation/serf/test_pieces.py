"""Pieces of Serf: tags, dedupe windows, query filters, and retry_join on a clock of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.gossip import counters as reasons
from federation.gossip.counters import Counters
from federation.gossip.errors import WireError
from federation.gossip.members import NodeFacts
from federation.gossip.messages import OUR_VERSIONS
from federation.gossip.msgpack_fields import encode
from federation.serf.config import SerfConfig
from federation.serf.event_queue import EventQueue
from federation.serf.events import MemberReap
from federation.serf.messages import EVENTS_MAX, JoinIntent, LeaveIntent
from federation.serf.queries import filters_match
from federation.serf.recent import (
    RECENT_BYTES_MAX,
    SEEN_BEFORE,
    SEEN_FULL,
    SEEN_NEW,
    SEEN_TOO_OLD,
    SLOT_MAX,
    RecentIntents,
    RecentMessages,
)
from federation.serf.retry_join import RETRY_INTERVAL_MAX, RetryJoin, SeedsJoined, SeedsUnreachable
from federation.serf.roster import INTENT_ABOUT_SELF, INTENT_IGNORED, Roster
from federation.serf.tags import decode_tags, encode_tags


@given(st.dictionaries(st.text(max_size=10), st.text(max_size=20), max_size=5))
def test_tags_come_back(tags: dict[str, str]) -> None:
    assert decode_tags(encode_tags(tags)) == tags


def test_known_tags() -> None:
    assert encode_tags({"fed_addr": "127.0.0.1:8901"}) == b"\xff\x81\xa8fed_addr\xae127.0.0.1:8901"
    assert encode_tags({}) == b"\xff\x80"
    assert decode_tags(b"web") == {"role": "web"}
    assert decode_tags(b"") == decode_tags(b"\xff\xc0") == {}


@given(st.binary(max_size=40))
def test_tag_garbage(data: bytes) -> None:
    try:
        decode_tags(b"\xff" + data)
    except WireError:
        pass


def test_a_message_is_new_once_within_the_window() -> None:
    recent = RecentMessages()
    assert recent.add(1, ("a", b""), 2) == SEEN_NEW
    assert recent.add(1, ("a", b""), 2) == SEEN_BEFORE
    assert recent.add(1, ("a", b"x"), 2) == SEEN_NEW
    assert recent.add(1 + EVENTS_MAX, ("a", b""), EVENTS_MAX + 2) == SEEN_NEW  # takes the slot
    assert recent.add(1, ("a", b""), EVENTS_MAX + 2) == SEEN_TOO_OLD
    for number in range(SLOT_MAX):
        assert recent.add(1001, (str(number), b""), 1002) == SEEN_NEW
    assert recent.add(1001, ("one more", b""), 1002) == SEEN_FULL


@given(st.lists(st.tuples(st.integers(0, 700), st.sampled_from("ab")), max_size=60))
def test_no_message_is_delivered_twice(stream: list[tuple[int, str]]) -> None:
    recent = RecentMessages()
    clock = 1
    delivered: set[tuple[int, str]] = set()
    for time, name in stream:
        clock = max(clock, time + 1)
        if recent.add(time, (name, b""), clock) == SEEN_NEW:
            assert (time, name) not in delivered
            delivered.add((time, name))


def test_recent_intents_keep_the_newest_and_expire() -> None:
    intents = RecentIntents()
    assert intents.add("a", True, 5, 0.0)
    assert not intents.add("a", False, 5, 1.0)
    assert intents.add("a", False, 6, 1.0)
    assert intents.add("b", True, 1, 100.0)
    intents.expire(50.0)
    assert intents.take("a") is None
    intent = intents.take("b")
    assert intent is not None
    assert (intent.leave, intent.lamport_time) == (True, 1)
    assert intents.take("b") is None


def node_filter(*names: str) -> bytes:
    return b"\x00" + encode(list(names))


def tag_filter(tag: str, expression: str) -> bytes:
    return b"\x01" + encode({"Expr": expression, "Tag": tag})


@pytest.mark.parametrize(
    ("filters", "matches"),
    [
        ([], True),
        ([bytes.fromhex("0091a163")], True),  # wire-gossip 7: node c
        ([bytes.fromhex("0182a445787072a465646765a3546167a4726f6c65")], True),  # wire-gossip 7: role edge
        ([node_filter("a", "b")], False),
        ([node_filter("a", "c"), tag_filter("role", "^ed.e$")], True),
        ([node_filter("c"), tag_filter("role", "^web")], False),
        ([tag_filter("missing", "^$")], True),
        ([tag_filter("role", "[")], False),
        ([tag_filter("role", "(e+)+$")], False),  # could run for ever on a longer value
        ([tag_filter("role", "x*" * 20)], False),
        ([tag_filter("role", "x" * 200)], False),
        ([b"\x02\x90"], False),
        ([b""], False),
        ([b"\x00\xc1"], False),
    ],
)
def test_query_filters(filters: list[bytes], matches: bool) -> None:
    assert filters_match(filters, "c", {"role": "edge"}) == matches


# --- retry_join


def test_all_seeds_are_tried_until_all_were_joined() -> None:
    retry = RetryJoin(["a", "b", "a"], 5.0, 60.0, 100.0)
    assert retry.next_timeout() == 100.0
    assert retry.take_hosts(100.0) == ["a", "b"]
    assert retry.next_timeout() is None  # nothing to do until the result is there
    assert retry.take_hosts(101.0) == []
    retry.attempt_finished({"b": "no answer"}, 102.0)
    assert retry.take_events() == [SeedsJoined(["a"])]
    assert retry.next_timeout() == 107.0
    assert retry.take_hosts(106.9) == []
    assert retry.take_hosts(107.0) == ["b"]
    retry.attempt_finished({}, 107.0)
    assert retry.take_events() == [SeedsJoined(["b"])]
    assert retry.next_timeout() is None
    assert retry.pending == []


def test_the_error_comes_once_and_the_tries_go_on_more_slowly() -> None:
    retry = RetryJoin(["a"], 5.0, 60.0, 0.0)
    now = 0.0
    told = []
    pauses = []
    for _ in range(30):
        at = retry.next_timeout()
        assert at is not None
        pauses.append(at - now)
        now = at
        assert retry.take_hosts(now) == ["a"]
        retry.attempt_finished({"a": "refused"}, now)
        told += [(now, event) for event in retry.take_events()]
    assert told == [(60.0, SeedsUnreachable(60.0, {"a": "refused"}))]
    assert pauses[1:14] == [5.0] * 13
    assert pauses[14:19] == [10.0, 20.0, 40.0, 60.0, 60.0]
    assert max(pauses) == RETRY_INTERVAL_MAX


def test_after_a_full_split_the_seeds_are_tried_again() -> None:
    retry = RetryJoin(["a", "b"], 5.0, 60.0, 0.0)
    retry.take_hosts(0.0)
    retry.attempt_finished({}, 0.0)
    retry.members_changed(2, 10.0)
    assert retry.next_timeout() is None
    retry.members_changed(0, 1000.0)
    assert retry.next_timeout() == 1005.0
    assert retry.take_hosts(1005.0) == ["a", "b"]


def test_a_seed_that_is_the_node_itself_is_forgotten() -> None:
    retry = RetryJoin(["self"], 5.0, 60.0, 0.0)
    retry.take_hosts(0.0)
    retry.remove("self")
    retry.attempt_finished({}, 0.0)
    retry.members_changed(0, 1.0)
    assert retry.next_timeout() is None
    assert retry.take_events() == []


@pytest.mark.parametrize(("interval", "timeout"), [(0.0, 1.0), (-1.0, 1.0), (1.0, -1.0)])
def test_bad_intervals(interval: float, timeout: float) -> None:
    with pytest.raises(ValueError, match="retry_"):
        RetryJoin(["a"], interval, timeout, 0.0)


def test_a_lost_member_may_have_been_a_seed_so_all_are_tried_again() -> None:
    retry = RetryJoin(["a", "b"], 5.0, 60.0, 0.0)
    retry.take_hosts(0.0)
    retry.attempt_finished({}, 0.0)
    assert retry.reached
    retry.member_lost(100.0)
    assert retry.take_hosts(104.9) == []
    assert retry.take_hosts(105.0) == ["a", "b"]
    retry.member_lost(105.1)  # while it is tried
    retry.attempt_finished({"b": "refused"}, 105.2)
    assert retry.pending == ["a", "b"]
    assert retry.take_hosts(110.2) == ["a", "b"]
    retry.attempt_finished({}, 110.3)
    assert retry.next_timeout() is None


def test_a_node_that_was_told_to_leave_does_not_come_back_by_itself() -> None:
    retry = RetryJoin(["a"], 5.0, 60.0, 0.0)
    assert not retry.reached
    retry.stop()
    assert retry.next_timeout() is None
    assert retry.take_hosts(0.0) == []
    retry.member_lost(10.0)
    retry.members_changed(0, 10.0)
    assert retry.take_hosts(1000.0) == []
    retry.resume()
    assert retry.take_hosts(1000.0) == ["a"]


# --- bounds


def test_a_window_of_events_is_bounded_in_bytes_too() -> None:
    recent = RecentMessages()
    payload = bytes(9000)
    clock = 1
    seen = []
    for time in range(1, 400):
        clock = max(clock, time + 1)
        seen.append(recent.add(time, ("event", payload), clock))
    kept = RECENT_BYTES_MAX // 9005
    assert seen == [SEEN_NEW] * kept + [SEEN_FULL] * (399 - kept)
    assert recent.add(1, ("event", payload), clock) == SEEN_BEFORE
    for time in range(600, 600 + 512):  # the window moves on and has room again
        assert recent.add(time, ("event", b""), time + 1) == SEEN_NEW
    assert recent.add(1200, ("event", payload), 1201) == SEEN_NEW


def test_the_longest_gone_member_is_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("federation.serf.roster.RECORDS_MAX", 4)
    counters = Counters()
    events = EventQueue(counters)
    config = SerfConfig("own", "10.0.0.1", 8902)
    roster = Roster(NodeFacts("own", b"\x0a\0\0\1", 8902, b"", OUR_VERSIONS), config, counters, events)
    for number in range(10):
        facts = NodeFacts(f"m{number}", bytes((10, 0, 1, number)), 8902, b"", OUR_VERSIONS)
        roster.node_joined(facts, float(number))
        roster.node_left(facts, False, float(number))
    assert sorted(roster.records) == ["m7", "m8", "m9", "own"]
    assert counters.dropped[reasons.TABLE_FULL] == 7
    assert sum(isinstance(event, MemberReap) for event in events.take()) == 7


def test_a_leave_at_the_time_of_our_join_is_refuted() -> None:
    counters = Counters()
    config = SerfConfig("own", "10.0.0.1", 8902)
    facts = NodeFacts("own", b"\x0a\0\0\1", 8902, b"", OUR_VERSIONS)
    roster = Roster(facts, config, counters, EventQueue(counters))
    roster.apply_join(JoinIntent(7, "own"), 0.0)
    assert roster.apply_leave(LeaveIntent(6, "own", False), False, 0.0) == INTENT_IGNORED
    assert roster.apply_leave(LeaveIntent(7, "own", False), False, 0.0) == INTENT_ABOUT_SELF
    assert roster.apply_leave(LeaveIntent(7, "own", False), True, 0.0) == INTENT_IGNORED
