"""From slices to verdicts, the table and its page."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Final

import pytest
from report import BEGIN, END, Line, lines_of, replace_table, report, write
from rows import MOSQUITTO, OTHER, THIS, Figure, Row
from slices import Slice, Slices

pytestmark = pytest.mark.uncompiled

ROW: Final = Row("load", "", 1, (Figure("cpu", "µs", {OTHER: 1.1, MOSQUITTO: 0.5}),), (OTHER, MOSQUITTO))
LIMITED: Final = Row("stall", "", 1, (Figure("wait", "ms", limit=250), Figure("p99", "ms")), ())


def measured(folder: Path, row: Row, values: dict[str, list[float]], lost: int = 0) -> list[Line]:
    """The lines of a row after these values of its first figure, round by round."""
    slices = Slices(folder / "slices.jsonl", {}, continues=False)
    for participant, column in values.items():
        for number, value in enumerate(column, 1):
            found = dict.fromkeys((figure.key for figure in row.figures), value)
            slices.add(Slice(row.name, participant, number, found, lost if participant == THIS else 0))
    slices.close()
    return list(lines_of(row, slices))


@pytest.mark.parametrize(
    ("ours", "is_met"),
    [
        ([1.0] * 6, True),
        ([1.2] * 6, False),
        ([1.05, 1.3] * 3, True),  # the interval reaches below the mark
        ([1.11] * 6, False),
    ],
)
def test_another_commit_is_missed_only_where_the_whole_interval_lies_above(
    tmp_path: Path, ours: list[float], is_met: bool
) -> None:
    (line,) = measured(tmp_path, ROW, {THIS: ours, OTHER: [1.0] * 6})
    assert line.is_met is is_met
    assert ("MISSED" in line.text({})) is not is_met


def test_a_peer_is_missed_where_the_ratio_lies_above(tmp_path: Path) -> None:
    (line,) = measured(tmp_path, ROW, {THIS: [0.4, 0.6, 0.6], MOSQUITTO: [1.0, 1.0, 1.0]})
    assert not line.is_met


def test_a_limit_holds_for_the_worst_slice(tmp_path: Path) -> None:
    limited, shown = measured(tmp_path, LIMITED, {THIS: [10.0, 20.0, 251.0]})
    assert not limited.is_met
    assert limited.text({}) == "| stall | ms | 20.00 |  |  | worst 251 | ≤ 250 | **MISSED** |"
    assert shown.is_met
    assert shown.mark == math.inf


def test_a_lost_message_misses_every_line_of_its_row(tmp_path: Path) -> None:
    lines = measured(tmp_path, ROW, {THIS: [0.1], OTHER: [1.0], MOSQUITTO: [1.0]}, lost=3)
    assert [line.is_met for line in lines] == [False, False]
    assert all("lost 3" in line.text({}) for line in lines)


def test_only_rounds_of_both_are_compared(tmp_path: Path) -> None:
    (line,) = measured(tmp_path, ROW, {THIS: [1.0, 2.0, 9.0], OTHER: [1.0, 2.0]})
    assert (line.ours, line.theirs) == ([1.0, 2.0], [1.0, 2.0])


def test_a_row_without_slices_of_this_checkout_has_no_line(tmp_path: Path) -> None:
    assert measured(tmp_path, ROW, {OTHER: [1.0]}) == []


def test_report_and_files(tmp_path: Path) -> None:
    lines = measured(tmp_path, ROW, {THIS: [1.0, 1.2], OTHER: [1.0, 1.0], MOSQUITTO: [4.0, 4.0]})
    text = report(lines, 2, {"gmqtt": "not there"}, {"machine": "two cores"}, {OTHER: "abc123"})
    assert "| load | µs | 1.10 | abc123 | 1.00 | 1.10 (1.00 to 1.20) | ≤ 1.10 | met |" in text
    assert "| load | µs | 1.10 | mosquitto | 4.00 | 0.28 (0.25 to 0.30) | ≤ 0.50 | met |" in text
    assert "- gmqtt: not there" in text
    assert "- machine: two cores" in text
    assert "Every mark is met." in text
    write(tmp_path / "results", "latest", text, lines, {"machine": "two cores"})
    assert (tmp_path / "results" / "latest.md").read_text() == text
    data = json.loads((tmp_path / "results" / "latest.json").read_text())
    assert [(line["beside"], line["ours"], line["mark"], line["met"]) for line in data["lines"]] == [
        (OTHER, [1.0, 1.2], 1.1, True),
        (MOSQUITTO, [1.0, 1.2], 0.5, True),
    ]


def test_the_table_replaces_the_one_before_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    for _ in range(2):
        replace_table(page, "new\n")
        assert page.read_text() == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
