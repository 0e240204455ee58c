"""Delta tables, written without Spark's own writer for them: Parquet files first, then one commit for a batch.

The commit names the query and the number of its batch (Delta's action `txn`), so that a batch that Spark repeats after a
crash adds nothing. Files that a crash left without a commit are not part of the table; deltalake's `vacuum` removes them.
Source: Delta transaction log protocol, "Transaction Identifiers", "Add File".
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.durable import sync, sync_names
from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from deltalake import DeltaTable, Field

LOG: Final = "_delta_log"
INSTALL: Final = "pip install 'gmqttd[tables]'"
ROW_GROUP_ROWS: Final = 131_072
ROW_GROUP_BYTES: Final = 32 << 20
FILES_MAX: Final = 64  # that a task writes at the same time; with more partitions it writes further files
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
CODECS: Final = {"uncompressed": "none"}  # pyarrow's names, where they differ


@dataclass(frozen=True)
class TableSpec:
    """partition_by  columns of type date or string, whose values may stand in names of folders"""

    place: Path
    schema: pa.Schema
    partition_by: tuple[str, ...]
    compression: str = "zstd"


@dataclass(frozen=True)
class DataFile:
    """path        below the table's folder
    partition    column -> value as Delta writes it
    low, high    of the columns of whole numbers
    nulls        rows without a value, of the same columns: readers take a file without this count for one without nulls
    """

    path: str
    bytes: int
    rows: int
    partition: dict[str, str | None]
    low: dict[str, int] = field(default_factory=dict)
    high: dict[str, int] = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)


def check_installed() -> None:
    """Raises PipelineError."""
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise PipelineError(f"Delta tables need deltalake. To install it: {INSTALL}") from None


def is_table(place: Path) -> bool:
    """Whether the log has an entry: a kill while a table is made may leave the folder of the log alone."""
    return any(any((place / LOG).glob(f"[0-9]*.{kind}")) for kind in ("json", "parquet"))


def open_table(place: Path) -> DeltaTable:
    """A table that is there. Raises PipelineError."""
    check_installed()
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        return DeltaTable(place)
    except DeltaError as error:
        raise PipelineError(f"{place} is no Delta table: {error}") from None


def prepare(spec: TableSpec) -> DeltaTable:
    """The table; it is made where there is none, and gets the columns that it does not have. Raises PipelineError where a
    column has another type there."""
    check_installed()
    from deltalake import DeltaTable, Schema

    if not (spec.place / LOG).is_dir() and spec.place.is_dir() and any(spec.place.iterdir()):
        raise PipelineError(f"{spec.place} is no Delta table, and not empty; give another folder")
    spec.place.mkdir(parents=True, exist_ok=True)
    table = DeltaTable.create(
        spec.place, Schema.from_arrow(spec.schema), mode="ignore", partition_by=list(spec.partition_by)
    )
    partitioned = tuple(table.metadata().partition_columns)
    if partitioned != spec.partition_by:
        raise PipelineError(f"{spec.place} is partitioned by {partitioned}, and this would add {spec.partition_by}")
    added = _new_columns(spec.place, table, spec.schema)
    if added:
        table.alter.add_columns(added)
    _sync_log(spec.place, table)
    return table


def _sync_log(place: Path, since: DeltaTable) -> None:
    """Put what was added to the table's log on disk, this version and all later ones; deltalake does not."""
    log = place / LOG
    first = f"{since.version():020}"
    for path in log.iterdir():
        if path.name >= first:  # `_last_checkpoint`, too
            with suppress(FileNotFoundError):  # another writer's, before it has its name
                sync(path)
    sync_names(log, place.parent)


def check_columns(place: Path, schema: pa.Schema) -> None:
    """Raise PipelineError where the table, if it is there, has a column of another type than rows that are to come."""
    if is_table(place):
        _new_columns(place, open_table(place), schema)


def _new_columns(place: Path, table: DeltaTable, schema: pa.Schema) -> list[Field]:
    """Columns that the table does not have. Raises PipelineError."""
    from deltalake import Schema

    known = {each.name.lower(): each for each in table.schema().fields}
    wanted = Schema.from_arrow(schema).fields
    for each in wanted:
        there = known.get(each.name.lower())
        if there is not None and (there.name, str(there.type)) != (each.name, str(each.type)):
            raise PipelineError(
                f"{place} has column {there.name} of type {_name(there.type)}; rows with {each.name} of type "
                f"{_name(each.type)} do not fit. Give the column another name, or move the table and its checkpoint away"
            )
    return [each for each in wanted if each.name.lower() not in known]


def _name(kind: Any) -> str:
    return str(getattr(kind, "type", kind))


