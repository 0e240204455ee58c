"""Records that wait for the writer: blocks that are closed, time that does not step back, what a stopped log drops."""

from __future__ import annotations

import pytest

from broker.event_log.appender import BLOCK_BYTES, Appender, State
from broker.event_log.block import DELTA_MICROSECONDS_MAX, Block, read_header

BEGIN = 1_700_000_000_000_000_000
PUBLISHER = ("c", "", "")


@pytest.fixture
def appender() -> Appender:
    made = Appender(0)
    made.set_time(BEGIN)
    return made


def times(blocks: list[Block]) -> list[tuple[int, int]]:
    headers = [read_header(block.take(0)) for block in blocks]
    return [(header.time_ns - BEGIN, header.records) for header in headers if header is not None]


def test_nothing_waits_after_it_was_taken(appender: Appender) -> None:
    appender.append(b"t", b"payload", 1, PUBLISHER, b"")
    appender.append_run(b"t", b"\x30\x04\x00\x01ta" * 3, 3, 1, PUBLISHER)
    appender.commit, appender.is_urgent = 7, True
    assert appender.records == 4
    assert appender.bytes > 0
    assert times(appender.take()) == [(0, 4)]
    fresh = Appender(0)
    for name in ("records", "bytes", "commit", "is_urgent"):
        assert getattr(appender, name) == getattr(fresh, name), name
    assert appender.take() == []


def test_a_full_block_is_closed_and_is_to_be_written_at_once(appender: Appender) -> None:
    appender.append(b"t", b"", 0, PUBLISHER, b"")
    urgent = [appender.is_urgent]
    appender.append(b"t", bytes(BLOCK_BYTES), 0, PUBLISHER, b"")
    urgent.append(appender.is_urgent)
    assert urgent == [False, True]
    appender.append(b"t", b"", 0, PUBLISHER, b"")
    assert times(appender.take()) == [(0, 2), (0, 1)]


@pytest.mark.parametrize(
    ("wall", "expected"),
    [
        ([0, 5000, 9000], [(0, 3)]),
        ([5000, 0, 4000], [(5000, 3)]),  # a clock that steps back
        ([0, DELTA_MICROSECONDS_MAX * 1000, 1], [(0, 3)]),
        ([0, (DELTA_MICROSECONDS_MAX + 1) * 1000], [(0, 1), ((DELTA_MICROSECONDS_MAX + 1) * 1000, 1)]),
    ],
)
def test_the_times_of_records(appender: Appender, wall: list[int], expected: list[tuple[int, int]]) -> None:
    for passed in wall:
        appender.set_time(BEGIN + passed)
        appender.append(b"t", b"", 0, PUBLISHER, b"")
    assert appender.time_ns == BEGIN + max(wall)
    assert times(appender.take()) == expected


def test_a_stopped_log_counts_the_records_that_it_drops(appender: Appender) -> None:
    appender.state = State.DROPPING
    appender.append(b"t", b"", 0, PUBLISHER, b"")
    appender.append_run(b"t", b"\x30\x04\x00\x01ta" * 3, 3, 1, PUBLISHER)
    assert (appender.lost, appender.records) == (4, 0)
