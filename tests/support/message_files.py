"""Messages as files that a Spark session reads as a table or as a stream, one file for each micro-batch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from pipeline.schema import ARROW_SCHEMA

SECOND = 1_000_000_000
SCHEMA = from_arrow_schema(ARROW_SCHEMA)
# 2026-11-22 10:00:00 UTC.
TEN = 1_795_341_600 * SECOND


def row(offset: int, seconds: float, **columns: Any) -> dict[str, Any]:
    """A message `seconds` after ten o'clock."""
    time = TEN + round(seconds * SECOND)
    found: dict[str, Any] = {
        "node": "a",
        "log": "log-a",
        "offset": offset,
        "time": time,
        "ts": time // 1000,
        "topic": "house/kitchen/t",
        "payload": b"1",
        "qos": 0,
        "retain": False,
        "client_id": "device",
        **columns,
    }
    return {name: found.get(name) for name in ARROW_SCHEMA.names}


@dataclass
class MessageFiles:
    folder: Path
    written: int = 0

    def add(self, *rows: dict[str, Any]) -> None:
        """One file, which is one micro-batch."""
        self.folder.mkdir(exist_ok=True)
        self.written += 1
        table = pa.Table.from_pylist(list(rows), schema=ARROW_SCHEMA)
        # A source of files leaves out names that begin with a dot.
        hidden = self.folder / f".{self.written:06}"
        pq.write_table(table, hidden)
        # It takes files in the order of their times of change.
        os.utime(hidden, (self.written, self.written))
        hidden.rename(self.folder / f"{self.written:06}.parquet")

    def stream(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.folder))

    def table(self, spark: SparkSession) -> DataFrame:
        return spark.read.schema(SCHEMA).parquet(str(self.folder))


def run_once(rows: DataFrame, folder: Path, *partition_by: str) -> None:
    """Run a query over what there is into Parquet at `folder`/table; a second call goes on at the checkpoint."""
    writer = rows.writeStream.format("parquet").outputMode("append").option("path", str(folder / "table"))
    query = (
        writer.partitionBy(*partition_by)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
