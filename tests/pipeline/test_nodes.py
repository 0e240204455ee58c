"""Spark and nodes as processes: what clients publish is read once, rows are published once, kills included."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mqtt_client import Clients
from node_process import Node, Nodes
from waiting import DEADLINE, eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


LOG = {"plugins": {"event_log": {"dir": "log"}}, "plugin_order": ["admin", "federation", "event_log"]}


def api(node: Node) -> str:
    return str(node.config["api"]["grpc"][0]["address"]).removeprefix("tcp://")


async def federation(nodes: Nodes, tmp_path: Path, count: int = 2, **more: Any) -> list[Node]:
    made: list[Node] = []
    for number in range(count):
        settings = {
            **LOG,
            "plugins": {"event_log": {"dir": str(tmp_path / f"log{number}"), "topics": ["t/#", "out/#"], **more}},
        }
        made.append(nodes.make_federated(made[:1], settings))
    for node in made:
        await node.start()
    await nodes.all_alive(made)
    return made


async def publish(clients: Clients, node: Node, first: int, count: int, size: int = 1) -> None:
    client = await clients.connect(node.port, f"device-{node.name}-{first}")
    for number in range(first, first + count):
        await client.publish(f"t/{number % 3}", b"%-*d" % (size, number), qos=1)


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


async def test_filters_leave_the_same_rows(spark: SparkSession, nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    """Pushed down to real nodes, whose index and dictionaries cut ranges of time and topics."""
    a, b = await federation(nodes, tmp_path, segment_bytes=2**16)
    await asyncio.gather(publish(clients, a, 0, 150, 1000), publish(clients, b, 150, 150, 1000))
    frame = spark.read.format("mqtt").options(servers=api(a), columns="node,offset,time,ts,topic").load()
    rows = await asyncio.to_thread(frame.cache().collect)
    frame.unpersist()
    assert len(rows) == 300
    times = sorted(row.time for row in rows)
    low, high = times[90], times[210]
    found = await asyncio.to_thread(
        frame.where(f"time >= {low} and time < {high} and topic in ('t/1', 't/2') and offset > 10").collect
    )
    wanted = [row for row in rows if low <= row.time < high and row.topic in ("t/1", "t/2") and row.offset > 10]
    assert sorted(found) == sorted(wanted)
    assert 0 < len(found) < 120
    partitions = frame.where(f"time >= {low} and time < {high} and node = '{a.name}'")
    assert {row.node for row in await asyncio.to_thread(partitions.collect)} == {a.name}


async def test_a_log_that_was_damaged_is_read_once(
    spark: SparkSession, nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    """A flipped bit in the middle and a tail that was cut, under a query that had read both: what comes later follows."""
    (node,) = await federation(nodes, tmp_path, 1, segment_bytes=2**16)
    await publish(clients, node, 0, 200, 1000)

    async def archive(name: str, **options: str) -> list[int]:
        query = start(source(spark, node, **options), "parquet", tmp_path / f"{name}.c", path=str(tmp_path / name))
        assert await asyncio.to_thread(query.awaitTermination, 120)
        return numbers(spark.read.parquet(str(tmp_path / name)))

    assert await archive("before") == list(range(200))
    await node.kill()
    segments = sorted((tmp_path / "log0").glob("*.log"))
    content = bytearray(segments[1].read_bytes())
    content[30_000] ^= 1
    segments[1].write_bytes(content)
    os.truncate(segments[-1], segments[-1].stat().st_size - 40)
    await node.start()
    await publish(clients, node, 200, 50, 1000)
    assert await archive("before") == list(range(250))
    with pytest.raises(Exception, match=r"lost the records of offsets \d+ to \d+"):
        await archive("strict")
    left = await archive("lenient", failOnDataLoss="false")
    gone = sorted(set(range(250)) - set(left))
    assert left == sorted(set(left))
    assert gone[-1] == 199
    assert gone[:-1] == list(range(gone[0], gone[0] + len(gone) - 1)), "one segment, and the last record"
    assert 20 < len(gone) < 80


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
    await eventually(lambda: progress.exists() or running.done(), "two batches", 2 * DEADLINE)
    await b.kill()
    await b.start()
    assert await running
    await nodes.all_alive([a, b])
    published = spark.read.format("mqtt").options(servers=api(a), topics="out/#")
    assert await asyncio.to_thread(published.load().count) == 0
    assert await asyncio.to_thread(numbers, published.option("includePipeline", "true").load()) == list(range(300))
