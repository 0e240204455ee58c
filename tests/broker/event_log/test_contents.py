"""What a log has, by its segments: offsets, the segment of a record, and what the retention takes."""

from __future__ import annotations

import re

import pytest

from broker.event_log.contents import Limits, LogContents
from broker.event_log.faults import OutOfRange, WrongLogId
from broker.event_log.index import Segment
from broker.event_log.lineage import Lineage, Parent

NO_LIMIT = Limits(0, 0)


def contents(*extents: tuple[int, int]) -> LogContents:
    """A log with segments of these records, each of 100 bytes; a record's time is its offset in seconds."""
    made = LogContents("n1")
    made.lineage = Lineage("id", (Parent("older", 3), Parent("old", 7)))
    made.segments = [
        Segment(first, end, first * 10**9, (end - 1) * 10**9 if end > first else first * 10**9, 100)
        for first, end in extents
    ]
    return made


@pytest.mark.parametrize(
    ("offset", "first"), [(0, 0), (9, 0), (10, 10), (19, 10), (20, 30), (29, 30), (30, 30), (39, 30)]
)
def test_the_segment_of_a_record_or_the_next_one(offset: int, first: int) -> None:
    assert contents((0, 10), (10, 20), (30, 40)).segment_of(offset).first_offset == first


@pytest.mark.parametrize(("seconds", "first"), [(0, 0), (9, 0), (9.5, 10), (19, 10), (39, 30), (40, None)])
def test_the_segment_of_an_instant(seconds: float, first: int | None) -> None:
    found = contents((0, 10), (10, 20), (30, 40), (40, 40)).segment_at(round(seconds * 1e9))
    assert (None if found is None else found.first_offset) == first


def test_an_empty_log_has_no_times() -> None:
    log = contents((7, 7))
    assert (log.first_offset, log.next_offset, log.times_ns) == (7, 7, (0, 0))


@pytest.mark.parametrize(("start", "end"), [(4, 6), (5, 11), (7, 6)])
def test_a_range_outside_the_log_is_refused(start: int, end: int) -> None:
    log = contents((5, 10))
    log.check_range("id", 5, 10)
    with pytest.raises(OutOfRange, match=f"offsets {start} to {end} are not in the log of node n1, which has 5 to 10"):
        log.check_range("id", start, end)


def test_another_id_is_refused() -> None:
    log = contents((0, 1))
    log.check_log_id("id")
    with pytest.raises(WrongLogId, match=re.escape("the log of node n1 has the id id, not other")):
        log.check_log_id("other")


def test_a_former_id_names_the_records_before_the_first_one_that_may_differ() -> None:
    log = contents((0, 5), (6, 10))
    log.check_range("old", 2, 7)
    log.check_range("older", 2, 3)
    for log_id, end in (("old", 8), ("older", 4)):
        with pytest.raises(WrongLogId, match=re.escape(f"may have lost records of {log_id} from offset {end - 1} on")):
            log.check_range(log_id, 2, end)
    assert log.gaps == [(5, 6)]


def test_the_retention_takes_segments_and_the_holds_that_need_them() -> None:
    log = contents((0, 10), (10, 20), (20, 30))
    log.holds.put("g", "slow", 5, 0)
    log.holds.put("g", "fast", 20, 0)
    oldest = log.segments[0]
    assert log.remove_aged(0, Limits(0, 250), NO_LIMIT) == ([], [])
    removed, released = log.remove_aged(0, Limits(0, 250), Limits(0, 250))
    assert (len(removed), removed[0] is oldest, log.has(oldest), log.first_offset) == (1, True, False, 10)
    assert [hold.query for hold in released] == ["slow"]
    assert (log.holds_released, [hold.query for hold in log.holds.all()]) == (1, ["fast"])
