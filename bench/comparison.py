"""Two builds or brokers in alternating slices: the median of the ratios of the pairs, with its 95 % interval."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

RESAMPLES: Final = 10_000
CONFIDENCE: Final = 0.95


@dataclass(frozen=True)
class Comparison:
    """The median of the ratios of all pairs, and its 95 % interval: bootstrap over pairs, percentiles."""

    ratio: float
    low: float
    high: float


def compare(ours: Sequence[float], theirs: Sequence[float]) -> Comparison:
    """Compare the values of each round. The resamples come from a fixed seed.

    It is the median, so that a slice that other work on the machine disturbed does not move the ratio."""
    assert len(ours) == len(theirs) > 0
    ratios = [mine / other if other else float("inf") for mine, other in zip(ours, theirs, strict=True)]
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    tail = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Comparison(statistics.median(ratios), medians[tail], medians[-1 - tail])
