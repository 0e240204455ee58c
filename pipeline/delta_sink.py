"""Sink `gmqttd-delta`: a streaming query adds rows to a Delta table, each batch once. No jar is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.delta_table import DataFile, TableSpec, abort, commit, prepare, write_files
from pipeline.errors import PipelineError
from pipeline.stream_task import batch_of_task

NAME: Final = "gmqttd-delta"


class DeltaSink(DataSource):
    """Options: path; partitionBy, names between commas; compression."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> DeltaStreamWriter:
        if overwrite:
            raise PipelineError('rows of a Delta table are not overwritten; use outputMode("append")')
        partition_by = tuple(name for name in self.options.get("partitionBy", "").split(",") if name)
        # Rows of a stream may lack any value, whatever its plan says.
        fields = [each.with_nullable(True) for each in to_arrow_schema(schema, timezone="UTC")]
        compression = self.options.get("compression", "zstd")
        spec = TableSpec(Path(self.options["path"]), pa.schema(fields), partition_by, compression)
        prepare(spec)
        return DeltaStreamWriter(spec)


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The files of one task."""

    query: str
    batch: int
    files: list[DataFile]


class DeltaStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, spec: TableSpec) -> None:
        self._spec = spec

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(*batch_of_task(), write_files(self._spec, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        for query, batch, files in _batches(messages):
            commit(self._spec, query, batch, files)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        for query, batch, files in _batches(messages):
            abort(self._spec, query, batch, files)


def _batches(messages: Sequence[WriterCommitMessage | None]) -> Iterator[tuple[str, int, list[DataFile]]]:
    """(query, batch, files of all tasks); nothing where no task wrote a file."""
    written = [each for each in messages if isinstance(each, Written)]
    files = [file for each in written for file in each.files]
    if files:
        yield written[0].query, written[0].batch, files
