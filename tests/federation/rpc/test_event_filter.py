"""Filters of event streams."""

from __future__ import annotations

import pytest

from federation.rpc.event_filter import EventFilter
from federation.serf.events import (
    Event,
    Left,
    Member,
    MemberFailed,
    MemberJoin,
    MemberStatus,
    QueryReceived,
    UserEventReceived,
)
from federation.serf.messages import Query

MEMBER = Member("a", "10.0.0.1", 1, {}, MemberStatus.ALIVE)
EVENTS: dict[str, Event] = {
    "join": MemberJoin(MEMBER),
    "failed": MemberFailed(MEMBER),
    "deploy": UserEventReceived(1, "deploy", b"", False),
    "notice": UserEventReceived(1, "notice", b"", False),
    "load": QueryReceived(Query(1, 1, b"", 1, "a", None, 0, 0, 1, "load", b""), 1.0),
    "left": Left(),
}


@pytest.mark.parametrize(
    ("text", "passing"),
    [
        ("*", "join failed deploy notice load"),
        ("", "join failed deploy notice load"),
        ("member-join", "join"),
        ("member-join,member-failed", "join failed"),
        ("user", "deploy notice"),
        ("user:deploy", "deploy"),
        ("user:deploy, query", "deploy load"),
        ("query:load,query:other", "load"),
        ("query:other", ""),
        ("member-leave,*", "join failed deploy notice load"),
    ],
)
def test_what_passes(text: str, passing: str) -> None:
    wanted = EventFilter(text)
    assert [name for name, event in EVENTS.items() if wanted.passes(event)] == passing.split()


@pytest.mark.parametrize("text", ["bogus", "member-join:a", "user:", "*:x", ",", "member-join,,user", "QUERY"])
def test_what_is_no_filter(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid event filter"):
        EventFilter(text)
