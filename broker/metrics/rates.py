"""The figures of a node over the last hour, sampled at equal intervals."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

INTERVAL: Final = 10.0  # seconds
SAMPLES_MAX: Final = 361  # of one hour, and the one before


class Rates:
    """`counters` are names of totals, which become rates a second; `gauges` are names of what is shown as it is. Samples are
    taken every INTERVAL; after a pause the rate is that of the whole pause."""

    def __init__(self, counters: Sequence[str], gauges: Sequence[str]) -> None:
        self.counters = tuple(counters)
        self.gauges = tuple(gauges)
        self._samples: deque[tuple[float, tuple[float, ...]]] = deque(maxlen=SAMPLES_MAX)

    def sample(self, values: Sequence[float], now: float) -> None:
        """Note the present values, totals first, in the order of the names."""
        assert len(values) == len(self.counters) + len(self.gauges)
        self._samples.append((now, tuple(values)))

    @property
    def newest(self) -> float:
        """The time of the last sample. 0 before the first one."""
        return self._samples[-1][0] if self._samples else 0.0

    def series(self) -> dict[str, list[float]]:
        """The values by name, the oldest first: one less than there are samples."""
        samples = list(self._samples)
        found: dict[str, list[float]] = {}
        for index, name in enumerate((*self.counters, *self.gauges)):
            if index < len(self.counters):
                found[name] = [
                    max(0.0, after[index] - before[index]) / max(then - since, 1e-9)
                    for (since, before), (then, after) in pairwise(samples)
                ]
            else:
                found[name] = [values[index] for _, values in samples[1:]]
        return found