def write_files(spec: TableSpec, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
    """Write the rows as files that are on disk and belong to no table yet."""
    names = [name for name in spec.schema.names if name not in spec.partition_by]
    schema = pa.schema([spec.schema.field(name) for name in names])
    open_files: dict[tuple[str | None, ...], _File] = {}
    done: list[DataFile] = []
    for batch in batches:
        keys = batch.select(list(spec.partition_by))
        for values in pa.Table.from_batches([keys]).group_by(list(spec.partition_by)).aggregate([]).to_pylist():
            rows = batch.select(names).filter(_has(keys, values)).cast(schema)
            key = tuple(None if value is None else str(value) for value in values.values())
            if key not in open_files and len(open_files) == FILES_MAX:
                done += [each.close() for each in open_files.values()]
                open_files.clear()
            if key not in open_files:
                open_files[key] = _File(spec, schema, dict(zip(values, key, strict=True)))
            open_files[key].add(rows)
    return done + [each.close() for each in open_files.values()]


def _has(keys: pa.RecordBatch, values: dict[str, Any]) -> pa.Array:
    """Find the rows that have these values."""
    found = pa.array([True] * keys.num_rows)
    for name, value in values.items():
        same = pc.is_null(keys[name]) if value is None else pc.fill_null(pc.equal(keys[name], value), False)
        found = pc.and_(found, same)
    return found


class _File:
    """A Parquet file that is written, in row groups of some size."""

    def __init__(self, spec: TableSpec, schema: pa.Schema, partition: dict[str, str | None]) -> None:
        folders = (f"{name}={NO_VALUE if value is None else value}" for name, value in partition.items())
        self._path = "/".join((*folders, f"{uuid.uuid4().hex}.parquet"))
        self._partition = partition
        self._place = spec.place
        path = spec.place / self._path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(path, schema, compression=CODECS.get(spec.compression, spec.compression))
        self._whole = [each.name for each in schema if pa.types.is_integer(each.type)]
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._rows = 0
        self._low: dict[str, int] = {}
        self._high: dict[str, int] = {}
        self._nulls = dict.fromkeys(self._whole, 0)

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        for name in self._whole:
            self._nulls[name] += rows[name].null_count
            found = pc.min_max(rows[name]).as_py()
            if found["min"] is not None:
                self._low[name] = min(self._low.get(name, found["min"]), found["min"])
                self._high[name] = max(self._high.get(name, found["max"]), found["max"])
        if self._waiting_rows >= ROW_GROUP_ROWS or self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=self._waiting_rows)
            self._rows += self._waiting_rows
            self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def close(self) -> DataFile:
        self._write()
        self._writer.close()
        path = self._place / self._path
        sync(path)
        sync_names(path.parent, self._place)
        bytes_ = path.stat().st_size
        return DataFile(self._path, bytes_, self._rows, self._partition, self._low, self._high, self._nulls)


def commit(spec: TableSpec, query: str, batch: int, files: Sequence[DataFile]) -> bool:
    """Add the files, all or none; whether they were added. A batch that the query added last adds nothing again, and its files
    are removed. Raises PipelineError."""
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import AddAction, CommitProperties, Transaction

    table = prepare(spec)
    if has_batch(spec, table, query, batch):
        remove(spec.place, files)
        return False
    now_ms = round(time.time() * 1000)
    actions = [
        AddAction(
            each.path,
            each.bytes,
            each.partition,
            now_ms,
            True,
            statistics(each),
        )
        for each in files
    ]
    properties = CommitProperties(app_transactions=[Transaction(query, batch)])
    try:
        table.create_write_transaction(
            list(actions), "append", table.schema(), list(spec.partition_by), commit_properties=properties
        )
    except DeltaError as error:
        raise PipelineError(f"{spec.place} does not take batch {batch}: {error}") from None
    _sync_log(spec.place, table)
    return True


def statistics(file: DataFile) -> str:
    """As the table's log has them. Source: Delta transaction log protocol, "Per-file Statistics"."""
    values = {"numRecords": file.rows, "minValues": file.low, "maxValues": file.high, "nullCount": file.nulls}
    return json.dumps(values)


def has_batch(spec: TableSpec, table: DeltaTable, query: str, batch: int) -> bool:
    """Whether this is the batch that the query added last. Raises PipelineError where the table has a later one: the numbers of
    batches begin again with a checkpoint that is older than the table, and their rows are others."""
    last = table.transaction_version(query)
    if last is not None and last > batch:
        raise PipelineError(
            f"{spec.place} has batch {last} of query {query}, whose checkpoint is behind it, at batch {batch}. Restore the "
            "checkpoint that belongs to the table, or move both away, and the query begins again"
        )
    return last == batch


def abort(spec: TableSpec, query: str, batch: int, files: Sequence[DataFile]) -> None:
    """Remove files, unless the table may have them: Spark aborts also what failed behind its commit."""
    last = prepare(spec).transaction_version(query)
    if last is None or last < batch:
        remove(spec.place, files)


def remove(place: Path, files: Iterable[DataFile]) -> None:
    for each in files:
        (place / each.path).unlink(missing_ok=True)


def count_by_partition(place: Path) -> dict[str, int]:
    """NAME=VALUE of a partition column -> rows, as the table's log counts them. Raises PipelineError."""
    table = open_table(place)
    names = table.metadata().partition_columns
    found: dict[str, int] = {}
    for each in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        for name in names:
            partition = f"{name}={each[f'partition.{name}']}"
            found[partition] = found.get(partition, 0) + each["num_records"]
    return found
