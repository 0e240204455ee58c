"""The two forms of the schema are one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.schema import ARROW_SCHEMA, READ_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_arrow_schema_equals_that_of_spark_for_the_columns(spark: SparkSession) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    columns = StructType.fromDDL(READ_SCHEMA)
    assert isinstance(columns, StructType)
    assert to_arrow_schema(columns, timezone="UTC").equals(ARROW_SCHEMA)
