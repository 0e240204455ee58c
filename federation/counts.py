"""What the federation counts, sorted by what it means to an operator: messages that are lost, and input that was refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from federation.gossip import counters as gossip_reasons
from federation.gossip.counters import Counters
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
HARMLESS_GOSSIP: Final = (gossip_reasons.EVENT_TOO_OLD, gossip_reasons.PING_FOR_OTHER, gossip_reasons.UNKNOWN_QUERY)


def lost_messages(streams: Mapping[str, StreamCounters]) -> dict[str, int]:
    """By `NODE.reason`: everything that is neither refused nor harmless."""
    return {
        f"{name}.{reason}": count
        for name, counters in streams.items()
        for reason, count in counters.dropped.items()
        if reason not in REFUSED and reason not in HARMLESS
    }


def refused_input(streams: Mapping[str, StreamCounters], gossip: Counters | None) -> dict[str, int]:
    """By `NODE.reason` and `gossip.reason`."""
    found = {f"{name}.{reason}": counters.dropped[reason] for name, counters in streams.items() for reason in REFUSED}
    if gossip is not None:
        for reason, count in gossip.dropped.items():
            if reason not in HARMLESS_GOSSIP:
                found[f"gossip.{reason}"] = count
    return found
