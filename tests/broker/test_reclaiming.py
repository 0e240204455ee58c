"""When the allocator is asked to give memory back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from broker.reclaiming import LONGEST_SECONDS, PAUSE_FACTOR, PRESSED_SECONDS, SHORTEST_SECONDS, Reclaiming

MIB = 2**20
START = 44 * MIB


def asked_at(seconds: int, before: Callable[[int], int], after: Callable[[int], int]) -> list[int]:
    """The seconds at which the allocator was asked. `before` and `after` are the memory at a second, without and with that."""
    found = Reclaiming(START, 0.0)
    times = []
    for now in range(1, seconds):
        if found.is_due(before(now), float(now)):
            found.asked(before(now), after(now), float(now), 0.001)
            times.append(now)
    return times


def test_a_node_as_it_was_at_the_start_is_not_asked() -> None:
    assert asked_at(300, lambda now: START + 20 * MIB, lambda now: START) == []


def test_a_burst_is_given_back_within_seconds() -> None:
    times = asked_at(300, lambda now: 500 * MIB if now < 100 else START, lambda now: START)
    assert times[0] <= SHORTEST_SECONDS + 1


def test_memory_in_use_is_asked_for_at_growing_intervals() -> None:
    times = asked_at(600, lambda now: 500 * MIB, lambda now: 500 * MIB)
    assert len(times) <= 4 + 600 / LONGEST_SECONDS
    assert max(later - earlier for earlier, later in pairwise(times)) == LONGEST_SECONDS


def test_memory_that_is_taken_again_is_asked_for_at_growing_intervals() -> None:
    times = asked_at(600, lambda now: 500 * MIB, lambda now: 100 * MIB)
    assert len(times) <= 4 + 600 / LONGEST_SECONDS


def test_a_change_makes_the_interval_short_again() -> None:
    times = asked_at(700, lambda now: 500 * MIB if now < 601 else 900 * MIB, lambda now: 500 * MIB)
    assert any(601 <= time <= 601 + SHORTEST_SECONDS for time in times)


def test_a_node_short_of_memory_asks_often_and_never_most_of_the_time() -> None:
    found = Reclaiming(START, 0.0)
    assert not found.is_due(START, PRESSED_SECONDS / 2, True)
    assert found.is_due(START, PRESSED_SECONDS, True)
    found.asked(START, START, PRESSED_SECONDS, 0.2)
    assert not found.is_due(START, PRESSED_SECONDS + 0.2 * PAUSE_FACTOR - 0.1, True)
    assert found.is_due(START, PRESSED_SECONDS + 0.2 * PAUSE_FACTOR + 0.1, True)
