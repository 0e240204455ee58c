"""Recent events, queries and intents: each is handled once, all are bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from federation.serf.messages import EVENTS_MAX
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
