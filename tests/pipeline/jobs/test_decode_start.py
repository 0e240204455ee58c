"""What is refused before Spark starts: packages that are missing, schemas that do not fit the table, options."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
import pytest

from pipeline.delta_table import TableSpec, prepare
from pipeline.errors import OptionError, PipelineError
from pipeline.registry import DELTA, PARQUET, TABLE_FORMATS, Context, find
from spark_tables import write_batch, write_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMAS = """
schemas:
  climate:
    filter: house/+/climate
    format: FORMAT
    columns:
      temperature: {path: $.t, type: double}
"""


def no_spark() -> SparkSession:
    raise AssertionError("Spark was started")


def begin(folder: Path, job: str, **options: str) -> NoReturn:
    """Make the queries of a job; this is to fail."""
    pipeline = find(job)
    own, source = pipeline.read_options(options)
    assert pipeline.queries is not None
    pipeline.queries(Context(no_spark, folder, source), own)
    raise AssertionError("nothing was refused")


def schemas(folder: Path, payload_format: str = "json") -> str:
    file = folder / "schemas.yml"
    file.write_text(SCHEMAS.replace("FORMAT", payload_format))
    return str(file)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("deltalake", "cbor2"):
        monkeypatch.setitem(sys.modules, package, None)
    for job in ("archive", "decode"):
        with pytest.raises(PipelineError, match=r"deltalake.*pip install 'gmqttd\[tables\]'"):
            begin(tmp_path, job, format=DELTA, schemas=schemas(tmp_path))
    with pytest.raises(OptionError, match=r"climate.*cbor2.*pip install 'gmqttd\[tables\]'"):
        begin(tmp_path, "decode", schemas=schemas(tmp_path, "cbor"))


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_a_column_of_another_type_is_named(tmp_path: Path, table_format: str) -> None:
    rows = pa.table({"temperature": ["warm"], "outcome": ["decoded"]})
    if table_format == PARQUET:
        place = tmp_path / "decoded-climate"
        write_batch(place, "0", write_rows(place, "outcome=decoded/a.parquet", rows.to_pydict()))
    else:
        prepare(TableSpec(tmp_path / "decoded-climate-delta", rows.schema, ("outcome",)))
    with pytest.raises(PipelineError, match=r"column temperature of type string; .* of type double do not fit"):
        begin(tmp_path, "decode", format=table_format, schemas=schemas(tmp_path))


def test_options_that_are_wrong_are_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"option topics: .* each schema has a filter"):
        begin(tmp_path, "decode", schemas=schemas(tmp_path), Topics="a/#")
    with pytest.raises(OptionError, match=r"option schemas: .*format is 'xml'"):
        begin(tmp_path, "decode", schemas=schemas(tmp_path, "xml"))
    with pytest.raises(OptionError, match=r"option schemas: .*cannot be read"):
        begin(tmp_path, "decode", schemas=str(tmp_path / "nothing.yml"))
