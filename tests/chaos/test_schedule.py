"""Kills are drawn from the seed alone, and reach every kind of victim."""

from __future__ import annotations

from collections import Counter

import pytest

from schedule import Victim, draw_kills


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [6, 7, 20])
def test_each_victim_is_killed(seed: int, count: int) -> None:
    kills = draw_kills(seed, count, 4.0)
    assert kills == draw_kills(seed, count, 4.0)
    counts = Counter(kill.victim for kill in kills)
    assert set(counts) == set(Victim)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert all(0 <= kill.wait_seconds <= 4.0 for kill in kills)


def test_seeds_differ() -> None:
    assert len({tuple(draw_kills(seed, 20, 4.0)) for seed in range(20)}) == 20
