"""A cluster whose nodes do not reach each other while it runs a link: the session at the upstream decides who goes on."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from link_cluster import Row, all_run, cluster_config, links_of
from mosquitto_broker import StartMosquitto
from mqtt_client import Clients, MqttClient, Watch, reached
from node_process import FAILED_SECONDS, Nodes
from split_network import split_network
from waiting import eventually

NODES: Final = 3
PACE_SECONDS: Final = 0.002  # between two messages: the queue at the upstream has room for all
QUEUES: Final[dict[str, Any]] = {"mqtt": {"session_expiry": "1h", "max_queued_messages": 100_000}}


class Numbers:
    """Publishes rising numbers at the upstream until `enough`; `count` are acknowledged."""

    def __init__(self, writer: MqttClient) -> None:
        self.count = 0
        self._writer = writer
        self._is_enough = asyncio.Event()
        self._task = asyncio.create_task(self._write())

    async def _write(self) -> None:
        while not self._is_enough.is_set():
            await self._writer.publish("s0/n", b"%d" % self.count, qos=1)
            self.count += 1
            await asyncio.sleep(PACE_SECONDS)

    async def more(self) -> None:
        """Return when some more are published."""
        wanted = self.count + 200
        await eventually(lambda: self._task.done() or self.count >= wanted, f"{wanted} numbers are published")

    async def enough(self) -> None:
        self._is_enough.set()
        await self._task


async def numbers_of(reader: MqttClient, found: set[int]) -> None:
    while True:
        message = await reader.messages.get()
        if message.topic == b"s0/n":
            found.add(int(message.payload))


async def suffer_a_split(nodes: Nodes, clients: Clients, port: int, is_ours: bool) -> None:
    """The node that runs the link is cut off from the others; both sides reach the upstream at the port. One of ours has the
    session for the newer owner; another broker may have it for either."""
    config = {**QUEUES, **cluster_config(port)}
    cluster = [nodes.make_federated(None, config) for _ in range(NODES)]
    names = [node.name for node in cluster]
    async with split_network(cluster) as network:
        await asyncio.gather(*(node.start() for node in cluster))
        await nodes.all_alive(cluster)
        (before,) = (await all_run(cluster[0], 1, names)).values()
        (owner,) = [node for node in cluster if node.name == before["node"]]
        readers = [await clients.connect(node.port, f"reader-{node.name}") for node in cluster]
        for reader in readers:
            await reader.subscribe("s0/#", qos=1)
        writer = await clients.connect(port, "writer")
        await reached(writer, "s0/probe", *readers)
        numbers = Numbers(writer)
        found: list[set[int]] = [set() for _ in readers]
        reading = [asyncio.create_task(numbers_of(reader, some)) for reader, some in zip(readers, found, strict=True)]
        watches = []
        for node in cluster:
            subscriber = await clients.connect(node.port, f"watch-subscriber-{node.name}")
            await subscriber.subscribe("watch/topic", qos=2)
            watches.append(Watch(subscriber, await clients.connect(node.port, f"watch-publisher-{node.name}")))
        await numbers.more()

        network.split(owner)
        rows: list[Row] = []

        async def is_decided() -> bool:
            rows[:] = [row for node in cluster for row in await links_of(node, "?here=true")]
            return sorted(row["status"] for row in rows) == ["blocked", "running"]

        await eventually(is_decided, f"one side runs the link, the other one is blocked: {rows}", FAILED_SECONDS)
        (blocked,) = [row for row in rows if row["status"] == "blocked"]
        assert blocked["error"]
        assert blocked["deadline"]
        (successor,) = [row for row in rows if row["node"] != owner.name]
        assert int(successor["epoch"]) > int(before["epoch"])
        assert not is_ours or blocked["node"] == owner.name
        for watch in watches:
            await watch.check()
        await numbers.more()
        assert await is_decided()

        network.heal()
        await nodes.all_alive(cluster)

        async def has_one_owner() -> bool:
            rows = [row for node in cluster for row in await links_of(node, "?here=true")]
            return [row["status"] for row in rows] == ["running"]

        await eventually(has_one_owner, "one node runs the link", FAILED_SECONDS)
        seen = [await all_run(node, 1, names) for node in cluster]
        assert len({row["node"] for rows in seen for row in rows.values()}) == 1
        assert {row["sessions_lost"] for rows in seen for row in rows.values()} == {"0"}
        await numbers.more()
        await numbers.enough()
        everything = set(range(numbers.count))
        await eventually(lambda: all(some == everything for some in found), "all numbers are everywhere")
        for task in reading:
            assert not task.done()
            task.cancel()
        for node in cluster:
            await node.stop()


@pytest.mark.slow
async def test_the_newer_owner_runs_a_link_in_a_split_and_the_other_one_is_blocked(
    nodes: Nodes, clients: Clients
) -> None:
    upstream = await nodes.start(QUEUES, name="upstream")
    await suffer_a_split(nodes, clients, upstream.port, True)


@pytest.mark.slow
async def test_one_side_is_blocked_in_a_split_where_mosquitto_has_the_session(
    nodes: Nodes, clients: Clients, start_mosquitto: StartMosquitto
) -> None:
    upstream = await start_mosquitto("max_queued_messages 0\n")
    await suffer_a_split(nodes, clients, upstream.port, False)
