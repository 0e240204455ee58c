"""Compaction: what is closed, crashes between steps, late files, and what other readers see."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from message_files import MessageFiles, row, run_once
from pipeline.errors import PipelineError
from pipeline.jobs import compact as job
from pipeline.jobs.archive import archive
from pipeline.jobs.compact import CompactOptions, compact, plan
from pipeline.manifest import Manifest, compacted_files, publish, read_manifest

DAY = 86_400.0
OPTIONS = CompactOptions(close_after=3600.0)
NOON_OF_THE_NEXT_DAY = datetime(2026, 11, 23, 12, tzinfo=UTC)


def test_only_closed_dates_and_new_files_are_planned() -> None:
    files = [f"date=2026-11-2{day}/node=a/{name}" for day in (1, 2, 3) for name in ("x", "y")]
    manifest = Manifest().with_date("2026-11-21", [], [files[0]])
    assert plan(files, manifest, datetime(2026, 11, 23, 1, tzinfo=UTC), 3600.0) == {
        "2026-11-21": [files[1]],
        "2026-11-22": files[2:4],
    }
    assert plan(files, manifest, datetime(2026, 11, 23, 0, 59, tzinfo=UTC), 3600.0) == {"2026-11-21": [files[1]]}


def test_a_manifest_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(PipelineError, match=r"manifest.json cannot be read"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 9}')
    with pytest.raises(PipelineError, match="format 9"):
        read_manifest(tmp_path)


@pytest.fixture
def archived(spark: SparkSession, tmp_path: Path) -> Path:
    """Three batches of two nodes, one with a name that paths escape, and of two dates."""
    messages = MessageFiles(tmp_path / "messages")
    for batch in range(3):
        rows = [row(100 * batch + each, batch + each, payload=bytes([each]) * each) for each in range(100)]
        others = [row(10 * batch + each, batch, node="b c=d%", log="log-b") for each in range(10)]
        messages.add(*rows, *others, row(1000 + batch, DAY + batch))
    run_once(archive(messages.stream(spark)), tmp_path, "date", "node")
    return tmp_path / "table"


def offsets(folder: Path) -> list[tuple[str, str, int]]:
    """As pyarrow reads what the manifest names."""
    found: list[tuple[str, str, int]] = []
    for path in compacted_files(folder):
        table = pq.ParquetFile(path).read(["node", "log", "offset"])
        found += [(each["node"], each["log"], each["offset"]) for each in table.to_pylist()]
    return sorted(found)


EXPECTED = sorted([("a", "log-a", each) for each in range(300)] + [("b c=d%", "log-b", each) for each in range(30)])


def test_other_readers_see_each_message_once(spark: SparkSession, archived: Path, tmp_path: Path) -> None:
    folder = tmp_path / "compacted"
    added = compact(spark, archived, folder, OPTIONS, NOON_OF_THE_NEXT_DAY)
    assert [(day, sum(each.rows for each in files)) for day, files in added.items()] == [("2026-11-22", 330)]
    assert [len(files) for files in added.values()] == [1]
    assert offsets(folder) == EXPECTED
    (written,) = read_manifest(folder).files
    assert written.logs == [
        {"node": "a", "log": "log-a", "first_offset": 0, "last_offset": 299},
        {"node": "b c=d%", "log": "log-b", "first_offset": 0, "last_offset": 29},
    ]
    frame = pd.read_parquet(compacted_files(folder))
    assert (len(frame), frame["payload"].map(len).sum()) == (330, 3 * 4950 + 30)
    by_node = 'SELECT node, count(DISTINCT (log, "offset")) FROM read_parquet($files) GROUP BY node ORDER BY node'
    assert duckdb.execute(by_node, {"files": compacted_files(folder)}).fetchall() == [("a", 300), ("b c=d%", 30)]
    assert compact(spark, archived, folder, OPTIONS, NOON_OF_THE_NEXT_DAY) == {}


def test_files_have_the_size_that_was_asked_for(spark: SparkSession, archived: Path, tmp_path: Path) -> None:
    folder = tmp_path / "compacted"
    size = sum(path.stat().st_size for path in archived.glob("date=2026-11-22/*/*.parquet"))
    compact(spark, archived, folder, CompactOptions(file_bytes=str(size // 3 + 1)), NOON_OF_THE_NEXT_DAY)
    assert offsets(folder) == EXPECTED
    assert len(compacted_files(folder)) == 3


class Crashed(Exception):
    pass


def crash(*_arguments: Any, **_named: Any) -> Any:
    raise Crashed


def crash_after(step: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any, **named: Any) -> Any:
        step(*arguments, **named)
        raise Crashed

    return run


@pytest.mark.parametrize("step", ["plan", "rows_of", "sync_files", "publish", "after publish"])
def test_a_crash_between_two_steps_leaves_a_consistent_state(
    spark: SparkSession, archived: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    folder = tmp_path / "compacted"
    with monkeypatch.context() as patch:
        name, action = ("publish", crash_after(publish)) if step == "after publish" else (step, crash)
        patch.setattr(job, name, action)
        with pytest.raises(Crashed):
            compact(spark, archived, folder, OPTIONS, NOON_OF_THE_NEXT_DAY)
    is_published = step == "after publish"
    assert offsets(folder) == (EXPECTED if is_published else [])
    compact(spark, archived, folder, OPTIONS, NOON_OF_THE_NEXT_DAY)
    assert offsets(folder) == EXPECTED
    places = {str(path.relative_to(folder)) for path in folder.glob("*/*")}
    assert places == read_manifest(folder).folders()


def test_messages_that_come_later_for_a_closed_date_are_added(
    spark: SparkSession, archived: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "compacted"
    compact(spark, archived, folder, OPTIONS, NOON_OF_THE_NEXT_DAY)
    messages = MessageFiles(tmp_path / "messages", written=3)
    messages.add(row(5000, 1), row(5001, 2))
    run_once(archive(messages.stream(spark)), tmp_path, "date", "node")
    added = compact(spark, archived, folder, OPTIONS, NOON_OF_THE_NEXT_DAY)
    assert [sum(each.rows for each in files) for files in added.values()] == [2]
    assert offsets(folder) == sorted([*EXPECTED, ("a", "log-a", 5000), ("a", "log-a", 5001)])


def test_folder_without_an_archive_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="is no archive: run the pipeline `archive` first"):
        compact(spark, tmp_path / "nothing", tmp_path / "compacted", OPTIONS, NOON_OF_THE_NEXT_DAY)
