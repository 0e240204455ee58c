"""Messages to Parquet by date and node, each once by (node, log, offset).

Spark's sink log in `_spark_metadata` says which files count. Files of a batch that was cut off lie beside them: read the
folder through `read_archive`, or what `compact` publishes, never by its listing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from pipeline.registry import DELTA, TABLE_FORMATS, Context, Option, Query, streams, table_name
from pipeline.schema import ARROW_SCHEMA

FOLDER: Final = "archive"
COLUMNS: Final = (*ARROW_SCHEMA.names, "date")
COMPRESSIONS: Final = ("zstd", "snappy", "gzip", "uncompressed")
DAY_NS: Final = 86_400_000_000_000


@dataclass(frozen=True)
class ArchiveOptions:
    compression: Annotated[str, Option("of the Parquet files", words=COMPRESSIONS)] = "zstd"
    format: Annotated[
        str, Option("of the table: files below archive, or a Delta table archive-delta", words=TABLE_FORMATS)
    ] = TABLE_FORMATS[0]


def date_of(time_ns: Column) -> Column:
    """The date in UTC, whatever the session's time zone is."""
    return F.date_from_unix_date(F.floor(time_ns / F.lit(DAY_NS)).cast("int"))


def archive(messages: DataFrame) -> DataFrame:
    """The messages and their date."""
    return messages.withColumn("date", date_of(F.col("time")))


def read_archive(spark: SparkSession, folder: str, *names: str) -> DataFrame:
    """All archived messages, each once, or those of some of the files. Names of nodes stay texts."""
    reader = spark.read.schema(from_arrow_schema(ARROW_SCHEMA).add("date", "date")).option("basePath", folder)
    return reader.parquet(*(f"{folder}/{name}" for name in names) if names else (folder,)).select(*COLUMNS)


@streams("archive", ArchiveOptions)
def queries(context: Context, options: ArchiveOptions) -> list[Query]:
    """Messages to Parquet by date and node, each message once."""
    name = table_name(FOLDER, options.format)
    # A Delta table finds the files of a node by their offsets and times; node is a column of them.
    partition_by = ("date",) if options.format == DELTA else ("date", "node")
    return [context.table(name, archive(context.stream(name)), partition_by, options.compression, options.format)]
