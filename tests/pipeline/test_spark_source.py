"""Data source `mqtt` in Spark: columns, streams to Parquet, restarts, and errors as users see them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from broker.codec.properties import encode_publish_properties
from broker.event_log.block import encode_extra
from event_log_node import TIME, EventLogNode, event_log_nodes
from waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_columns_and_values(spark: SparkSession) -> None:
    with event_log_nodes("n1") as (node,):
        extra = encode_extra(
            60,
            encode_publish_properties(
                content_type="json",
                response_topic=b"r",
                correlation_data=b"\xff",
                user_properties=[("k", "1"), ("k", "2")],
            ),
        )
        node.append(("a/ü", b"\x00\x01"), extra=extra)
        node.append(("b", b""))
        rows = spark.read.format("mqtt").option("servers", node.address).load().orderBy("offset").collect()
        assert [row.asDict(recursive=True) for row in rows] == [
            {
                "node": "n1",
                "log": node.log_id,
                "offset": offset,
                "time": TIME,
                "ts": datetime.fromtimestamp(TIME / 1e9, UTC).replace(tzinfo=None),
                "topic": topic,
                "payload": bytearray(payload),
                "qos": 1,
                "retain": False,
                "client_id": "c",
                "user_name": None,
                "origin": None,
                **more,
            }
            for offset, topic, payload, more in (
                (
                    0,
                    "a/ü",
                    b"\x00\x01",
                    {
                        "content_type": "json",
                        "response_topic": "r",
                        "correlation_data": bytearray(b"\xff"),
                        "user_properties": [{"key": "k", "value": "1"}, {"key": "k", "value": "2"}],
                        "expiry": 60,
                    },
                ),
                (
                    1,
                    "b",
                    b"",
                    {
                        "content_type": None,
                        "response_topic": None,
                        "correlation_data": None,
                        "user_properties": None,
                        "expiry": None,
                    },
                ),
            )
        ]


def to_parquet(spark: SparkSession, node: EventLogNode, folder: Path, **options: Any) -> list[dict[str, Any]]:
    """Run until the logs end; the progress of each batch."""
    frame = spark.readStream.format("mqtt").options(
        servers=node.address, startingOffsets="earliest", groupId="g", **options
    )
    query = (
        frame.load()
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return [dict(progress) for progress in query.recentProgress if progress["numInputRows"]]


def test_a_stream_with_restarts_writes_each_record_once(spark: SparkSession, tmp_path: Path) -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        a.append_numbers(300)
        b.append_numbers(150)
        first = to_parquet(spark, a, tmp_path, maxOffsetsPerTrigger=180)
        assert [each["numInputRows"] for each in first] == [180, 180, 90]
        a.append_numbers(100)
        second = to_parquet(spark, a, tmp_path, maxBytesPerTrigger=int(50 * a.log_bytes / 400), minPartitions=4)
        assert sum(each["numInputRows"] for each in second) == 100
        assert 2 <= len(second) <= 4
        assert to_parquet(spark, a, tmp_path) == []
        a.append_numbers(5)
        waiting = to_parquet(spark, a, tmp_path, minOffsetsPerTrigger=10_000)  # not with this trigger
        assert [each["numInputRows"] for each in waiting] == [5]
        found = spark.read.parquet(str(tmp_path / "out"))
        assert found.count() == 555
        assert found.select("node", "log", "offset").distinct().count() == 555
        assert found.where("cast(cast(payload as string) as bigint) != offset").count() == 0
        # The hold lags one batch: Spark calls commit for a batch when it plans the next one.
        assert a.held["g", "g"] == 400


async def test_batches_wait_for_records_and_tell_the_lag(spark: SparkSession, checkpoint: str) -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        a.append_numbers(10)
        frame = spark.readStream.format("mqtt").options(
            servers=a.address, startingOffsets="earliest", minOffsetsPerTrigger=20, maxRecordsPerPartition=8
        )
        query = frame.load().writeStream.format("noop").option("checkpointLocation", checkpoint).start()

        def batches() -> list[int]:
            return [each.numInputRows for each in query.recentProgress if each.numInputRows]

        try:
            await eventually(lambda: batches() == [10], "the first batch, which does not wait")
            a.append_numbers(9)
            b.append_numbers(10)
            asked = len(a.metadata)
            await eventually(lambda: len(a.metadata) > asked + 5, "Spark has asked for more")
            assert batches() == [10]
            b.append_numbers(1)
            await eventually(lambda: batches() == [10, 20], "the batch with all that came")
            progress = query.lastProgress
            assert progress is not None
            (source,) = progress.sources
            end, latest = json.loads(source.endOffset), json.loads(source.latestOffset)
            lag = {node: latest[node]["offset"] - position["offset"] for node, position in end.items()}
            assert lag == {"n1": 0, "n2": 0}
        finally:
            query.stop()


def test_errors_of_options_reach_the_user(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match='option servers: "" is empty'):
        spark.read.format("mqtt").load().count()
    with pytest.raises(AnalysisException, match=r"option maxOffsetsPerTrigger: .*spark.readStream only"):
        spark.read.format("mqtt").options(servers="127.0.0.1:1", maxOffsetsPerTrigger=5).load().count()
    with pytest.raises(AnalysisException, match=r"Leave \.schema"):
        spark.read.format("mqtt").option("servers", "127.0.0.1:1").schema("topic string").load().count()
