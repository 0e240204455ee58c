"""The contents of a log: its id, segments, holds, and segments that were set aside."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from broker.event_log.faults import OutOfRange, WrongLogId
from broker.event_log.holds import Hold, Holds
from broker.event_log.index import Segment
from broker.event_log.retention import Limits, segments_to_remove


@dataclass(frozen=True, slots=True)
class Damaged:
    """A segment that was set aside."""

    file: str
    first_offset: int
    fault: str


class LogContents:
    """node, log_id  what offsets belong to
    segments  in order; the newest one is being written
    holds_released  by the retention, since the start
    damaged   segments that were set aside since the start
    """

    def __init__(self, node: str) -> None:
        self.node = node
        self.log_id = ""
        self.segments: list[Segment] = []
        self.holds = Holds()
        self.holds_released = 0
        self.damaged: list[Damaged] = []

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

    def check_log_id(self, log_id: str) -> None:
        """Raises WrongLogId."""
        if log_id != self.log_id:
            raise WrongLogId(
                f"the log of node {self.node} has the id {self.log_id}, not {log_id}; its offsets are others"
            )

    def check_range(self, start: int, end: int) -> None:
        """Raises OutOfRange."""
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
