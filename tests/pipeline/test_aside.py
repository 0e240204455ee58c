"""What jobs kept aside is counted from the files that Spark's sink log names."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.aside import aside_text, committed_files, kept_aside
from pipeline.errors import PipelineError
from spark_tables import write_batch, write_rows


def test_late_messages_are_the_sum_of_their_rows(tmp_path: Path) -> None:
    table = tmp_path / "rollup-2-1m"
    late = write_rows(table, "arrival=late/date=2026-11-22/a.parquet", {"prefix": ["a", "b"], "messages": [3, 4]})
    in_time = write_rows(table, "arrival=in-time/date=2026-11-22/b.parquet", {"messages": [100]})
    cut_off = write_rows(table, "arrival=late/date=2026-11-22/c.parquet", {"messages": [1000]})
    write_batch(table, "0", late, in_time)
    assert cut_off not in list(committed_files(table))
    assert kept_aside(table) == {"late": 7}
    assert aside_text(kept_aside(table)) == "7 late"


def test_statistics_count_each_message_once(tmp_path: Path) -> None:
    rows: dict[str, list[object]] = {"column": ["", "t", "u"], "messages": [5, 5, 5]}
    write_batch(tmp_path / "t", "0", write_rows(tmp_path / "t", "arrival=late/a.parquet", rows))
    assert kept_aside(tmp_path / "t") == {"late": 5}


def test_rejected_payloads_are_rows(tmp_path: Path) -> None:
    rows: dict[str, list[object]] = {"fault": ["empty", "not JSON", "not UTF-8"]}
    write_batch(tmp_path / "t", "0", write_rows(tmp_path / "t", "outcome=rejected/a.parquet", rows))
    assert kept_aside(tmp_path / "t") == {"rejected": 3}


def test_a_compact_file_stands_for_the_batches_before_it(tmp_path: Path) -> None:
    table = tmp_path / "a table"
    names = [write_rows(table, f"arrival=late/{number}.parquet", {"messages": [1]}) for number in range(5)]
    write_batch(table, "8", names[0])
    write_batch(table, "9.compact", *names[:3])
    write_batch(table, "10", names[3])
    write_batch(table, "11", names[4])
    assert list(committed_files(table)) == names
    assert kept_aside(table) == {"late": 5}


def test_a_table_that_is_not_there_has_nothing_aside(tmp_path: Path) -> None:
    assert kept_aside(tmp_path / "archive") == {}
    assert aside_text({}) == ""


def test_damaged_files_are_named(tmp_path: Path) -> None:
    write_batch(tmp_path / "t", "0", "arrival=late/a.parquet")
    with pytest.raises(PipelineError, match=r"arrival=late/a\.parquet is no Parquet file of this table"):
        kept_aside(tmp_path / "t")
    (tmp_path / "t" / "_spark_metadata" / "0").write_text("v1\n{")
    with pytest.raises(PipelineError, match=r"_spark_metadata/0 is no sink log of Spark"):
        kept_aside(tmp_path / "t")
