"""The clock of a cluster: one wrong clock does not move it, and a node with a wrong clock follows it."""

from __future__ import annotations

import pytest

from federation.cluster_clock import DIFFERENCE_MAX, TIME_LATEST, ClusterClock

NOW = 1_700_000_000.0
YEARS = 1e9


@pytest.mark.parametrize(
    ("others", "expected", "differing"),
    [
        ([], 0.0, []),
        ([DIFFERENCE_MAX], 0.0, []),
        ([-DIFFERENCE_MAX, 20.0, -20.0], 0.0, []),
        ([1.0, -YEARS], 0.0, ["n1"]),
        ([1.0, YEARS], 0.0, ["n1"]),
        ([YEARS, YEARS + 1], YEARS, []),
        ([-YEARS, -YEARS - 1], -YEARS, []),
        ([-YEARS, -YEARS, YEARS, -YEARS], -YEARS, ["n2"]),
        ([YEARS], YEARS, []),
        ([-YEARS], 0.0, ["n0"]),
    ],
)
def test_a_node_far_from_the_median_stamps_with_it(others: list[float], expected: float, differing: list[str]) -> None:
    clock = ClusterClock()
    for index, difference in enumerate(others):
        clock.heard(f"n{index}", NOW + difference, NOW)
    assert clock.correction() == expected
    assert clock.time(NOW + 5) == NOW + 5 + expected
    assert list(clock.differing()) == differing


def test_nodes_that_are_gone_have_no_part_in_the_median() -> None:
    clock = ClusterClock()
    clock.heard("gone", NOW + YEARS, NOW)
    clock.heard("here", NOW + 1, NOW)
    clock.heard("here", NOW + 2, NOW)
    clock.set_members(["here"])
    assert clock.correction() == 0.0
    assert clock.differing() == {}


def test_no_clock_leads_beyond_the_latest_time() -> None:
    clock = ClusterClock()
    clock.heard("other", 2.0**64, NOW)
    assert clock.time(NOW) == TIME_LATEST
