"""Members and their status."""

from __future__ import annotations

import pytest

from federation.gossip.counters import Counters, DropReason
from federation.gossip.members import NodeFacts
from federation.gossip.messages import OUR_VERSIONS
from federation.serf.config import SerfConfig
from federation.serf.events import Event, MemberLeave, MemberReap, MemberStatus
from federation.serf.messages import JoinIntent, LeaveIntent
from federation.serf.roster import INTENT_ABOUT_SELF, INTENT_IGNORED, INTENT_NEW, Roster
from work import executed_lines


def test_the_longest_gone_member_is_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("federation.serf.roster.RECORDS_MAX", 4)
    counters = Counters()
    events: list[Event] = []
    config = SerfConfig("own", "10.0.0.1", 8902)
    roster = Roster(NodeFacts("own", b"\x0a\0\0\1", 8902, b"", OUR_VERSIONS), config, counters, events)
    for number in range(10):
        roster.node_joined(facts(f"m{number}", number), float(number))
        roster.node_left(facts(f"m{number}", number), False, float(number))
    assert sorted(roster.records) == ["m7", "m8", "m9", "own"]
    assert counters.dropped[DropReason.TABLE_FULL] == 7
    assert sum(isinstance(event, MemberReap) for event in events) == 7


def roster_of(*names: str, events: list[Event] | None = None) -> Roster:
    """A roster of the node "own" that knows these members, all alive."""
    counters = Counters()
    own = NodeFacts("own", b"\x0a\0\0\1", 8902, b"", OUR_VERSIONS)
    roster = Roster(own, SerfConfig("own", "10.0.0.1", 8902), counters, [] if events is None else events)
    for number, name in enumerate(names):
        roster.node_joined(facts(name, number), 0.0)
    return roster


def facts(name: str, host: int) -> NodeFacts:
    return NodeFacts(name, (0x0A000100 + host).to_bytes(4, "big"), 8902, b"", OUR_VERSIONS)


def test_a_member_for_a_full_roster_costs_the_same_however_many_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("federation.serf.roster.RECORDS_MAX", 2001)
    roster = roster_of(*(f"m{number}" for number in range(2000)))
    for number in range(2000):
        roster.node_left(facts(f"m{number}", number), False, float(number))
    assert executed_lines(lambda: roster.node_joined(facts("one more", 2000), 3000.0)) < 100
    assert "m0" not in roster.records
    assert len(roster.records) == 2001


def test_a_pruned_member_that_still_leaves_is_forgotten_after_its_leave() -> None:
    roster = roster_of("a", "b", "c")
    for at, name in enumerate(("a", "b")):
        assert roster.apply_leave(LeaveIntent(5, name, True, False), False, float(at)) == INTENT_NEW
    assert roster.next_timeout() == 6.0  # broadcast_timeout + leave_propagate_delay
    roster.node_left(roster.records["a"].facts, True, 2.0)
    roster.prune_due(5.9)
    assert sorted(roster.records) == ["a", "b", "c", "own"]
    roster.prune_due(6.0)
    assert sorted(roster.records) == ["b", "c", "own"]
    assert roster.next_timeout() == 7.0
    roster.node_joined(roster.records["b"].facts, 6.5)  # b refuted its leave
    roster.prune_due(7.0)
    assert sorted(roster.records) == ["b", "c", "own"]
    assert roster.next_timeout() is None


@pytest.mark.parametrize("gracefully", [True, False])
def test_a_forced_leave_of_a_member_that_is_gone_is_told_as_such(gracefully: bool) -> None:
    events: list[Event] = []
    roster = roster_of("a", events=events)
    roster.node_left(roster.records["a"].facts, gracefully, 1.0)
    events.clear()
    assert roster.apply_leave(LeaveIntent(5, "a", False, True), False, 2.0) == INTENT_NEW
    assert events == [MemberLeave(roster.member(roster.records["a"]), is_forced=True)]
    assert roster.records["a"].status is MemberStatus.LEFT


def test_failed_and_left_members_are_forgotten_after_a_day() -> None:
    roster = roster_of("failed", "left", "back")
    for name in ("failed", "left", "back"):
        roster.node_left(roster.records[name].facts, name == "left", 10.0)
    roster.node_joined(roster.records["back"].facts, 11.0)
    assert [record.facts.name for record in roster.failed()] == ["failed"]
    roster.reap(24 * 3600.0)
    assert len(roster.records) == 4
    roster.reap(24 * 3600.0 + 11)
    assert sorted(roster.records) == ["back", "own"]


def test_a_leave_at_the_time_of_this_nodes_join_is_refuted() -> None:
    roster = roster_of()
    roster.apply_join(JoinIntent(7, "own"), 0.0)
    assert roster.apply_leave(LeaveIntent(6, "own", False, False), False, 0.0) == INTENT_IGNORED
    assert roster.apply_leave(LeaveIntent(7, "own", False, False), False, 0.0) == INTENT_ABOUT_SELF
    assert roster.apply_leave(LeaveIntent(7, "own", False, False), True, 0.0) == INTENT_IGNORED
