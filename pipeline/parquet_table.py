"""Tables of Parquet files that Spark's sink log names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.aside import committed_files
from pipeline.errors import PipelineError


def check_columns(place: Path, schema: pa.Schema) -> None:
    """Raise PipelineError where the newest file has a column of another type than rows that are to come: readers take the
    files together. New columns are no fault."""
    names = list(committed_files(place))
    if not names:
        return
    try:
        known = {each.name.lower(): each for each in pq.read_schema(place / names[-1])}
    except (OSError, pa.ArrowInvalid) as error:
        raise PipelineError(f"{place / names[-1]} is no Parquet file of this table: {error}") from None
    for each in schema:
        there = known.get(each.name.lower())
        if there is not None and (there.name != each.name or not _is_same(there.type, each.type)):
            raise PipelineError(
                f"{place} has column {there.name} of type {there.type}; rows with {each.name} of type {each.type} do not "
                "fit. Give the column another name, or move the table and its checkpoint away"
            )


def _is_same(one: pa.DataType, other: pa.DataType) -> bool:
    """Spark writes instants as INT96, which has no unit and no zone."""
    return bool(one == other) or (pa.types.is_timestamp(one) and pa.types.is_timestamp(other))
