"""Two builds or brokers in alternating slices: the ratio of each pair, their median, and how sure it is."""

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
    """Values of the same round belong together. Nothing else is random than which pairs a resample draws, by a fixed seed.

    The median, because a slice that other work on the machine disturbed must not move the ratio."""
    assert len(ours) == len(theirs) > 0
    ratios = [mine / other if other else float("inf") for mine, other in zip(ours, theirs, strict=True)]
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    tail = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Comparison(statistics.median(ratios), medians[tail], medians[-1 - tail])
