"""From rounds to verdicts and the table of `scripts/bench pipeline`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pipeline_report import BEGIN, END, Line, report, write
from report import replace_table

pytestmark = pytest.mark.uncompiled


def ratio(ours: list[float], theirs: list[float], fault: str = "") -> Line:
    return Line("read", "QoS 0", "rows/s", ours, "file source", theirs, 0.5, fault)


def limited(values: list[float], fault: str = "") -> Line:
    return Line("serve", "1 GB", "MB", values, "", (), 100, fault)


@pytest.mark.parametrize(
    ("line", "is_met"),
    [
        (ratio([60.0, 40.0, 70.0], [100.0] * 3), True),  # the median counts
        (ratio([40.0, 60.0, 45.0], [100.0] * 3), False),
        (ratio([90.0], [100.0], "3 rows, 2 distinct ones"), False),
        (ratio([], [], "a node ended"), False),
        (limited([99.0, 100.0]), True),
        (limited([20.0, 101.0]), False),  # the worst round counts
        (limited([], "a node ended"), False),
    ],
)
def test_verdict(line: Line, is_met: bool) -> None:
    assert line.is_met is is_met
    assert ("MISSED" in line.text()) is not is_met
    assert line.fault in line.text()


def test_table_has_the_ratio_and_the_direction_of_the_mark() -> None:
    assert ratio([60.0, 60.0], [100.0, 100.0]).text() == (
        "| read | QoS 0 | rows/s | 60.00 | file source | 100 | 0.60 (0.60 to 0.60) | ≥ 0.50 | met |"
    )
    assert replace(ratio([1.0], [100.0]), mark=0.0).text().endswith("| 0.01 (0.01 to 0.01) |  |  |")
    assert limited([20.0, 30.0]).text() == "| serve | 1 GB | MB | 25.00 |  |  | worst 30.00 | ≤ 100 | met |"


def test_files_and_page(tmp_path: Path) -> None:
    lines = [ratio([60.0], [100.0]), limited([101.0])]
    text = report(lines, {"machine": "two cores"})
    assert "1 of 2 lines MISSED." in text
    write(tmp_path, "pipeline", text, lines, {"machine": "two cores"})
    found = json.loads((tmp_path / "pipeline.json").read_text())
    assert [(line["met"], line["ratio"]) for line in found["lines"]] == [
        (True, {"ratio": 0.6, "low": 0.6, "high": 0.6}),
        (False, None),
    ]
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    replace_table(page, text, BEGIN, END)
    assert page.read_text() == f"before\n{BEGIN}\n\n{text}\n{END}\nafter\n"
