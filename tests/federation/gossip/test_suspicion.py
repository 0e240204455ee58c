"""The timeout of a suspicion and its confirmations."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.suspicion import Suspicion, Suspicions, confirmations_wanted, suspicion_timeout
from work import executed_lines


@pytest.mark.parametrize(("count", "timeout"), [(1, 4.0), (3, 4.0), (10, 4.0), (100, 8.0), (50, 6.792), (1000, 12.0)])
def test_suspicion_timeout_grows_with_the_logarithm(count: int, timeout: float) -> None:
    assert suspicion_timeout(4, count, 1.0) == pytest.approx(timeout)  # LAN; wire-gossip 6.3


@pytest.mark.parametrize(
    ("living", "unsuspected", "wanted"),
    [(2, 0, 0), (3, 1, 0), (4, 2, 2), (4, 1, 1), (4, 0, 1), (5, 3, 2), (5, 1, 1), (100, 98, 2), (100, 0, 1)],
)
def test_confirmations_wanted(living: int, unsuspected: int, wanted: int) -> None:
    assert confirmations_wanted(4, living, unsuspected) == wanted


def test_suspicions_that_fewer_members_can_confirm_end_sooner() -> None:
    suspicions = Suspicions()
    suspicions.want(2)
    suspicions.add("x", Suspicion(1, "a", 2, 4.0, 24.0, 100.0))
    assert suspicions.confirm("x", "b")
    suspicions.want(1)
    assert suspicions.next_timeout() == 104.0
    suspicions.want(2)
    assert suspicions.next_timeout() == pytest.approx(100 + 11.381)
    suspicions.want(0)
    assert [name for name, _ in suspicions.take_expired(104.0)] == ["x"]


def test_confirmations_shorten_a_suspicion() -> None:
    suspicion = Suspicion(1, "a", 2, 4.0, 24.0, 100.0)
    assert suspicion.deadline == 124.0
    assert not suspicion.confirm("a")
    assert suspicion.confirm("b")
    assert suspicion.deadline == pytest.approx(100 + 11.381)
    assert suspicion.confirm("c")
    assert suspicion.deadline == 104.0
    assert not suspicion.confirm("d")


def test_suspicion_without_wanted_confirmations_is_short() -> None:
    suspicion = Suspicion(1, "a", 0, 4.0, 24.0, 0.0)
    assert suspicion.deadline == 4.0
    assert not suspicion.confirm("b")


STEPS = st.lists(
    st.tuples(st.sampled_from(["suspect", "confirm", "end", "time"]), st.sampled_from("abc"), st.integers(0, 9)),
    max_size=60,
)


@given(STEPS)
def test_each_suspicion_expires_once_at_its_deadline(steps: list[tuple[str, str, int]]) -> None:
    suspicions = Suspicions()
    model: dict[str, Suspicion] = {}
    now = 0.0
    for action, name, number in steps:
        if action == "suspect" and name not in model:
            model[name] = Suspicion(1, "x", 2, 2.0, 12.0, now)
            suspicions.add(name, model[name])
        elif action == "confirm" and name in model:
            suspicions.confirm(name, str(number))
        elif action == "end":
            model.pop(name, None)
            suspicions.end(name)
        elif action == "time":
            now += number
            expired = {known: suspicion for known, suspicion in model.items() if suspicion.deadline <= now}
            assert dict(suspicions.take_expired(now)) == expired
            model = {known: suspicion for known, suspicion in model.items() if known not in expired}
        at = suspicions.next_timeout()
        assert all(at is not None and at <= suspicion.deadline for suspicion in model.values())
        assert all(suspicions.get(name) is suspicion for name, suspicion in model.items())


def test_a_timeout_costs_the_same_however_many_are_suspected() -> None:
    suspicions = Suspicions()
    for number in range(2000):
        suspicions.add(f"n{number}", Suspicion(1, "x", 0, 4.0, 24.0, float(number)))
    assert executed_lines(suspicions.next_timeout) < 5
    for number in range(10):
        assert executed_lines(lambda at=number: suspicions.take_expired(4.0 + at)) < 20  # type: ignore[misc]
    assert suspicions.get("n9") is None
    assert suspicions.get("n10") is not None


def test_suspicions_that_end_and_begin_again_take_no_more_room() -> None:
    suspicions = Suspicions()
    tracemalloc.start()
    try:
        for number in range(50_000):
            suspicions.add("n", Suspicion(number, "x", 0, 4.0, 24.0, 0.0))
            suspicions.end("n")
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
