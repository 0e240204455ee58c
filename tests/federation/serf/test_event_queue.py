"""Events that the owner has not taken."""

from __future__ import annotations

import pytest

from federation.gossip import counters as reasons
from federation.gossip.counters import Counters
from federation.serf.event_queue import EventQueue
from federation.serf.events import Event, Left, UserEvent


def test_user_events_are_bounded_and_member_events_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("federation.serf.event_queue.EVENTS_PENDING_MAX", 3)
    counters = Counters()
    queue = EventQueue(counters)
    expected: list[Event] = []
    for number in range(5):
        event = UserEvent(number, "e", b"", False)
        queue.offer(event)
        if number < 3:
            expected.append(event)
    for _ in range(4):
        queue.add(Left())
        expected.append(Left())
    assert counters.dropped[reasons.EVENTS_FULL] == 2
    assert queue.take() == expected
    assert queue.take() == []
