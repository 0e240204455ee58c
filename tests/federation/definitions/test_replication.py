"""When exchanges begin: with whom, how many at one time, and how long after a failure."""

from __future__ import annotations

import random

import pytest

from broker.message import NEVER
from federation.definitions.replication import (
    EXCHANGE_SECONDS,
    EXCHANGES_MAX,
    RETRY_SECONDS,
    UNKNOWN_SECONDS,
    Outcome,
    Replication,
)


@pytest.fixture
def replication() -> Replication:
    return Replication(random.Random(1))


def test_a_node_that_appears_is_asked_at_once(replication: Replication) -> None:
    assert replication.next_timeout() == NEVER
    replication.set_members(["b", "c"], 10.0)
    assert replication.next_timeout() == 10.0
    assert replication.take_exchanges(10.0) == ["b", "c"]
    assert replication.take_exchanges(10.0) == []


@pytest.mark.parametrize(
    ("outcome", "seconds"),
    [(Outcome.DONE, EXCHANGE_SECONDS), (Outcome.FAILED, RETRY_SECONDS), (Outcome.UNKNOWN, UNKNOWN_SECONDS)],
)
def test_the_next_exchange_waits_as_the_last_one_ended(
    replication: Replication, outcome: Outcome, seconds: float
) -> None:
    replication.set_members(["b"], 10.0)
    replication.take_exchanges(10.0)
    replication.exchange_over("b", outcome, 11.0)
    wait = replication.next_timeout() - 11.0
    assert 0.75 * seconds <= wait <= 1.25 * seconds
    assert replication.take_exchanges(11.0 + wait / 2) == []
    assert replication.take_exchanges(11.0 + wait) == ["b"]


def test_failures_wait_longer_each_time_up_to_a_bound(replication: Replication) -> None:
    replication.set_members(["b"], 0.0)
    now = 0.0
    waits = []
    for _ in range(20):
        assert replication.take_exchanges(now) == ["b"]
        replication.exchange_over("b", Outcome.FAILED, now)
        waits.append(replication.next_timeout() - now)
        now = replication.next_timeout()
    assert waits[4] > 4 * waits[0]
    assert max(waits) <= 1.25 * EXCHANGE_SECONDS


def test_a_change_goes_to_all_at_once_but_not_to_those_without_the_service(replication: Replication) -> None:
    replication.set_members(["b", "c"], 0.0)
    replication.take_exchanges(0.0)
    replication.exchange_over("b", Outcome.DONE, 1.0)
    replication.exchange_over("c", Outcome.UNKNOWN, 1.0)
    replication.changed(2.0)
    assert replication.take_exchanges(2.0) == ["b"]


def test_a_change_during_an_exchange_causes_another_one(replication: Replication) -> None:
    replication.set_members(["b"], 0.0)
    replication.take_exchanges(0.0)
    replication.changed(1.0)
    assert replication.take_exchanges(1.0) == []
    replication.exchange_over("b", Outcome.DONE, 2.0)
    assert replication.take_exchanges(2.0) == ["b"]


def test_few_exchanges_run_at_one_time_and_the_longest_waiting_are_next(replication: Replication) -> None:
    names = [f"n{index:02}" for index in range(3 * EXCHANGES_MAX)]
    replication.set_members(names, 0.0)
    first = replication.take_exchanges(0.0)
    assert first == names[:EXCHANGES_MAX]
    assert replication.next_timeout() == NEVER
    replication.exchange_over(first[0], Outcome.DONE, 0.0)
    assert replication.take_exchanges(0.0) == [names[EXCHANGES_MAX]]


def test_a_node_that_leaves_frees_its_place(replication: Replication) -> None:
    replication.set_members([f"n{index}" for index in range(EXCHANGES_MAX)], 0.0)
    replication.take_exchanges(0.0)
    replication.set_members(["other"], 1.0)
    replication.exchange_over("n1", Outcome.FAILED, 1.0)
    assert replication.take_exchanges(1.0) == ["other"]
