"""Rows that were lost or doubled fail the line."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pipeline_nodes import Extent
from pipeline_rows import WrongRows, check_offsets

pytestmark = pytest.mark.uncompiled

EXTENTS = {"n1": Extent("log1", 2, 5), "n2": Extent("log2", 0, 2)}
RIGHT = [("n1", "log1", 2), ("n1", "log1", 3), ("n1", "log1", 4), ("n2", "log2", 0), ("n2", "log2", 1)]


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (RIGHT, ""),
        (RIGHT[::-1], ""),
        (RIGHT[1:], "n1: 2 rows, 2 distinct ones, of 3"),
        (RIGHT[:4] + RIGHT[3:4], "n2: 2 rows, 1 distinct ones, of 2"),
        ([*RIGHT, RIGHT[0]], "n1: 4 rows, 3 distinct ones, of 3"),
        ([*RIGHT, ("n3", "log3", 0)], "6 rows"),
        ([*RIGHT[:4], ("n2", "log3", 1)], "log3"),
    ],
)
def test_offsets_are_there_once_each(tmp_path: Path, rows: list[tuple[str, str, int]], fault: str) -> None:
    node, log, offset = zip(*rows, strict=True)
    pq.write_table(pa.table({"node": node, "log": log, "offset": offset}), tmp_path / "part.parquet")
    if not fault:
        check_offsets(tmp_path, EXTENTS)
        return
    with pytest.raises(WrongRows, match=fault):
        check_offsets(tmp_path, EXTENTS)
