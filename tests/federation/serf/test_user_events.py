"""User events of this node and of others."""

from __future__ import annotations

from random import Random

import pytest

from federation.gossip.counters import DropReason
from federation.serf.config import SerfConfig
from federation.serf.events import Event, UserEventReceived
from federation.serf.messages import UserEvent
from federation.serf.serf import Serf
from federation.serf.state import SerfState
from federation.serf.user_events import USER_EVENT_BYTES_MAX
from gossip_node import merge_state, user_event, user_events


def new_serf() -> Serf:
    serf = Serf(SerfConfig("me", "10.0.0.1", 8902), Random(1), 0.0)
    serf.take_events()
    return serf


def broadcast(serf: Serf) -> list[UserEvent]:
    return [UserEvent.decode(message[2:]) for message in serf.take_broadcasts(2, 1 << 20, 100)]


def test_an_event_is_delivered_here_and_broadcast_with_rising_times() -> None:
    serf = new_serf()
    serf.user_event("deploy", b"now", coalesce=True)
    serf.user_event("deploy", b"now")
    told: list[Event] = [UserEventReceived(1, "deploy", b"now", True), UserEventReceived(2, "deploy", b"now", False)]
    assert serf.take_events() == told
    assert sorted(broadcast(serf), key=lambda event: event.lamport_time) == [
        UserEvent(1, "deploy", b"now", True),
        UserEvent(2, "deploy", b"now", False),
    ]
    assert user_events(serf) == [(1, "deploy", b"now"), (2, "deploy", b"now")]
    assert (serf.counters.user_events_sent, serf.counters.user_events_received) == (2, 2)


def test_a_new_event_is_later_than_all_that_were_heard() -> None:
    serf = new_serf()
    serf.user_message(user_event(41, "other"), 0.0)
    serf.user_event("own", b"")
    assert [event.lamport_time for event in broadcast(serf) if event.name == "own"] == [42]


@pytest.mark.parametrize(
    ("name", "payload", "reason"),
    [
        ("", b"", "name"),
        ("x" * 513, b"", "before encoding: it has 513"),
        ("é", bytes(USER_EVENT_BYTES_MAX - 1), "before encoding: it has 513"),
        ("deploy", bytes(USER_EVENT_BYTES_MAX - 6), "after encoding"),
    ],
)
def test_events_that_are_too_long_are_refused(name: str, payload: bytes, reason: str) -> None:
    serf = new_serf()
    with pytest.raises(ValueError, match=reason):
        serf.user_event(name, payload)
    assert serf.take_events() == []
    assert not serf.has_broadcasts()
    serf.user_event("next", b"")  # no time was used
    assert user_events(serf) == [(1, "next", b"")]


def test_old_and_oversized_events_are_not_delivered() -> None:
    serf = new_serf()
    serf.user_events.min_time = 5
    serf.user_message(user_event(4, "old"), 0.0)
    state = SerfState(events=[(3, "old", b""), (5, "new", b""), (5, "long", bytes(9300))]).encode()
    merge_state(serf, state)
    serf.user_message(user_event(5, "new"), 0.0)
    assert serf.take_events() == [UserEventReceived(5, "new", b"", False)]
    assert serf.counters.dropped[DropReason.MESSAGE_TOO_LARGE] == 1
    assert not serf.has_broadcasts()  # what a push-pull brings is not passed on
