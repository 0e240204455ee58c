"""Spark and nodes as processes: what clients publish is read once, rows are published once, kills included."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mqtt_client import Clients
from node_process import Node, Nodes
from waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


LOG = {"plugins": {"event_log": {"dir": "log"}}, "plugin_order": ["admin", "federation", "event_log"]}


def api(node: Node) -> str:
    return str(node.config["api"]["grpc"][0]["address"]).removeprefix("tcp://")


async def federation(nodes: Nodes, tmp_path: Path, count: int = 2) -> list[Node]:
    made: list[Node] = []
    for number in range(count):
        settings = {
            **LOG,
            "plugins": {"event_log": {"dir": str(tmp_path / f"log{number}"), "topics": ["t/#", "out/#"]}},
        }
        made.append(nodes.make_federated(made[:1], settings))
    for node in made:
        await node.start()
    await nodes.all_alive(made)
    return made


async def publish(clients: Clients, node: Node, first: int, count: int) -> None:
    client = await clients.connect(node.port, f"device-{node.name}-{first}")
    for number in range(first, first + count):
        await client.publish(f"t/{number % 3}", b"%d" % number, qos=1)


def source(spark: SparkSession, node: Node, **options: Any) -> DataFrame:
    return spark.readStream.format("mqtt").options(servers=api(node), startingOffsets="earliest", **options).load()


def start(frame: DataFrame, kind: str, checkpoint: Path, **options: str) -> StreamingQuery:
    """In the thread of the session: Spark looks sinks up in the active session of a thread."""
    writer = frame.writeStream.format(kind).options(checkpointLocation=str(checkpoint), **options)
    return writer.trigger(availableNow=True).start()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.payload)) for row in frame.select("payload").collect())


async def test_records_of_all_nodes_are_archived_once(
    spark: SparkSession, nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    a, b = await federation(nodes, tmp_path)
    await asyncio.gather(publish(clients, a, 0, 150), publish(clients, b, 150, 150))
    out = tmp_path / "out"

    async def archive() -> DataFrame:
        frame = source(spark, a, groupId="archive", maxOffsetsPerTrigger=100)
        query = start(frame, "parquet", tmp_path / "checkpoint", path=str(out))
        assert await asyncio.to_thread(query.awaitTermination, 120)
        return spark.read.parquet(str(out))

    found = await archive()
    assert numbers(found) == list(range(300))
    publishers = {row.client_id for row in found.select("client_id").distinct().collect()}
    assert publishers == {f"device-{a.name}-0", f"device-{b.name}-150"}
    # A node is killed, and comes back: its log goes on under the same id.
    await b.kill()
    await publish(clients, a, 300, 50)
    assert numbers(await archive()) == list(range(350))
    await b.start()
    await nodes.all_alive([a, b])
    await publish(clients, b, 350, 50)
    found = await archive()
    assert numbers(found) == list(range(400))
    assert found.select("node", "log", "offset").distinct().count() == 400
    assert found.select("node", "log").distinct().count() == 2


@pytest.mark.slow
async def test_rows_are_published_once_while_the_node_is_killed(
    spark: SparkSession, nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    a, b = await federation(nodes, tmp_path)
    await publish(clients, a, 0, 300)

    frame = source(spark, a, maxOffsetsPerTrigger=50, topics="t/#").selectExpr("concat('out/', topic) topic", "payload")
    query = start(frame, "mqtt", tmp_path / "checkpoint", servers=f"{api(a)},{api(b)}", node=b.name)
    running = asyncio.create_task(asyncio.to_thread(query.awaitTermination, 120))
    progress = tmp_path / "checkpoint" / "commits" / "1"
    await eventually(lambda: progress.exists() or running.done(), "two batches")
    await b.kill()
    await b.start()
    assert await running
    await nodes.all_alive([a, b])
    published = spark.read.format("mqtt").options(servers=api(a), topics="out/#")
    assert await asyncio.to_thread(published.load().count) == 0
    assert await asyncio.to_thread(numbers, published.option("includePipeline", "true").load()) == list(range(300))
