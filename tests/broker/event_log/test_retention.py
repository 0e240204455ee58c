"""Which segments go: whole ones, oldest first, by the age of the newest record and by bytes, and what a hold keeps."""

from __future__ import annotations

import pytest

from broker.event_log.contents import Limits, newest_is_over, segments_to_remove
from broker.event_log.index import Segment

SECOND = 10**9
NOW = 1000 * SECOND
NO_LIMIT = Limits(0, 0)


def segments(*last_seconds: int) -> list[Segment]:
    """Segments of ten records and 100 bytes each, whose newest records have these ages in seconds."""
    return [
        Segment(number * 10, number * 10 + 10, NOW - (age + 5) * SECOND, NOW - age * SECOND, 100)
        for number, age in enumerate(last_seconds)
    ]


@pytest.mark.parametrize(
    ("ages", "retention", "hold", "held_from", "expected"),
    [
        ((50, 40, 30, 0), NO_LIMIT, NO_LIMIT, None, 0),
        ((50, 40, 30, 0), Limits(35, 0), NO_LIMIT, None, 2),
        ((50, 40, 30, 0), Limits(40, 0), NO_LIMIT, None, 1),
        ((50, 40, 30, 20), Limits(1, 0), NO_LIMIT, None, 3),  # the newest stays
        ((50, 40, 30, 0), Limits(0, 400), NO_LIMIT, None, 0),
        ((50, 40, 30, 0), Limits(0, 399), NO_LIMIT, None, 1),
        ((50, 40, 30, 0), Limits(0, 1), NO_LIMIT, None, 3),
        ((50, 40, 30, 0), Limits(45, 250), NO_LIMIT, None, 2),
        ((30, 50, 40, 0), Limits(35, 0), NO_LIMIT, None, 0),  # up to the first that must stay
        ((50, 40, 30, 0), Limits(1, 0), NO_LIMIT, 15, 1),  # held without limit
        ((50, 40, 30, 0), Limits(1, 0), NO_LIMIT, 0, 0),
        ((50, 40, 30, 0), Limits(1, 0), NO_LIMIT, 20, 2),
        ((50, 40, 30, 0), Limits(1, 0), Limits(45, 0), 0, 1),  # the hold is past its age
        ((50, 40, 30, 0), Limits(1, 0), Limits(0, 250), 0, 2),  # or its bytes
        ((50, 40, 30, 0), Limits(0, 100), Limits(0, 300), 5, 1),
        ((50,), Limits(1, 1), NO_LIMIT, None, 0),
    ],
)
def test_segments_to_remove(
    ages: tuple[int, ...], retention: Limits, hold: Limits, held_from: int | None, expected: int
) -> None:
    assert segments_to_remove(segments(*ages), NOW, retention, hold, held_from) == expected


def test_a_newest_segment_that_is_over() -> None:
    assert newest_is_over(segments(50), NOW, Limits(49, 0))
    assert not newest_is_over(segments(50), NOW, Limits(50, 0))
    assert not newest_is_over(segments(50), NOW, NO_LIMIT)
    assert not newest_is_over([Segment(0, 0, 0, 0, 50)], NOW, Limits(1, 0)), "an empty segment"
