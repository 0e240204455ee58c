"""The ratio of alternating slices and its interval."""

from __future__ import annotations

import random

import pytest
from comparison import Comparison, compare


def test_equal_ratios_leave_no_doubt() -> None:
    assert compare([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]) == Comparison(2.0, 2.0, 2.0)


def test_values_of_a_round_belong_together() -> None:
    """The machine got four times slower from round to round; the ratio did not change."""
    ours = [1.1 * 4**number for number in range(10)]
    theirs = [1.0 * 4**number for number in range(10)]
    found = compare(ours, theirs)
    assert found.low == pytest.approx(1.1)
    assert found.high == pytest.approx(1.1)


def test_one_disturbed_slice_does_not_move_the_ratio() -> None:
    found = compare([1.0] * 19 + [50.0], [1.0] * 20)
    assert found == Comparison(1.0, 1.0, 1.0)


def test_the_interval_holds_the_true_ratio_in_some_19_of_20_runs() -> None:
    draw = random.Random(7)
    inside = 0
    for _ in range(40):
        ours = [1.1 * draw.lognormvariate(0, 0.1) for _ in range(20)]
        theirs = [draw.lognormvariate(0, 0.1) for _ in range(20)]
        found = compare(ours, theirs)
        assert found.low <= found.ratio <= found.high
        inside += found.low <= 1.1 <= found.high
    assert inside >= 35


def test_a_cost_of_zero_gives_an_infinite_ratio() -> None:
    assert compare([1.0], [0.0]).ratio == float("inf")
