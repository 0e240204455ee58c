"""Counters of the federation for the operator's log: lost messages and refused input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from federation.stream.counters import SkipReason, StreamCounters

REFUSED: Final = (
    SkipReason.UNKNOWN,
    SkipReason.MALFORMED,
    SkipReason.FILTER,
    SkipReason.FILTERS_FULL,
    SkipReason.RETAINED_AHEAD,
)
# These also count in a healthy federation.
HARMLESS: Final = (SkipReason.DUPLICATE, SkipReason.RETAINED_OLDER)


def lost_messages(streams: Mapping[str, StreamCounters]) -> dict[str, int]:
    """Counters of lost messages by `NODE.reason`."""
    return {
        f"{name}.{reason}": count
        for name, counters in streams.items()
        for reason, count in counters.dropped.items()
        if reason not in REFUSED and reason not in HARMLESS
    }


def refused_input(streams: Mapping[str, StreamCounters]) -> dict[str, int]:
    """Counters of refused input by `NODE.reason`. The shell of the gossip logs its own drops."""
    return {f"{name}.{reason}": counters.dropped[reason] for name, counters in streams.items() for reason in REFUSED}
