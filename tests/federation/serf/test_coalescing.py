"""Bursts of events are told together."""

from __future__ import annotations

import pytest

from federation.serf import coalescing
from federation.serf.coalescing import COALESCE_PERIOD, QUIESCENT_PERIOD, MemberCoalescer, UserCoalescer
from federation.serf.events import (
    Member,
    MemberEvent,
    MemberFailed,
    MemberJoin,
    MemberReap,
    MemberStatus,
    MemberUpdate,
    UserEventReceived,
)


def member(name: str) -> Member:
    return Member(name, "10.0.0.1", 8902, {}, MemberStatus.ALIVE)


def told(coalescer: MemberCoalescer, now: float) -> list[tuple[str, list[str]]]:
    return [(type(events[0]).__name__, [event.member.name for event in events]) for events in coalescer.take(now)]


def test_the_last_event_of_each_member_is_told_by_type_when_it_is_quiet() -> None:
    members = MemberCoalescer()
    assert members.next_timeout() is None
    events: list[MemberEvent] = [MemberJoin(member("a")), MemberJoin(member("b")), MemberFailed(member("a"))]
    for index, event in enumerate(events):
        members.add(event, index * 0.5)
    assert members.next_timeout() == 1.0 + QUIESCENT_PERIOD
    assert told(members, 1.9) == []
    assert told(members, 2.0) == [("MemberFailed", ["a"]), ("MemberJoin", ["b"])]
    assert members.next_timeout() is None
    assert told(members, 100.0) == []


def test_events_that_never_rest_are_told_after_the_period() -> None:
    members = MemberCoalescer()
    at = 0.0
    while at < COALESCE_PERIOD:
        members.add(MemberUpdate(member("a")), at)
        assert told(members, at) == []
        at += QUIESCENT_PERIOD / 2
    assert told(members, COALESCE_PERIOD) == [("MemberUpdate", ["a"])]


def test_a_member_that_flaps_within_a_window_is_not_told_again() -> None:
    members = MemberCoalescer()
    for number, kinds in enumerate([(MemberJoin,), (MemberFailed, MemberJoin), (MemberUpdate,), (MemberUpdate,)]):
        for kind in kinds:
            members.add(kind(member("a")), number * 10.0)
        expected = [] if number == 1 else [(kinds[-1].__name__, ["a"])]
        assert told(members, number * 10.0 + 1.0) == expected
    members.add(MemberReap(member("a")), 50.0)
    assert told(members, 51.0) == [("MemberReap", ["a"])]
    members.add(MemberReap(member("a")), 60.0)  # it was forgotten, so this is another one of the name
    assert told(members, 61.0) == [("MemberReap", ["a"])]


@pytest.mark.interpreted
def test_what_is_held_back_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalescing, "COALESCED_MAX", 2)
    members, users = MemberCoalescer(), UserCoalescer()
    for name in ("a", "b"):
        assert told(members, 0.0) == []
        members.add(MemberJoin(member(name)), 0.0)
        assert users.take(0.0) == []
        users.add(UserEventReceived(1, name, b"", True), 0.0)
    assert told(members, 0.0) == [("MemberJoin", ["a", "b"])]
    assert len(users.take(0.0)) == 2


def test_of_user_events_of_a_name_those_of_the_latest_time_are_told() -> None:
    users = UserCoalescer()
    events = [(1, "a", b"1"), (3, "a", b"2"), (2, "a", b"3"), (3, "a", b"4"), (1, "b", b"5")]
    for time, name, payload in events:
        users.add(UserEventReceived(time, name, payload, True), 0.0)
    assert users.take(0.9) == []
    assert [(event.lamport_time, event.payload) for event in users.take(1.0)] == [(3, b"2"), (3, b"4"), (1, b"5")]
