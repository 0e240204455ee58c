"""A segment of a real node is damaged in the middle of the range that a query reads."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mqtt_client import Clients
from node_process import Node, Nodes
from pipeline.errors import DataLoss
from pipeline.options import read_stream_options
from pipeline.source import MqttStreamReader

MESSAGES = 60
PAYLOAD_BYTES = 4_000
SEGMENT_BYTES = 65_536


pytestmark = pytest.mark.usefixtures("asks_at_once")


async def written(nodes: Nodes, clients: Clients, folder: Path) -> Node:
    """A node whose log has several segments, and a damaged byte in the second one."""
    log = {"event_log": {"dir": str(folder), "segment_bytes": SEGMENT_BYTES}}
    node = nodes.make_federated([], {"plugins": log, "plugin_order": ["admin", "federation", "event_log"]})
    await node.start()
    client = await clients.connect(node.port, "device")
    for number in range(MESSAGES):
        await client.publish("t", b"%d " % number + bytes(PAYLOAD_BYTES), qos=1)
    damage(folder)
    return node


def damage(folder: Path) -> None:
    segments = sorted(folder.glob("*.log"))
    assert len(segments) > 2
    data = bytearray(segments[1].read_bytes())
    data[len(data) // 2] ^= 0xFF
    segments[1].write_bytes(data)


class Query:
    """A streaming query, from its start to the end of the logs."""

    def __init__(self, node: Node, fail_on_data_loss: str) -> None:
        servers = str(node.config["api"]["grpc"][0]["address"]).removeprefix("tcp://")
        options = {"servers": servers, "startingOffsets": "earliest", "failOnDataLoss": fail_on_data_loss}
        self.reader = MqttStreamReader(read_stream_options(options))
        self.at = self.reader.initialOffset()

    def batch(self) -> list[tuple[str, int]]:
        """(log id, number) of the messages of one batch."""
        end = self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())
        found = [
            (row["log"], int(row["payload"].split()[0]))
            for partition in self.reader.partitions(self.at, end)
            for batch in self.reader.read(partition)
            for row in batch.to_pylist()
        ]
        self.at = end
        return found


async def test_damage_in_the_middle_of_a_range_ends_the_query(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    node = await written(nodes, clients, tmp_path / "log")
    query = await asyncio.to_thread(Query, node, "true")
    with pytest.raises(DataLoss, match=rf"node {node.name}: segment 0.*\.log of node {node.name} is damaged"):
        await asyncio.to_thread(query.batch)
    assert list((tmp_path / "log" / "damaged").iterdir())
    with pytest.raises(DataLoss, match=rf"node {node.name} has log "):
        await asyncio.to_thread(query.batch)


async def test_damage_in_the_middle_of_a_range_is_left_out(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    """With failOnDataLoss false the node enters anew: all that it still has comes with the new log id."""
    node = await written(nodes, clients, tmp_path / "log")
    query = await asyncio.to_thread(Query, node, "false")
    first = await asyncio.to_thread(query.batch)
    assert await asyncio.to_thread(query.batch) == []
    again = await asyncio.to_thread(query.batch)
    before = [number for _, number in first]
    assert before == list(range(len(before)))
    left = [number for _, number in again]
    assert left[: len(before)] == before
    assert left[-1] == MESSAGES - 1
    assert len({log for log, _ in first + again}) == 2
    assert 0 < MESSAGES - len(left) < MESSAGES // 2
