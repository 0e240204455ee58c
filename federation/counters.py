"""What the federation counts, sorted by what it means to an operator: messages that are lost, and input that was refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from federation.stream import counters as stream_reasons
from federation.stream.counters import StreamCounters

REFUSED: Final = (
    stream_reasons.SKIP_UNKNOWN,
    stream_reasons.SKIP_MALFORMED,
    stream_reasons.SKIP_FILTER,
    stream_reasons.SKIP_FILTERS_FULL,
)
# What happens to a federation that is well.
HARMLESS: Final = (stream_reasons.SKIP_DUPLICATE, stream_reasons.SKIP_RETAINED_OLDER)


def lost_messages(streams: Mapping[str, StreamCounters]) -> dict[str, int]:
    """By `NODE.reason`: everything that is neither refused nor harmless."""
    return {
        f"{name}.{reason}": count
        for name, counters in streams.items()
        for reason, count in counters.dropped.items()
        if reason not in REFUSED and reason not in HARMLESS
    }


def refused_input(streams: Mapping[str, StreamCounters]) -> dict[str, int]:
    """By `NODE.reason`. What the gossip drops is logged by its shell."""
    return {f"{name}.{reason}": counters.dropped[reason] for name, counters in streams.items() for reason in REFUSED}
