"""Several gmqttd processes as one broker: membership, messages, retained state, faults."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from mqtt_client import reached
from node_process import FAILED_SECONDS, status_becomes
from waiting import eventually

if TYPE_CHECKING:
    from mosquitto_process import Mosquitto, MosquittoSub
    from mqtt_client import Clients, MqttClient
    from node_process import Node, Nodes

CONFIGS: Final = Path(__file__).resolve().parent.parent.parent / "configs"


# --- the walk-through


def with_free_ports(nodes: Nodes) -> list[Node]:
    """Nodes from the files of the walk-through; every port is replaced by a free one, the same in all files."""
    names = ("node1_config.yml", "node2_config.yml", "join_node3_config.yml")
    texts = {name: (CONFIGS / name).read_text() for name in names}
    for port in (1883, 1884, 1885, *(8000 + n for n in (83, 84, 183, 184, 283, 284, 901, 902, 911, 912, 931, 932))):
        free = str(nodes.free_port())
        texts = {name: text.replace(f":{port}", f":{free}") for name, text in texts.items()}
    return [nodes.make(yaml.safe_load(text), name.split("_config")[0]) for name, text in texts.items()]


@pytest.mark.one_process("compares the list of members; test_workers.py has the lists of a node with several")
async def test_walk_through(nodes: Nodes, mosquitto: Mosquitto) -> None:
    node1, node2, node3 = with_free_ports(nodes)
    await asyncio.gather(node1.start(), node2.start(), node3.start())
    await nodes.all_alive([node1], ["node1", "node2"])
    sub = await mosquitto.sub(node2.port, "-t", "topicA")
    await arrives(mosquitto, node1, sub, "topicA")
    gossip3 = node3.config["plugins"]["federation"]["gossip_addr"]
    assert await node1.rest("POST", "/v1/federation/join", {"hosts": [gossip3]}) == (200, {})
    await nodes.all_alive([node1, node2, node3], ["node1", "node2", "node3"])
    for node in (node1, node2, node3):
        members = await node.members()
        assert list(members) == ["node1", "node2", "node3"]
        for other in (node1, node2, node3):
            federation = other.config["plugins"]["federation"]
            member = members[federation["node_name"]]
            assert member["addr"] == federation["gossip_addr"]
            assert member["tags"]["fed_addr"] == federation["fed_addr"]
            assert member["status"] == "STATUS_ALIVE"
    await arrives(mosquitto, node3, sub, "topicA")


async def arrives(mosquitto: Mosquitto, node: Node, sub: MosquittoSub, topic: str) -> None:
    """Publish until a message arrives: the first one may come before the node knows the subscription."""
    for number in range(100):
        payload = f"{node.name} {number}"
        await mosquitto.pub(node.port, "-t", topic, "-m", payload)
        with contextlib.suppress(TimeoutError):
            assert await sub.message(0.3) == (topic, payload.encode(), False)
            return
    raise AssertionError(f"{topic} from {node.name} does not arrive")


# --- members that go and come


@pytest.mark.one_process("has a node leave by the API, which one with workers refuses")
async def test_three_nodes(nodes: Nodes, clients: Clients) -> None:
    """Who gets what, and members that go and come."""
    all_nodes = await nodes.federation(3)
    await messages_of_every_kind(clients, *all_nodes[:2])
    await a_shared_group_gets_one_copy(clients, all_nodes)
    await retained_messages_are_everywhere(nodes, clients, all_nodes)
    await a_node_leaves_and_joins_by_the_api(nodes, clients, *all_nodes[:2])
    await a_node_is_killed_and_returns(clients, all_nodes)


async def a_node_is_killed_and_returns(clients: Clients, all_nodes: list[Node]) -> None:
    node1, node2, node3 = all_nodes
    subscriber2 = await clients.connect(node2.port, "subscriber2")
    await subscriber2.subscribe("t", qos=1)
    publisher1 = await clients.connect(node1.port, "publisher1")
    await reached(publisher1, "t", subscriber2)
    await node3.kill()
    number = 0
    for node in (node1, node2):
        async with asyncio.timeout(FAILED_SECONDS):
            while (await node.statuses())["node3"] != "STATUS_FAILED":
                number += 1  # the other nodes exchange messages meanwhile
                await publisher1.publish("t", b"%d" % number, 1)
                assert (await subscriber2.message(5)).payload == b"%d" % number
    await node3.start()
    for node in (node1, node2, node3):
        await status_becomes(node, "node3", "STATUS_ALIVE")
    subscriber3 = await clients.connect(node3.port, "subscriber3")
    await subscriber3.subscribe("t", qos=1)
    await reached(publisher1, "t", subscriber2, subscriber3)
    publisher3 = await clients.connect(node3.port, "publisher3")
    await reached(publisher3, "t", subscriber2)


async def a_node_leaves_and_joins_by_the_api(nodes: Nodes, clients: Clients, node1: Node, node2: Node) -> None:
    assert await node2.rest("POST", "/v1/federation/leave", {}) == (200, {})
    await status_becomes(node1, "node2", "STATUS_LEFT")
    local = await clients.connect(node2.port)  # the node goes on for its own clients
    await local.subscribe("left", qos=1)
    await reached(await clients.connect(node2.port), "left", local)
    gossip = node1.config["plugins"]["federation"]["gossip_addr"]
    assert await node2.rest("POST", "/v1/federation/join", {"hosts": [gossip]}) == (200, {})
    await nodes.all_alive([node1, node2])
    await reached(await clients.connect(node1.port), "left", local)


# --- who gets what


async def messages_of_every_kind(clients: Clients, node1: Node, node2: Node) -> None:
    subscriber = await clients.connect(node2.port, "subscriber")
    old = await clients.connect(node2.port, "old", 4)
    for client in (subscriber, old):
        await client.subscribe("kinds/#", qos=2)
    publisher = await clients.connect(node1.port, "publisher")
    await reached(publisher, "kinds/x", subscriber, old)
    for qos in (0, 1, 2):
        for payload in (b"", b"small", bytes(range(256)) * 4096):
            await publisher.publish(f"kinds/{qos}", payload, qos)
            for client in (subscriber, old):
                message = await client.message()
                assert (message.topic, message.payload, message.qos) == (b"kinds/%d" % qos, payload, qos)
    await subscriber.unsubscribe("kinds/#")
    await publisher.publish("kinds/x", b"only old", 1)
    assert (await old.message()).payload == b"only old"
    assert subscriber.messages.empty()


async def a_shared_group_gets_one_copy(clients: Clients, all_nodes: list[Node]) -> None:
    members = [await clients.connect(node.port, f"member-{node.name}") for node in all_nodes]
    publishers = [await clients.connect(node.port, f"publisher-{node.name}") for node in all_nodes]
    ordinary = [await clients.connect(node.port, f"ordinary-{node.name}") for node in all_nodes]
    for client in ordinary:
        await client.subscribe("jobs/+", "fence", qos=1)
    for client in members:
        await client.subscribe("$share/team/jobs/+", "$share/team/only/shared", "fence", qos=1)
    for publisher in publishers:  # a node sends its filters in order, so the last one proves that all are there
        await reached(publisher, "fence", *ordinary, *members)
    expected: Counter[bytes] = Counter()
    for index, publisher in enumerate(publishers):
        for number in range(100):
            payload = b"%d-%d" % (index, number)
            expected[payload] += 1
            await publisher.publish("jobs/real" if number % 2 else "only/shared", payload, 1)
    for publisher in publishers:
        await publisher.publish("fence", b"", 1)
    got: Counter[bytes] = Counter()
    for member in members:
        got.update(await until_fences(member, len(publishers)))
    assert got == expected
    for client in ordinary:
        assert len(await until_fences(client, len(publishers))) == 150


async def until_fences(client: MqttClient, count: int) -> list[bytes]:
    """The payloads before the last fence. Messages that were published before the fences come before them."""
    payloads: list[bytes] = []
    while count:
        message = await client.message()
        if message.topic == b"fence":
            count -= 1
        else:
            payloads.append(message.payload)
    assert client.messages.empty()
    return payloads


async def retained_messages_are_everywhere(nodes: Nodes, clients: Clients, all_nodes: list[Node]) -> None:
    """Also at a node that joins later."""
    node1, node2, _ = all_nodes
    publisher = await clients.connect(node1.port, "keeper")
    for number in range(20):
        await publisher.publish(f"kept/{number}", b"%d" % number, 1, True)
    await publisher.publish("kept/0", b"", 1, True)
    await publisher.publish("kept/1", b"newer", 1, True)
    expected = {b"kept/%d" % number: b"%d" % number for number in range(2, 20)} | {b"kept/1": b"newer"}
    await retained_becomes(clients, node2, expected)
    late = await nodes.make_federated([node2]).start()
    await retained_becomes(clients, late, expected)
    remover = await clients.connect(late.port, "remover")
    await remover.publish("kept/2", b"", 1, True)
    del expected[b"kept/2"]
    for node in (*all_nodes, late):
        await retained_becomes(clients, node, expected)
    await late.stop()


async def retained_becomes(clients: Clients, node: Node, expected: dict[bytes, bytes]) -> None:
    """Wait until a new subscriber of the node gets exactly these retained messages."""

    async def are_sent() -> bool:
        client = await clients.connect(node.port)
        await client.subscribe("kept/#", qos=1)
        await client.ping()
        got: dict[bytes, bytes] = {}
        while not client.messages.empty():
            message = client.messages.get_nowait()
            if message.retain:  # a message that is published just now comes without RETAIN
                got[message.topic] = message.payload
        await client.close()
        return got == expected

    await eventually(are_sent, f"{node.name} has the {len(expected)} retained messages")
