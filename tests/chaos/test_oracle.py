"""The oracle finds each kind of fault, and nothing in a run without fault."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from messages import message_of
from oracle import (
    MARKER,
    Row,
    check_acknowledged,
    check_offsets,
    check_sent,
    check_sink,
    compare_with_log,
    copy_payload,
)

SEED = 3


def row(offset: int, **changes: object) -> Row:
    message = message_of(SEED, offset)
    fields = ("node1", "log", offset, 1000 + offset, message.topic.decode(), message.payload, 1, False)
    first = Row(*fields, "publisher", None, None, None, None, (), None, None)
    return first._replace(**changes)  # type: ignore[arg-type]


ROWS = [row(offset) for offset in range(6)]


def copies(rows: list[Row], batch_rows: int = 2) -> list[Row]:
    return [
        row(
            100 + number,
            payload=copy_payload(source),
            user_properties=((MARKER, f"query/{number // batch_rows}/{number % batch_rows}"),),
        )
        for number, source in enumerate(rows)
    ]


def test_an_archive_like_the_log_has_no_fault() -> None:
    assert compare_with_log(ROWS, list(reversed(ROWS))) == []


@pytest.mark.parametrize(
    ("archive", "words"),
    [
        (ROWS[:3] + ROWS[4:], "1 records of a log not in the archive, such as ('node1', 'log', 3)"),
        (ROWS + ROWS[:2], "2 (node, log, offset) more than once"),
        ([*ROWS, row(9)], "1 rows of the archive in no log"),
        ([*ROWS[:5], row(5, payload=b"other", qos=0)], "('node1', 'log', 5): payload, qos"),
    ],
)
def test_an_archive_that_differs_from_the_log(archive: list[Row], words: str) -> None:
    (fault,) = compare_with_log(ROWS, archive)
    assert words in str(fault)


def test_offsets_and_times_of_a_log() -> None:
    other_node = [row(offset, node="node2", time=offset) for offset in range(3)]
    assert check_offsets(ROWS + other_node) == []
    assert [fault.count for fault in check_offsets([*ROWS[:2], row(4, time=1)])] == [1, 1]


def test_messages_that_the_logs_have_too_often() -> None:
    again = row(6, node="node2", payload=ROWS[2].payload)
    assert check_sent(SEED, [1] * 6, ROWS) == []
    assert check_sent(SEED, [1, 1, 2, 1, 1, 1], [*ROWS, again]) == []
    (fault,) = check_sent(SEED, [1] * 5, [*ROWS, again, row(7, payload=b"of nobody")])
    assert fault.count == 3
    assert "number 2: sent 1 times, logged 2 times" in str(fault)


def test_acknowledged_messages() -> None:
    assert check_acknowledged(SEED, bytes([1, 1, 1, 1, 1, 1]), ROWS) == []
    assert check_acknowledged(SEED, bytes([1, 1, 1, 1, 1, 1, 0]), ROWS) == []
    (fault,) = check_acknowledged(SEED, bytes([1, 1, 1, 1, 1, 1, 0, 1]), ROWS)
    assert "1 acknowledged messages not in the archive, such as number 7" in str(fault)
    damaged = [*ROWS[:5], row(5, payload=ROWS[5].payload[:-1])]
    assert [fault.count for fault in check_acknowledged(SEED, bytes([1] * 6), damaged)] == [1, 1]


def test_a_sink_that_copied_each_row_once_has_no_fault() -> None:
    assert check_sink(copies(ROWS), ROWS) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows[:-1], ["source rows that were not copied"]),
        (lambda rows: rows[1:], ["whose rows are not 0, 1", "source rows that were not copied"]),
        (lambda rows: [*rows, rows[-1]], ["(query, batch, row) more than once", "copied more than once"]),
        (lambda rows: [rows[1], rows[0], *rows[2:]], ["whose rows are not 0, 1"]),
        (
            lambda rows: [*rows, rows[0]._replace(payload=b"?", user_properties=((MARKER, "query/7/0"),))],
            ["copies of no source row"],
        ),
        (
            lambda rows: [*rows, rows[0]._replace(user_properties=((MARKER, "query/7/0"),))],
            ["copied more than once"],
        ),
    ],
)
def test_faults_of_a_sink(change: Callable[[list[Row]], list[Row]], words: list[str]) -> None:
    faults = check_sink(change(copies(ROWS)), ROWS)
    assert len(faults) == len(words)
    for fault, text in zip(faults, words, strict=True):
        assert text in str(fault)
