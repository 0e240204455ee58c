"""Which worker is started, ended and started again, and when the node ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.message import NEVER
from broker.workers.supervision import (
    DEATHS_MAX,
    DEATHS_SECONDS,
    LOADING_SECONDS_MAX,
    PAUSE_SECONDS,
    SILENT_SECONDS_MAX,
    STOP_SECONDS_MAX,
    Do,
    NodeEnds,
    NodeReady,
    State,
    Step,
    Supervision,
)

CRASH = -11


def started(count: int = 2, leaving: tuple[int, ...] = ()) -> Supervision:
    """All workers serve at 0.0."""
    core = Supervision(count, leaving)
    core.begin(0.0)
    for index in core.workers:
        core.ready(index, 0.0)
    core.take_effects()
    return core


def test_the_node_is_ready_when_all_workers_are() -> None:
    core = Supervision(2)
    core.begin(0.0)
    assert core.take_effects() == [Do(Step.START, 0), Do(Step.START, 1)]
    core.ready(1, 0.1)
    assert core.take_effects() == []
    core.ready(0, 0.2)
    core.ready(0, 0.3)  # after a reload
    assert core.take_effects() == [NodeReady()]


def test_a_worker_that_cannot_start_ends_the_node_with_its_reason() -> None:
    core = Supervision(2)
    core.begin(0.0)
    core.ready(0, 0.1)
    core.take_effects()
    core.died(1, 1, 0.2)
    assert core.take_effects() == [Do(Step.STOP, 0)]
    core.died(0, 0, 0.3)
    (end,) = core.take_effects()
    assert isinstance(end, NodeEnds)
    assert not end.is_clean
    assert "worker 1" in end.reason


def test_a_worker_that_dies_is_started_again_at_once_and_the_others_go_on() -> None:
    core = started()
    core.died(1, CRASH, 5.0)
    assert core.take_effects() == []
    assert core.next_timeout() == 5.0
    core.handle_timeout(5.0)
    assert core.take_effects() == [Do(Step.START, 1)]
    core.ready(1, 5.1)
    assert core.take_effects() == []
    assert core.restarts == {0: 0, 1: 1}


def test_a_worker_that_dies_again_and_again_waits_longer_and_then_ends_the_node() -> None:
    core = started()
    now = 1.0
    pauses: list[float] = []
    for _ in range(DEATHS_MAX - 1):
        core.died(1, CRASH, now)
        core.heard(0, now)
        pauses.append(core.next_timeout() - now)
        now = core.next_timeout()
        core.handle_timeout(now)
        assert core.take_effects() == [Do(Step.START, 1)]
    assert pauses == pytest.approx([0.0, *(PAUSE_SECONDS * 2.0**number for number in range(DEATHS_MAX - 2))])
    core.died(1, CRASH, now)
    assert core.take_effects() == [Do(Step.STOP, 0)]
    core.died(0, 0, now)
    (end,) = core.take_effects()
    assert isinstance(end, NodeEnds)
    assert not end.is_clean
    assert "worker 1" in end.reason
    assert "signal 11" in end.reason


def test_old_deaths_are_forgotten() -> None:
    core = started()
    for number in range(3 * DEATHS_MAX):
        now = number * DEATHS_SECONDS
        core.died(1, CRASH, now)
        core.handle_timeout(now)
        assert Do(Step.START, 1) in core.take_effects()


def test_a_worker_that_gives_no_sign_of_life_is_killed_and_started_again() -> None:
    core = started()
    core.heard(0, 5.0)
    assert core.next_timeout() == SILENT_SECONDS_MAX < 10.0
    core.handle_timeout(SILENT_SECONDS_MAX)
    (kill,) = core.take_effects()
    assert isinstance(kill, Do)
    assert (kill.step, kill.index) == (Step.KILL, 1)
    assert kill.reason
    core.handle_timeout(SILENT_SECONDS_MAX + 0.1)
    assert core.take_effects() == []  # once
    core.died(1, -9, SILENT_SECONDS_MAX + 0.2)
    core.handle_timeout(SILENT_SECONDS_MAX + 0.2)
    assert core.take_effects() == [Do(Step.START, 1)]
    assert core.hung == {0: 0, 1: 1}


def test_a_reload_before_the_node_is_ready_does_not_make_it_ready() -> None:
    core = Supervision(2)
    core.begin(0.0)
    core.ready(0, 0.1)
    assert not core.reload(0.2)
    core.ready(1, 0.3)
    assert NodeReady() in core.take_effects()
    assert core.reload(0.4)


def test_a_node_that_stood_still_as_a_whole_kills_nobody() -> None:
    core = started()
    core.turn(0.0)
    core.turn(60.0)
    core.handle_timeout(60.0)
    assert core.take_effects() == []
    for number in range(1, 20):  # the owner runs again, worker 1 does not
        core.turn(60.0 + number)
        core.heard(0, 60.0 + number)
        core.handle_timeout(60.0 + number)
        if number < SILENT_SECONDS_MAX:
            assert core.take_effects() == []
    assert core.hung == {0: 0, 1: 1}


def test_a_worker_that_reads_a_large_store_has_time_for_it() -> None:
    core = Supervision(1)
    core.begin(0.0)
    core.take_effects()
    core.handle_timeout(LOADING_SECONDS_MAX - 1.0)
    assert core.take_effects() == []
    core.handle_timeout(LOADING_SECONDS_MAX)
    (kill,) = core.take_effects()
    assert isinstance(kill, Do)
    assert kill.step is Step.KILL
    assert f"{LOADING_SECONDS_MAX:g}" in kill.reason


def test_a_stop_ends_all_and_kills_who_does_not_end() -> None:
    core = started()
    core.died(1, CRASH, 1.0)  # it waits for its next start
    core.stop(1.0)
    assert core.take_effects() == [Do(Step.STOP, 0)]
    core.handle_timeout(1.0 + STOP_SECONDS_MAX)
    (kill,) = core.take_effects()
    assert isinstance(kill, Do)
    assert (kill.step, kill.index) == (Step.KILL, 0)
    core.died(0, -9, 8.0)
    assert core.take_effects() == [NodeEnds(False)]
    assert core.next_timeout() == NEVER


def test_a_clean_stop_is_clean_and_a_second_request_is_passed_on() -> None:
    core = started()
    core.stop(1.0)
    core.take_effects()
    core.stop(2.0)
    assert core.take_effects() == [Do(Step.STOP, 0), Do(Step.STOP, 1)]
    core.died(0, 0, 3.0)
    core.died(1, 0, 3.0)
    assert core.take_effects() == [NodeEnds(True)]


def test_a_worker_that_is_starting_at_a_reload_reads_the_file_again_and_a_later_one_begins_with_it() -> None:
    core = started()
    core.died(1, CRASH, 1.0)
    core.handle_timeout(1.0)
    core.take_effects()
    core.reload(1.5)
    assert core.take_effects() == [Do(Step.RELOAD, 0)]
    core.ready(1, 2.0)
    assert core.take_effects() == [Do(Step.RELOAD, 1)]
    core.ready(1, 2.1)
    core.died(1, CRASH, 3.0)
    core.handle_timeout(3.0)
    core.take_effects()
    core.ready(1, 4.0)
    assert core.take_effects() == []


def test_a_worker_that_has_given_all_away_is_not_started_again() -> None:
    core = Supervision(1, (3,))
    core.begin(0.0)
    core.ready(0, 0.1)
    assert NodeReady() in core.take_effects()  # the node does not wait for it
    core.ready(3, 0.2)
    core.died(3, CRASH, 0.3)
    core.handle_timeout(0.3)
    assert core.take_effects() == [Do(Step.START, 3)]  # a crash in the middle goes on
    core.ready(3, 0.4)
    core.died(3, 0, 0.5)  # somebody has sent it SIGTERM
    core.handle_timeout(1.0)
    assert core.take_effects() == [Do(Step.START, 3)]
    core.ready(3, 1.1)
    assert core.present() == [0, 3]
    core.given_all(3)
    core.died(3, 0, 5.0)
    assert core.take_effects() == [Do(Step.CLEAR, 3)]
    assert core.present() == [0]
    core.stop(6.0)
    core.died(0, 0, 6.1)
    assert core.take_effects()[-1] == NodeEnds(True)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ready", "given", "died", "kill", "heard", "wait", "reload", "stop"]), st.integers(0, 2)
        )
    )
)
def test_each_worker_has_at_most_one_process_and_the_node_ends_once(happenings: list[tuple[str, int]]) -> None:
    core = Supervision(2, (2,))
    core.begin(0.0)
    now = 0.0
    running: set[int] = set()
    ends = 0

    def carry_out() -> None:
        nonlocal ends
        for effect in core.take_effects():
            if isinstance(effect, NodeEnds):
                ends += 1
                assert not running
            elif isinstance(effect, Do):
                if effect.step is Step.START:
                    assert effect.index not in running
                    running.add(effect.index)
                elif effect.step is Step.CLEAR:
                    assert effect.index == 2
                else:
                    assert effect.index in running

    carry_out()
    for what, index in happenings:
        now += 0.5
        if what == "ready" and index in running:
            core.ready(index, now)
        elif what == "given" and index in running:
            core.given_all(index)
        elif what in ("died", "kill") and index in running:
            running.remove(index)
            core.died(index, 0 if what == "died" else -9, now)
        elif what == "heard" and index in running:
            core.heard(index, now)
        elif what == "wait":
            now = max(now, min(core.next_timeout(), now + 100.0))
            core.handle_timeout(now)
        elif what == "reload":
            core.reload(now)
        elif what == "stop" and not ends:
            core.stop(now)
        carry_out()
    if not ends:
        core.stop(now)
        carry_out()
        for index in sorted(running):
            running.remove(index)
            core.died(index, -9, now)
            carry_out()
    assert ends == 1
    assert all(worker.state is State.ENDED for worker in core.workers.values())
