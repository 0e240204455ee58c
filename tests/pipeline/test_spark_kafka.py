"""Spark's Kafka source on the plugin `kafka`: the Java client, in batches and in a stream over a killed node."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from auth_plugin import passwd
from client_library import kafka_jars
from kafka_client import KafkaClient
from mqtt_client import Clients
from node_process import Nodes, free_port
from waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

VALUE_BYTES = 10_000
KEPT_BYTES = 128 * 2**10

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run_stream(spark: SparkSession, port: int, folder: Path, **options: str) -> None:
    """All that there is now, behind the checkpoint."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", f"127.0.0.1:{port}")
    frame = reader.options(subscribe="sensors", startingOffsets="earliest", **options).load()
    query = (
        frame.selectExpr("partition", "offset", "CAST(key AS STRING) key", "CAST(value AS STRING) value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "rows"))
    )
    query.awaitTermination()


def kafka_settings(folder: Path, port: int, **event_log: Any) -> dict[str, Any]:
    if not kafka_jars():
        pytest.skip("Spark's Kafka source is missing: scripts/setup --jars fetches it")
    return {
        "plugin_order": ["event_log", "kafka"],
        "plugins": {
            "event_log": {"dir": str(folder / "log"), **event_log},
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


async def test_a_stream_that_the_retention_has_passed(
    spark: SparkSession, nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    """A strict one ends, the other one goes on with the first record that is left."""
    port = free_port()
    settings = kafka_settings(tmp_path, port, segment_bytes="64KiB", retention={"bytes": KEPT_BYTES})
    node = await nodes.start(settings)
    publisher = await clients.connect(node.port, "p")
    await publisher.publish("sensors/1", b"0", 1)
    await asyncio.to_thread(run_stream, spark, port, tmp_path)
    for number in range(1, 41):
        await publisher.publish("sensors/1", b"%d " % number + bytes(VALUE_BYTES), 1)

    async def first_of_the_rest() -> int | None:
        """None before the retention has removed all that it removes: it may look before all records are there."""
        async with KafkaClient(f"127.0.0.1:{port}") as client:
            _, _, offset = await client.list_offset("sensors", -2)
        return offset if (41 - offset) * VALUE_BYTES <= KEPT_BYTES else None

    first = await eventually(first_of_the_rest, "the retention removes records")
    with pytest.raises(Exception, match="failOnDataLoss"):
        await asyncio.to_thread(run_stream, spark, port, tmp_path)
    await asyncio.to_thread(run_stream, spark, port, tmp_path, failOnDataLoss="false")
    rows = spark.read.parquet(str(tmp_path / "rows")).orderBy("offset").collect()
    assert [(row.offset, int(row.value.partition(" ")[0])) for row in rows] == [(n, n) for n in (0, *range(first, 41))]


async def test_logins(spark: SparkSession, nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    accounts, rules, port = tmp_path / "accounts", tmp_path / "rules", free_port()
    assert passwd("-c", "-b", "--scram", str(accounts), "reader", "secret").returncode == 0
    rules.write_text("topic write #\nuser reader\ntopic read sensors/1\n")
    settings = kafka_settings(tmp_path, port)
    auth = {"password_file": str(accounts), "scram": True, "acl_file": str(rules), "allow_anonymous": True}
    settings["plugin_order"].insert(0, "auth")
    settings["plugins"]["auth"] = auth
    node = await nodes.start(settings)
    publisher = await clients.connect(node.port, "p")
    for number in range(20):
        await publisher.publish(f"sensors/{number % 2}", b"%d" % number, 1)

    def found(mechanism: str, module: str, password: str) -> list[int]:
        login = f'org.apache.kafka.common.security.{module} required username="reader" password="{password}";'
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", f"127.0.0.1:{port}")
        reader = reader.option("kafka.security.protocol", "SASL_PLAINTEXT").option("kafka.sasl.mechanism", mechanism)
        frame = reader.option("kafka.sasl.jaas.config", login).option("subscribe", "sensors").load()
        return sorted(int(bytes(row.value)) for row in frame.select("value").collect())

    logins = (("PLAIN", "plain.PlainLoginModule"), ("SCRAM-SHA-256", "scram.ScramLoginModule"))
    for login in logins:
        assert await asyncio.to_thread(found, *login, "secret") == list(range(1, 20, 2))
    for login in logins:  # at last: who fails too often is refused for a while
        with pytest.raises(Exception, match="SaslAuthenticationException"):
            await asyncio.to_thread(found, *login, "wrong")
    await node.logged("kafka_logins_refused")
