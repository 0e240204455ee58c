"""Selects the segments that are removed: whole segments, oldest first, up to the first that must stay; the newest
one stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.event_log.index import Segment

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """age in seconds, bytes of all segments; 0 for no limit."""

    age: float
    bytes: int

    def are_passed(self, last_time_ns: int, total_bytes: int, now_ns: int) -> bool:
        """Return whether a segment with this newest record has to go, while all that are left take total_bytes."""
        is_aged = self.age > 0 and last_time_ns < now_ns - self.age * SECOND_NS
        return is_aged or 0 < self.bytes < total_bytes


def segments_to_remove(
    segments: Sequence[Segment], now_ns: int, retention: Limits, hold: Limits, held_from: int | None
) -> int:
    """Return how many of the segments, oldest first, are removed. Records from `held_from` on are held, up to the
    limits `hold`."""
    total = sum(segment.size for segment in segments)
    count = 0
    for segment in segments[:-1]:
        if not retention.are_passed(segment.last_time_ns, total, now_ns):
            break
        is_held = held_from is not None and held_from < segment.end_offset
        if is_held and not hold.are_passed(segment.last_time_ns, total, now_ns):
            break
        total -= segment.size
        count += 1
    return count


def newest_is_over(segments: Sequence[Segment], now_ns: int, retention: Limits) -> bool:
    """Return whether all records are past the age: the newest segment is to be closed, so that it can be removed."""
    newest = segments[-1]
    return newest.end_offset > newest.first_offset and Limits(retention.age, 0).are_passed(
        newest.last_time_ns, 0, now_ns
    )
