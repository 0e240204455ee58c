"""The rows of `scripts/bench pipeline` in Spark: the same work on the nodes' event logs and on Parquet files of
their rows.

Each function does its work once and returns the seconds. Rows are counted exactly, outside of the measured time where the
work itself does not count: a lost or a doubled row is a WrongRows.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.parquet as pq
from pipeline_nodes import Extent
from pyspark.sql import functions as F

from pipeline.schema import ARROW_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NODES: Final = "event logs"
FILES: Final = "file source"
KAFKA: Final = "Kafka's protocol"
POLL_RECORDS: Final = (
    10_000  # Spark asks for the range of the log after each poll of the Java client, which has 500 otherwise
)
ONLY_HOUR: Final = "this range alone"
HOURS: Final = 24
COMPRESSION: Final = "zstd"
NUMBER_BYTES: Final = 8  # of a message, at the start of its payload
SINK_TOPIC: Final = "sink"


class WrongRows(Exception):
    """Rows were lost or doubled."""


@dataclass(frozen=True)
class Place:
    """One data set, twice: in the logs of the nodes, and as Parquet files with the same rows and columns."""

    spark: SparkSession
    servers: str
    extents: Mapping[str, Extent]
    files: Path
    scratch: Path

    @property
    def rows(self) -> int:
        return sum(extent.end - extent.start for extent in self.extents.values())

    def batch(self, participant: str, **options: str) -> DataFrame:
        if participant == FILES:
            return self.spark.read.parquet(str(self.files))
        ends = {node: extent.end for node, extent in self.extents.items()}
        reader = self.spark.read.format("mqtt").options(servers=self.servers, **options)
        return reader.option("startingOffsets", self._starts()).option("endingOffsets", json.dumps(ends)).load()

    def stream(self, participant: str) -> DataFrame:
        if participant == FILES:
            schema = self.spark.read.parquet(str(self.files)).schema
            return self.spark.readStream.schema(schema).parquet(str(self.files))
        reader = self.spark.readStream.format("mqtt").option("servers", self.servers)
        return reader.option("startingOffsets", self._starts()).load()

    def _starts(self) -> str:
        return json.dumps({node: extent.start for node, extent in self.extents.items()})

    def new_folder(self, name: str) -> Path:
        """An empty place on disk; what an earlier round left there is removed."""
        folder = self.scratch / name
        shutil.rmtree(folder, ignore_errors=True)
        return folder


# --- checks


def check_offsets(files: Path, extents: Mapping[str, Extent]) -> None:
    """Raise WrongRows unless the files have each record of these extents once."""
    table = pq.read_table(files, columns=["node", "log", "offset"])
    nodes = table["node"].to_numpy()
    offsets = table["offset"].to_numpy()
    for node, extent in extents.items():
        found = np.sort(offsets[nodes == node])
        wanted = np.arange(extent.start, extent.end)
        if not np.array_equal(found, wanted):
            raise WrongRows(
                f"{node}: {len(found)} rows, {len(np.unique(found))} distinct ones, of {len(wanted)} ({files.name})"
            )
    logs = set(table["log"].unique().to_pylist())
    if table.num_rows != sum(extent.end - extent.start for extent in extents.values()) or logs != {
        extent.log_id for extent in extents.values()
    }:
        raise WrongRows(f"{table.num_rows} rows of the logs {sorted(logs)} ({files.name})")


def check_numbers(frame: DataFrame, rows: int) -> None:
    """Raise WrongRows unless the payloads begin with `rows` numbers, each of them once."""
    number = F.conv(F.hex(F.substring("payload", 1, NUMBER_BYTES)), 16, 10).cast("bigint").alias("number")
    count, distinct = frame.select(number).agg(F.count("number"), F.count_distinct("number")).collect()[0]
    if (count, distinct) != (rows, rows):
        raise WrongRows(f"{count} messages, {distinct} distinct ones, of {rows}")


# --- the work


def write_files(place: Place) -> None:
    """The Parquet files beside which is measured, by Spark itself; their rows are checked against what was published."""
    place.batch(NODES).write.option("compression", COMPRESSION).parquet(str(place.files))
    check_offsets(place.files, place.extents)
    check_numbers(place.batch(FILES), place.rows)


def aggregate(place: Place, participant: str) -> float:
    """Read every column of every row, and aggregate them by node. A file source reads no column that is not used."""
    return _aggregate(place.batch(participant), place.extents)


def one_hour(place: Place) -> tuple[DataFrame, Place]:
    """One of HOURS parts of the time of a data set: the whole with a filter of this time, and these rows by their offsets, as
    if the logs had nothing else."""
    node, extent = min(place.extents.items())
    offsets = [extent.start + (extent.end - extent.start) * hour // HOURS for hour in (HOURS // 2, HOURS // 2 + 1)]
    limits = place.batch(NODES, pushDownPredicate="true").where((F.col("node") == node) & F.col("offset").isin(offsets))
    low, high = sorted(row.time for row in limits.select("time").collect())
    hour = place.batch(NODES, pushDownPredicate="true").where((F.col("time") >= low) & (F.col("time") < high))
    spans = hour.groupBy("node").agg(F.min("offset").alias("first"), F.max("offset").alias("last")).collect()
    extents = {row.node: Extent(place.extents[row.node].log_id, row.first, row.last + 1) for row in spans}
    return hour, replace(place, extents=extents)


def aggregate_hour(hour: DataFrame, there: Place, participant: str) -> float:
    """Read every column of the rows of `one_hour`, by the filter, or by their offsets."""
    return _aggregate(there.batch(NODES) if participant == ONLY_HOUR else hour, there.extents)


def _aggregate(frame: DataFrame, extents: Mapping[str, Extent]) -> float:
    values: list[Any] = [F.count("*").alias("rows"), F.sum("offset").alias("offsets")]
    for field in ARROW_SCHEMA:
        if field.name in ("topic", "payload"):
            values.append(F.sum(F.length(field.name)))
        elif field.name == "retain":
            values.append(F.count_if(field.name))
        elif field.name not in ("node", "offset"):
            values.append(F.max(field.name) if not field.nullable else F.count(field.name))
    start = time.perf_counter()
    found = frame.groupBy("node").agg(*values).collect()
    seconds = time.perf_counter() - start
    sums = {row["node"]: (row["rows"], row["offsets"]) for row in found}
    wanted = {
        node: (extent.end - extent.start, (extent.start + extent.end - 1) * (extent.end - extent.start) // 2)
        for node, extent in extents.items()
    }
    if sums != wanted:
        raise WrongRows(f"rows and sums of their offsets are {sums}, should be {wanted}")
    return seconds


def aggregate_messages(place: Place, participant: str, kafka: str) -> float:
    """Aggregate topics and payloads by node: through Spark's Kafka source at the servers `kafka`, or by the data source
    `mqtt`."""
    if participant == KAFKA:
        reader = place.spark.read.format("kafka").option("kafka.bootstrap.servers", kafka)
        frame = reader.option("subscribe", "mqtt").option("kafka.max.poll.records", POLL_RECORDS).load()
        names = ("partition", "key", "value", "timestamp")
    else:
        names = ("node", "topic", "payload", "ts")
        frame = place.batch(NODES)
    values = [F.count("*"), F.sum("offset"), F.sum(F.length(names[1])), F.sum(F.length(names[2])), F.max(names[3])]
    start = time.perf_counter()
    found = frame.groupBy(names[0]).agg(*values).collect()
    seconds = time.perf_counter() - start
    sums = sorted((row[1], row[2]) for row in found)
    wanted = sorted(
        (extent.end - extent.start, (extent.start + extent.end - 1) * (extent.end - extent.start) // 2)
        for extent in place.extents.values()
    )
    if sums != wanted:
        raise WrongRows(f"rows and sums of their offsets are {sums}, should be {wanted}")
    return seconds


def to_parquet(place: Place, participant: str) -> float:
    """Read every column of every row, and write them to Parquet."""
    folder = place.new_folder("batch")
    start = time.perf_counter()
    place.batch(participant).write.option("compression", COMPRESSION).parquet(str(folder))
    seconds = time.perf_counter() - start
    check_offsets(folder, place.extents)
    return seconds


def stream_to_parquet(place: Place, participant: str) -> float:
    """As to_parquet, as a stream with the trigger availableNow."""
    folder, checkpoint = place.new_folder("stream"), place.new_folder("checkpoint")
    start = time.perf_counter()
    query = (
        place.stream(participant)
        .writeStream.format("parquet")
        .option("compression", COMPRESSION)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(folder))
    )
    query.awaitTermination()
    seconds = time.perf_counter() - start
    check_offsets(folder, place.extents)
    return seconds


def publish_by_sink(place: Place, job: str, rows: int) -> float:
    """Publish `rows` of the Parquet files through the sink, at QoS 1, on the node that the sink chooses."""
    topic = F.concat(F.lit(f"{SINK_TOPIC}/{job}/"), "topic").alias("topic")
    frame = place.batch(FILES).limit(rows).select(topic, "payload").repartition(2).cache()
    assert frame.count() == rows
    try:
        start = time.perf_counter()
        frame.write.format("mqtt").option("servers", place.servers).option("jobId", job).mode("append").save()
        seconds = time.perf_counter() - start
    finally:
        frame.unpersist()
    reader = place.spark.read.format("mqtt").option("servers", place.servers).option("includePipeline", "true")
    check_numbers(reader.option("topics", f"{SINK_TOPIC}/{job}/#").load(), rows)
    return seconds
