"""Filters in shapes that take most memory in a tree, and a measure of memory. The bound is one for each filter."""

import gc
import itertools
import random
import tracemalloc
from collections.abc import Callable
from typing import Final

from effort import effort

LEVELS: Final = 126  # most levels of a filter after $share/NAME/


def _random_filters() -> list[bytes]:
    rng = random.Random(1)
    return [b"/".join(rng.choices([b"+", b"a"], k=LEVELS)) for _ in range(effort(1_500))]


SHAPES: Final[dict[str, Callable[[], list[bytes]]]] = {
    "random filters of 126 levels": _random_filters,
    "a chain, each of its ends a filter": lambda: [b"/".join([b"ab"] * count) for count in range(1, LEVELS + 1)],
    "a chain of empty levels": lambda: [b"/" * count for count in range(1, LEVELS)],
    "a chain with # at every level": lambda: [b"a/" * count + b"#" for count in range(1, LEVELS)],
    "a comb": lambda: [b"ab/" * count + b"cd/ef" for count in range(LEVELS - 1)],
    "combs side by side": lambda: [
        b"%d/" % comb + b"ab/" * count + b"cd/ef" for comb in range(effort(12)) for count in range(100)
    ],
    "pairs that part at the last level": lambda: [
        b"p%d/" % pair + b"x/" * 60 + last for pair in range(effort(500)) for last in (b"ab", b"cd")
    ],
    "two branches at every level": lambda: [
        b"/".join(levels) for levels in itertools.product([b"ab", b"cd"], repeat=11)
    ],
    "+ or a at every level": lambda: [b"/".join(levels) for levels in itertools.product([b"+", b"a"], repeat=11)],
    "wide": lambda: [b"topic-%d" % number for number in range(effort(2_000))],
    "wide twice": lambda: [b"%d/%d" % (number % 100, number // 100) for number in range(effort(2_000))],
    "eleven below each": lambda: [b"p%d/x/s%d" % (number // 11, number % 11) for number in range(effort(2_200))],
}


def memory_of(make: Callable[[], object]) -> int:
    """Bytes that are allocated after `make` and were not before, those of its result included."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        made = make()
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    del made
    return taken


def bound(filters: list[bytes]) -> int:
    """The bound for filters: 1 kB for each and 6 times its bytes."""
    return sum(1_000 + 6 * len(topic_filter) for topic_filter in filters)
