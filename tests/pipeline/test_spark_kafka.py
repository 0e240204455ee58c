"""Spark's Kafka source on the plugin `kafka`: the Java client, in batches and in a stream over a killed node."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from client_library import kafka_jars
from mqtt_client import Clients
from node_process import Nodes, free_port
from waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

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


def kafka_settings(folder: Path, port: int) -> dict[str, Any]:
    if not kafka_jars():
        pytest.skip("Spark's Kafka source is missing: scripts/setup --jars fetches it")
    return {
        "plugin_order": ["event_log", "kafka"],
        "plugins": {
            "event_log": {"dir": str(folder / "log")},
            "kafka": {"listeners": [f"127.0.0.1:{port}"], "topics": {"sensors": "sensors/#"}},
        },
    }


async def test_batches_and_a_stream_over_kills(
    spark: SparkSession, nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    port = free_port()
    node = await nodes.start(kafka_settings(tmp_path, port))
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


async def test_real_time_mode(spark: SparkSession, nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    """Spark takes the node for a source of it: rows of several of its batches come once, and in order."""
    port = free_port()
    node = await nodes.start(kafka_settings(tmp_path, port))
    publisher = await clients.connect(node.port, "p")
    rows = tmp_path / "rows"
    rows.touch()
    path = str(rows)

    def keep(row: Row) -> None:
        with Path(path).open("a") as file:
            file.write(f"{row.value}\n")

    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", f"127.0.0.1:{port}")
    frame = reader.option("subscribe", "sensors").option("startingOffsets", "earliest").load()
    writer = frame.selectExpr("CAST(value AS STRING) value").writeStream.foreach(keep).outputMode("update")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(realTime="5 seconds").start()  # type: ignore[call-overload]  # its stubs do not have it
    try:
        for turn in range(2):
            for number in range(10 * turn, 10 * turn + 10):
                await publisher.publish("sensors/1", b"%d" % number, 1)
            wanted = [str(number) for number in range(10 * turn + 10)]
            await eventually(
                lambda wanted=wanted: query.exception() or rows.read_text().split() == wanted, "all rows", 120.0
            )
            assert query.exception() is None
    finally:
        await asyncio.to_thread(query.stop)
