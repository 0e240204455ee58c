"""Recent events, queries and intents: each is handled once, all are bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.counters import Counters, DropReason
from federation.serf.messages import EVENTS_MAX
from federation.serf.recent import (
    RECENT_BYTES_MAX,
    SLOT_MAX,
    RecentIntents,
    RecentMessages,
)


def test_a_message_is_new_once_within_the_window() -> None:
    counters = Counters()
    recent = RecentMessages(counters)
    assert recent.add(1, ("a", b""), 2)
    assert not recent.add(1, ("a", b""), 2)
    assert recent.add(1, ("a", b"x"), 2)
    assert recent.add(1 + EVENTS_MAX, ("a", b""), EVENTS_MAX + 2)  # takes the slot
    assert counters.drops == 0
    assert not recent.add(1, ("a", b""), EVENTS_MAX + 2)
    assert counters.dropped[DropReason.EVENT_TOO_OLD] == 1
    for number in range(SLOT_MAX):
        assert recent.add(1001, (str(number), b""), 1002)
    assert not recent.add(1001, ("one more", b""), 1002)
    assert counters.dropped[DropReason.EVENT_SLOT_FULL] == 1


@given(st.lists(st.tuples(st.integers(0, 700), st.sampled_from("ab")), max_size=60))
def test_no_message_is_delivered_twice(stream: list[tuple[int, str]]) -> None:
    recent = RecentMessages(Counters())
    clock = 1
    delivered: set[tuple[int, str]] = set()
    for time, name in stream:
        clock = max(clock, time + 1)
        if recent.add(time, (name, b""), clock):
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


def test_a_window_of_events_is_bounded_in_bytes_too() -> None:
    counters = Counters()
    recent = RecentMessages(counters)
    payload = bytes(9000)
    clock = 1
    seen = []
    for time in range(1, 400):
        clock = max(clock, time + 1)
        seen.append(recent.add(time, ("event", payload), clock))
    kept = RECENT_BYTES_MAX // 9005
    assert seen == [True] * kept + [False] * (399 - kept)
    assert not recent.add(1, ("event", payload), clock)
    assert counters.dropped[DropReason.EVENT_SLOT_FULL] == 399 - kept
    for time in range(600, 600 + 512):  # the window moves on and has room again
        assert recent.add(time, ("event", b""), time + 1)
    assert recent.add(1200, ("event", payload), 1201)
