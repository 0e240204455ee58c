"""Spark's Kafka source on the plugin `kafka`: the Java client, in batches and in a stream over a killed node."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from client_library import kafka_jars
from mqtt_client import Clients
from node_process import Nodes, free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run_stream(spark: SparkSession, port: int, folder: Path) -> None:
    """All that there is now, behind the checkpoint."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", f"127.0.0.1:{port}")
    frame = reader.option("subscribe", "sensors").option("startingOffsets", "earliest").load()
    query = (
        frame.selectExpr("partition", "offset", "CAST(key AS STRING) key", "CAST(value AS STRING) value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "rows"))
    )
    query.awaitTermination()


async def test_batches_and_a_stream_over_kills(
    spark: SparkSession, nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    if not kafka_jars():
        pytest.skip("Spark's Kafka source is missing: scripts/setup --jars fetches it")
    port = free_port()
    settings: dict[str, Any] = {
        "plugin_order": ["event_log", "kafka"],
        "plugins": {
            "event_log": {"dir": str(tmp_path / "log")},
            "kafka": {"listeners": [f"127.0.0.1:{port}"], "topics": {"sensors": "sensors/#"}},
        },
    }
    node = await nodes.start(settings)
    wanted: list[tuple[int, str, str]] = []
    for turn in range(3):
        publisher = await clients.connect(node.port, f"p{turn}")
        for number in range(60):
            offset = 60 * turn + number
            topic = f"{'sensors' if number % 3 else 'other'}/{turn}"
            await publisher.publish(topic, b"%d" % offset, 1)
            if number % 3:
                wanted.append((offset, topic, str(offset)))
        await asyncio.to_thread(run_stream, spark, port, tmp_path)
        await node.kill()
        await node.start()
    await asyncio.to_thread(run_stream, spark, port, tmp_path)
    rows = spark.read.parquet(str(tmp_path / "rows")).orderBy("offset").collect()
    assert [(row.offset, row.key, row.value) for row in rows] == wanted
    batch = spark.read.format("kafka").option("kafka.bootstrap.servers", f"127.0.0.1:{port}")
    half = batch.option("subscribe", "sensors").option("startingOffsets", '{"sensors":{"0":90}}').load()
    assert half.count() == sum(offset >= 90 for offset, _, _ in wanted)
