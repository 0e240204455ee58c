"""Delta tables: a batch is added once, columns are added, other types are refused; DuckDB reads the result by Arrow."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.aside import kept_aside
from pipeline.delta_table import (
    LOG,
    DataFile,
    TableSpec,
    abort,
    check_columns,
    commit,
    count_by_partition,
    prepare,
    write_files,
)
from pipeline.errors import PipelineError
from pipeline.schema import USER_PROPERTIES
from pipeline.undecoded import undecoded

DAY = date(2026, 11, 22)
SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("user_properties", USER_PROPERTIES),
        ("outcome", pa.string()),
        ("date", pa.date32()),
    ]
)


def spec(folder: Path, schema: pa.Schema = SCHEMA, partition_by: tuple[str, ...] = ("outcome", "date")) -> TableSpec:
    return TableSpec(folder / "table", schema, partition_by)


def batch(*offsets: int, schema: pa.Schema = SCHEMA, **columns: Any) -> pa.RecordBatch:
    rows = [
        {
            "offset": each,
            "ts": each,
            "user_properties": [{"key": "k", "value": str(each)}] if each % 2 else None,
            "outcome": "undecoded" if each % 5 == 0 else "decoded",
            "date": DAY,
            **columns,
        }
        for each in offsets
    ]
    return pa.RecordBatch.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)


def write(wanted: TableSpec, *offsets: int, **columns: Any) -> list[DataFile]:
    prepare(wanted)
    return write_files(wanted, [batch(*offsets, schema=wanted.schema, **columns)])


def rows_of(wanted: TableSpec, what: str = '"offset"', where: str = "true") -> list[Any]:
    """As DuckDB reads them."""
    with duckdb.connect() as connection:
        connection.register("given", DeltaTable(wanted.place).to_pyarrow_dataset())
        return [row[0] for row in connection.sql(f"SELECT {what} FROM given WHERE {where}").fetchall()]


def parquet_files(wanted: TableSpec) -> int:
    return len([path for path in wanted.place.rglob("*.parquet") if LOG not in path.parts])


def test_a_batch_is_added_once(tmp_path: Path) -> None:
    wanted = spec(tmp_path)
    assert commit(wanted, "q", 0, write(wanted, *range(10)))
    assert parquet_files(wanted) == 2  # one for each outcome
    # The driver was killed before it noted the batch: Spark repeats it.
    assert not commit(wanted, "q", 0, write(wanted, *range(10)))
    assert parquet_files(wanted) == 2
    assert commit(wanted, "q", 1, write(wanted, 10, 11))
    assert commit(wanted, "other", 0, write(wanted, 12))
    assert Counter(rows_of(wanted)) == Counter(range(13))
    assert rows_of(wanted, "user_properties[1].value", '"offset" = 3') == ["3"]
    assert count_by_partition(wanted.place) == {"outcome=decoded": 10, "outcome=undecoded": 3, "date=2026-11-22": 13}
    assert kept_aside(wanted.place) == {"undecoded": 3}


class Disk:
    """What a power failure leaves: the content that a file, and the names that a folder, had at its last fsync."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._synced: dict[Path, object] = {}
        monkeypatch.setattr("os.fsync", self._fsync)

    def _fsync(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        self._synced[path] = self._state(path)

    def _state(self, path: Path) -> object:
        return {each.name for each in path.iterdir()} if path.is_dir() else path.read_bytes()

    def lacks(self, top: Path) -> list[str]:
        return [str(path) for path in (top, *top.rglob("*")) if self._synced.get(path) != self._state(path)]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc/self/fd")
def test_a_batch_that_is_in_the_table_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    wanted = spec(tmp_path)
    prepare(wanted)
    assert disk.lacks(tmp_path) == []
    commit(wanted, "q", 0, write(wanted, *range(10)))
    assert disk.lacks(tmp_path) == []
    wider = spec(tmp_path, SCHEMA.append(pa.field("more", pa.int64())))
    prepare(wider)
    assert disk.lacks(tmp_path) == []
    monkeypatch.setattr("pipeline.delta_table._sync_log", lambda *_: None)
    commit(wanted, "q", 1, write(wanted, 10))  # killed before the log was on disk
    monkeypatch.undo()
    disk = Disk(monkeypatch)
    assert not commit(wanted, "q", 1, write(wanted, 10)), "Spark repeats it"
    assert f"{3:020}.json" not in "".join(disk.lacks(tmp_path))


def test_files_without_a_commit_do_not_count(tmp_path: Path) -> None:
    """A kill -9 leaves them."""
    wanted = spec(tmp_path)
    write(wanted, 1, 2)
    assert commit(wanted, "q", 0, write(wanted, 1, 2))
    assert sorted(rows_of(wanted)) == [1, 2]


def test_an_aborted_batch_leaves_nothing_unless_it_was_committed(tmp_path: Path) -> None:
    wanted = spec(tmp_path)
    files = write(wanted, 1, 2)
    abort(wanted, "q", 0, files)
    assert parquet_files(wanted) == 0
    files = write(wanted, 1, 2)
    commit(wanted, "q", 0, files)
    abort(wanted, "q", 0, files)
    assert sorted(rows_of(wanted)) == [1, 2]


def test_a_column_that_is_new_is_added(tmp_path: Path) -> None:
    wanted = spec(tmp_path)
    commit(wanted, "q", 0, write(wanted, 1))
    more = spec(tmp_path, SCHEMA.insert(1, pa.field("unit", pa.string())))
    commit(more, "q", 1, write(more, 2, unit="C"))
    commit(wanted, "q", 2, write(wanted, 3))  # it is declared no more
    assert Counter(rows_of(wanted, "unit")) == Counter([None, "C", None])


@pytest.mark.parametrize(
    ("schema", "partition_by", "named"),
    [
        (SCHEMA.set(0, pa.field("offset", pa.string())), ("outcome", "date"), "column offset of type .*long.* string"),
        (SCHEMA.set(1, pa.field("TS", SCHEMA[1].type)), ("outcome", "date"), "column ts of type .* TS of type"),
        (SCHEMA, ("date",), "partitioned by"),
    ],
)
def test_what_does_not_fit_the_table_is_named(
    tmp_path: Path, schema: pa.Schema, partition_by: tuple[str, ...], named: str
) -> None:
    prepare(spec(tmp_path))
    with pytest.raises(PipelineError, match=named):
        prepare(spec(tmp_path, schema, partition_by))


def test_a_kill_while_a_table_is_made_does_not_block_it(tmp_path: Path) -> None:
    wanted = spec(tmp_path)
    (wanted.place / LOG).mkdir(parents=True)
    check_columns(wanted.place, wanted.schema)
    assert kept_aside(wanted.place) == {}
    assert undecoded(wanted.place)["reasons"] == []
    commit(wanted, "q", 0, write(wanted, 1))
    assert rows_of(wanted) == [1]


def test_another_folder_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "table" / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(PipelineError, match="no Delta table, and not empty"):
        prepare(spec(tmp_path))


@pytest.mark.interpreted
def test_many_partitions_are_written_with_few_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.delta_table.FILES_MAX", 2)
    wanted = spec(tmp_path, partition_by=("date",))
    prepare(wanted)
    days = [DAY.replace(day=1 + number % 5) for number in range(20)]
    files = write_files(wanted, [batch(number, date=day) for number, day in enumerate(days)])
    commit(wanted, "q", 0, files)
    assert Counter(rows_of(wanted)) == Counter(range(20))
    assert Counter(rows_of(wanted, "date")) == Counter(days)


@pytest.mark.interpreted
def test_row_groups_have_many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.delta_table.ROW_GROUP_ROWS", 5)
    wanted = spec(tmp_path, partition_by=("date",))
    prepare(wanted)
    (file,) = write_files(wanted, [batch(number) for number in range(12)])
    assert (file.rows, file.low["offset"], file.high["offset"]) == (12, 0, 11)
    found = pa.parquet.ParquetFile(wanted.place / file.path).metadata
    assert [found.row_group(at).num_rows for at in range(found.num_row_groups)] == [5, 5, 2]


def test_readers_skip_files_by_their_statistics(tmp_path: Path) -> None:
    wanted = spec(tmp_path, partition_by=("date",))
    for number in range(3):
        commit(wanted, "q", number, write(wanted, *range(number * 10, number * 10 + 10)))
    table = DeltaTable(wanted.place)
    assert len(table.file_uris(file_pruning_predicate="offset >= 20")) == 1
    assert sorted(rows_of(wanted, where='"offset" BETWEEN 8 AND 11')) == [8, 9, 10, 11]


def test_rows_without_a_value_are_found(tmp_path: Path) -> None:
    """Readers skip files by the statistics also where a value is asked to be missing."""
    wanted = spec(tmp_path, SCHEMA.insert(1, pa.field("expiry", pa.int64())), ("date",))
    commit(wanted, "q", 0, write(wanted, 1, 2, expiry=60))
    commit(wanted, "q", 1, write(wanted, 3))
    mixed = pa.concat_batches([batch(each, schema=wanted.schema, expiry=60 if each == 4 else None) for each in (4, 5)])
    commit(wanted, "q", 2, write_files(wanted, [mixed]))
    assert sorted(rows_of(wanted, where="expiry IS NULL")) == [3, 5]
    assert sorted(rows_of(wanted, where="expiry IS NOT NULL")) == [1, 2, 4]
    found = DeltaTable(wanted.place).to_pyarrow_dataset().to_table(filter=pc.field("expiry").is_null())
    assert sorted(found["offset"].to_pylist()) == [3, 5]


def test_a_checkpoint_that_is_behind_the_table_is_an_error(tmp_path: Path) -> None:
    """Its batches have other rows than those of the same number before: to skip them would lose them."""
    wanted = spec(tmp_path)
    commit(wanted, "q", 7, write(wanted, 1))
    files = write(wanted, 2)
    with pytest.raises(PipelineError, match=r"batch 7 of query q.* behind .*batch 3\..*checkpoint"):
        commit(wanted, "q", 3, files)
    abort(wanted, "q", 3, files)
    assert commit(wanted, "q", 8, write(wanted, 3))
    assert sorted(rows_of(wanted)) == [1, 3]


@settings(max_examples=10)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=8))
def test_batches_come_once_whatever_is_repeated(
    tmp_path_factory: pytest.TempPathFactory, tries: list[tuple[int, bool]]
) -> None:
    """Batches rise; each try may end before its commit or after it."""
    wanted = spec(tmp_path_factory.mktemp("delta"), partition_by=("date",))
    expected: list[int] = []
    last = -1
    for number, is_killed in sorted(tries):
        files = write(wanted, number)
        if not is_killed:
            commit(wanted, "q", number, files)
            if number > last:
                expected.append(number)
                last = number
    prepare(wanted)
    assert sorted(rows_of(wanted)) == expected


def test_the_log_names_query_and_batch(tmp_path: Path) -> None:
    wanted = spec(tmp_path)
    commit(wanted, "q", 7, write(wanted, 1))
    lines = (wanted.place / LOG / f"{1:020}.json").read_text().splitlines()
    (txn,) = [each["txn"] for each in map(json.loads, lines) if "txn" in each]
    assert (txn["appId"], txn["version"]) == ("q", 7)
