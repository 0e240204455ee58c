"""The attempts to join the seeds."""

from __future__ import annotations

import pytest

from federation.serf.retry_join import KNOWN_AT_ONCE, RETRY_INTERVAL_MAX, RetryJoin, SeedsJoined, SeedsUnreachable


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


def test_the_seeds_are_tried_again_after_a_full_split() -> None:
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


def test_any_member_of_a_snapshot_is_enough_and_every_seed_is_tried() -> None:
    known = [f"k{number}" for number in range(KNOWN_AT_ONCE + 2)]
    retry = RetryJoin(["a"], 5.0, 60.0, 0.0, known)
    first = retry.take_hosts(0.0)
    assert first == ["a", *known[:KNOWN_AT_ONCE]]
    retry.attempt_finished(dict.fromkeys(first, "refused"), 0.0)
    second = retry.take_hosts(5.0)
    assert second == ["a", *known[KNOWN_AT_ONCE:], *known[: KNOWN_AT_ONCE - 2]]
    retry.attempt_finished({host: "refused" for host in second if host != known[0]}, 5.0)
    assert retry.take_events() == [SeedsJoined([known[0]])]
    assert retry.reached
    assert retry.take_hosts(10.0) == ["a"]


def test_members_of_a_snapshot_are_tried_without_seeds_until_another_node_is_there() -> None:
    retry = RetryJoin([], 5.0, 60.0, 0.0, ["k"])
    assert retry.take_hosts(0.0) == ["k"]
    retry.attempt_finished({"k": "refused"}, 70.0)
    assert retry.take_events() == [SeedsUnreachable(70.0, {"k": "refused"})]
    assert retry.next_timeout() == 75.0
    retry.members_changed(1, 71.0)  # it has found this node
    assert retry.next_timeout() is None
    retry.members_changed(0, 80.0)
    assert retry.next_timeout() is None


def test_a_member_of_a_snapshot_that_is_the_node_itself_is_forgotten() -> None:
    retry = RetryJoin([], 5.0, 60.0, 0.0, ["self"])
    retry.take_hosts(0.0)
    retry.remove("self")
    retry.attempt_finished({}, 0.0)
    assert retry.next_timeout() is None
    assert retry.take_events() == []


def test_a_name_that_leads_to_the_node_itself_is_asked_again_while_it_is_alone() -> None:
    retry = RetryJoin(["name"], 5.0, 60.0, 0.0)
    retry.take_hosts(0.0)
    retry.leads_here("name")
    retry.attempt_finished({}, 0.0)
    assert retry.reached
    assert retry.pending == []
    assert retry.take_events() == []
    retry.members_changed(0, 0.0)
    assert retry.take_hosts(5.0) == ["name"]
    retry.leads_here("name")
    retry.attempt_finished({}, 5.0)
    retry.members_changed(1, 5.0)
    assert retry.next_timeout() is None
