"""Copies of stores on other nodes, with real processes: what was acknowledged outlives the disk of its node."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from broker.codec import properties as props
from broker.codec.packets import ConnAck, Will
from mqtt_client import reached
from waiting import eventually

if TYPE_CHECKING:
    from mqtt_client import Clients, MqttClient
    from node_process import Node, Nodes

EXPIRY: Final = {props.SESSION_EXPIRY_INTERVAL: 3600}
COUNT: Final = 900  # with what comes behind it below max_queued_messages


def is_present(client: MqttClient) -> bool:
    return isinstance(client.connack, ConnAck) and client.connack.session_present


async def metric(node: Node, name: str) -> float:
    status, text = await node.rest_text("GET", "/metrics")
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert status == 200, text
    assert found, name
    return float(found[1])


async def all_whole(nodes: list[Node]) -> None:
    """Each store has its copy on another node."""

    async def are_whole() -> bool:
        return all([await metric(node, "gmqtt_copies_whole") == 1 for node in nodes])

    await eventually(are_whole, "all stores have their copies")


@pytest.mark.one_process("reads the metrics of one process about its copy; each worker has one")
async def test_a_keeper_publishes_the_wills_of_a_lost_node(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    """Also of a client whose session ends with its connection."""

    def with_store(join: list[Node], name: str) -> Node:
        plugins = {"prometheus": {"listen_address": "127.0.0.1:0"}}
        order = ["admin", "federation", "prometheus"]
        more = {"data_dir": str(tmp_path / name), "plugin_order": order, "plugins": plugins}
        node = nodes.make_federated(join, more)
        node.config["plugins"]["federation"]["replication"] = {"adopt_after": "1s"}
        return node

    first = await with_store([], "first").start()
    second = await with_store([first], "second").start()
    await nodes.all_alive([first, second])
    await all_whole([first, second])
    watcher = await clients.connect(second.port, "watcher", clean_start=False, properties=EXPIRY)
    await watcher.subscribe("will/#", qos=1)
    for name, properties in (("clean", {}), ("durable", EXPIRY)):
        will = Will(b"will/" + name.encode(), b"gone", 1)
        await clients.connect(first.port, name, will=will, properties=properties)
    device = await clients.connect(first.port, "device")
    await reached(device, "will/none", watcher)
    await first.kill()
    came = sorted([(await watcher.message()).topic for _ in range(2)])
    assert came == [b"will/clean", b"will/durable"]
    await second.logged(f"the copy of the store on another node is whole node={first.name}")
    await second.logged(f"the copy of the store on another node is not whole node={first.name}")


@pytest.mark.one_process("reads the metrics of one process about its copy; each worker has one")
@pytest.mark.parametrize("is_recovered", [False, True])
async def test_a_session_outlives_the_disk_of_its_node(
    nodes: Nodes, clients: Clients, tmp_path: Path, is_recovered: bool
) -> None:
    """Its queue goes on at another node, and so does the node, with an empty disk, or with what was readable of it. A client
    that comes back to it gets all that the copy had."""

    def with_store(join: list[Node], name: str) -> Node:
        plugins = {"prometheus": {"listen_address": "127.0.0.1:0"}}
        order = ["admin", "federation", "prometheus"]
        return nodes.make_federated(join, {"data_dir": str(tmp_path / name), "plugin_order": order, "plugins": plugins})

    first = await with_store([], "first").start()
    second = await with_store([first], "second").start()
    third = await with_store([first, second], "third").start()
    await nodes.all_alive([first, second, third])
    await all_whole([first, second, third])
    client = await clients.connect(first.port, "mover", clean_start=False, properties=EXPIRY)
    await client.subscribe("a/#", qos=1)
    publisher = await clients.connect(second.port, "publisher")
    await reached(publisher, "a/b", client)
    await client.close(goodbye=False)
    back = await clients.connect(first.port, "back", clean_start=False, properties=EXPIRY)
    await back.subscribe("a/#", qos=1)
    await reached(publisher, "a/b", back)
    await back.close(goodbye=False)
    await publisher.publish_all([("a/b", b"%d" % number, 1) for number in range(COUNT)])
    await first.kill()
    if is_recovered:
        command = [*first.program(), "store", "recover", "-c", str(first.config_path)]
        recovered = await asyncio.create_subprocess_exec(*command)
        assert await recovered.wait() == 0
    else:
        shutil.rmtree(tmp_path / "first")

    async def is_failed() -> bool:
        statuses = [(await node.statuses()).get(first.name) for node in (second, third)]
        return statuses == ["STATUS_FAILED", "STATUS_FAILED"]

    await eventually(is_failed, "the others know that the node has failed")
    moved = await clients.connect(third.port, "mover", clean_start=False, properties=EXPIRY)
    assert is_present(moved)
    await publisher.publish_all([("a/b", b"%d" % (COUNT + number), 1) for number in range(10)])

    async def all_come(client: MqttClient) -> None:
        came: list[int] = []
        while not came or came[-1] != COUNT + 9:
            payload = (await client.message()).payload
            if not payload.startswith(b"probe"):
                came.append(int(payload))
        assert came == list(range(COUNT + 10))

    await all_come(moved)
    await first.start()
    await nodes.all_alive([first, second, third])
    await all_whole([first, second, third])
    assert sum([await metric(node, "gmqtt_stores_adopted_total") for node in (second, third)]) == 1
    await publisher.publish_all([("a/b", b"end", 1)])
    assert (await moved.message()).payload == b"end", "nothing comes again with the node"
    back = await clients.connect(first.port, "back", clean_start=False, properties=EXPIRY)
    assert is_present(back)
    await all_come(back)
    assert (await back.message()).payload == b"end"
