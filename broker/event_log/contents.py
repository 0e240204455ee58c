"""The contents of a log: its id, segments, holds, and segments that were set aside."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from broker.event_log.faults import OutOfRange, WrongLogId
from broker.event_log.holds import Hold, Holds
from broker.event_log.identity import gaps_between
from broker.event_log.index import Segment
from broker.event_log.lineage import OFFSET_END, Lineage

SECOND_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Damaged:
    """A segment that was set aside, or the end of one: `first_offset` is that of the first record which is not in the log."""

    file: str
    first_offset: int
    fault: str


class LogContents:
    """node, lineage  what offsets belong to
    segments  in order; the newest one is being written
    holds_released  by the retention, since the start
    damaged   segments, and ends of segments, that were set aside since the start
    """

    def __init__(self, node: str) -> None:
        self.node = node
        self.lineage = Lineage("")
        self.segments: list[Segment] = []
        self.holds = Holds()
        self.holds_released = 0
        self.damaged: list[Damaged] = []

    @property
    def log_id(self) -> str:
        return self.lineage.log_id

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """(first, end) of the offsets in between that the log does not have any more."""
        return gaps_between(self.segments)

    @property
    def first_offset(self) -> int:
        """Of the first record that is kept."""
        return self.segments[0].first_offset

    @property
    def next_offset(self) -> int:
        """Of the next record that will be served; equal to first_offset for an empty log."""
        return self.segments[-1].end_offset

    @property
    def bytes(self) -> int:
        """Of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def times_ns(self) -> tuple[int, int]:
        """Unix ns of the first and the last record; 0 for an empty log."""
        first, last = self.segments[0], self.segments[-1]
        return (0, 0) if first.first_offset == last.end_offset else (first.first_time_ns, last.last_time_ns)

    def check_log_id(self, log_id: str, end: int = OFFSET_END) -> None:
        """The records before `end` are those of the log with this id. Raises WrongLogId."""
        shared_end = self.lineage.shared_end(log_id)
        if shared_end is None:
            raise WrongLogId(
                f"the log of node {self.node} has the id {self.log_id}, not {log_id}; its offsets are others"
            )
        if shared_end < end:
            raise WrongLogId(
                f"the log of node {self.node} has the id {self.log_id} since it may have lost records of {log_id} from "
                f"offset {shared_end} on; those from there on may be others"
            )

    def check_range(self, log_id: str, start: int, end: int) -> None:
        """Raises WrongLogId, OutOfRange."""
        self.check_log_id(log_id, end)
        first, last = self.first_offset, self.next_offset
        if not first <= start <= end <= last:
            raise OutOfRange(
                f"offsets {start} to {end} are not in the log of node {self.node}, which has {first} to {last}"
            )

    def has(self, segment: Segment) -> bool:
        """Return whether it is still this one: not removed, and not set aside."""
        return any(other is segment for other in self.segments)

    def segment_of(self, offset: int) -> Segment:
        """The segment with this record, or the next one where records are missing."""
        segments = self.segments
        at = bisect_right(segments, offset, key=lambda segment: segment.first_offset) - 1
        return segments[at] if offset < segments[at].end_offset else segments[at + 1]

    def segment_at(self, time_ns: int) -> Segment | None:
        """The first segment with a record of this time or later."""
        for segment in self.segments:
            if segment.end_offset > segment.first_offset and segment.last_time_ns >= time_ns:
                return segment
        return None

    def remove_aged(self, now_ns: int, retention: Limits, hold: Limits) -> tuple[list[Segment], list[Hold]]:
        """Remove the segments that are past `retention`, and the holds that go with them. Returns both."""
        count = segments_to_remove(self.segments, now_ns, retention, hold, self.holds.lowest())
        if not count:
            return [], []
        removed, self.segments = self.segments[:count], self.segments[count:]
        released = self.holds.remove_below(self.first_offset)
        self.holds_released += len(released)
        return removed, released


# --- the retention: whole segments are removed, oldest first, up to the first that must stay; the newest one stays ---


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
