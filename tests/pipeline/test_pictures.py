"""Pictures: what is in them, names that are not what they seem, many nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline.pictures import LINES, draw_matrix, draw_rollup, label, save, shown_bytes


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0.0, "0 B"), (999.0, "999 B"), (1000.0, "1 kB"), (1_234_567.0, "1.23 MB"), (5e11, "500 GB")],
)
def test_bytes_are_shown_with_a_unit(count: float, expected: str) -> None:
    assert shown_bytes(count) == expected


def test_long_names_are_cut() -> None:
    assert label("x" * 40) == "x" * 40
    assert label("x" * 41) == "x" * 39 + "…"


def test_names_are_texts_and_no_formulas(tmp_path: Path) -> None:
    links = pd.DataFrame({"source": ["a$1", "b"], "target": ["b", "b"], "bytes": [1000.0, 5.0]})
    filters = pd.DataFrame({"filter": ["$share/g$/<t>&"], "target": ["b"], "bytes": [1000.0]})
    png, svg = save(draw_matrix(["c"], links, filters), tmp_path / "matrix")
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text()
    for name in (">a$1<", ">c<", "$share/g$/&lt;t&gt;&amp; at b"):
        assert name in text
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["matrix.png", "matrix.svg"]


def test_prefixes_with_few_messages_are_one_line(tmp_path: Path) -> None:
    starts = pd.to_datetime(["2026-11-22 10:00:00", "2026-11-22 10:01:00"])
    rows = pd.DataFrame(
        [
            {"start": start, "prefix": f"p{each}", "messages": 100 - each, "gap_median_us": None if each else 5e6}
            for each in range(LINES + 3)
            for start in starts
        ]
    )
    text = save(draw_rollup(rows), tmp_path / "rollup")[1].read_text()
    assert ">other<" in text
    assert f">p{LINES - 1}<" in text
    assert f">p{LINES}<" not in text


def test_a_prefix_has_one_colour_in_both_parts_of_a_rollup() -> None:
    rows = pd.DataFrame(
        [
            {"start": pd.Timestamp(minute, unit="m"), "prefix": prefix, "messages": 9, "gap_median_us": gap}
            for minute in range(3)
            for prefix, gap in (("a", None), ("b", 2e6), ("c", 1e6))
        ]
    )
    figure = draw_rollup(rows)
    top, bottom = figure.axes
    colours = {str(line.get_label()): line.get_color() for line in top.lines}
    assert list(colours) == ["a", "b", "c"]
    assert len(set(colours.values())) == 3
    assert [line.get_color() for line in bottom.lines if np.asarray(line.get_ydata()).max() == 2.0] == [colours["b"]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "c"]
