"""The acl_file of the plugin `auth` in a running node: mosquitto's clients, a reload, files with faults."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker.codec.packets import ConnAck, Connect, PubAck, Publish
from mqtt_client import Clients, MqttClient
from node_process import SOON
from waiting import eventually

if TYPE_CHECKING:
    from mosquitto_process import Mosquitto
    from node_process import Node, Nodes

ACL = "topic read news/#\nuser alice\ntopic readwrite home/#\ntopic deny home/safe\npattern readwrite devices/%c/#\n"


def config(path: Path, **keys: Any) -> dict[str, Any]:
    auth = {"password_file": "", "allow_anonymous": True, "acl_file": str(path), **keys}
    return {"plugin_order": ["auth"], "plugins": {"auth": auth}}


async def node_with(nodes: Nodes, folder: Path, acl: str) -> Node:
    path = folder / "acl"
    path.write_text(acl)
    return await nodes.start(config(path))


async def connected(clients: Clients, port: int, client_id: str, username: str = "") -> MqttClient:
    client = await clients.open(port)
    client.send(Connect(client_id, 5, username=username or None))
    client.connack = await client.answer(ConnAck)
    assert client.connack.reason_code == 0
    return client


async def code_of(client: MqttClient, topic: str) -> int:
    """The reason code of a QoS 1 PUBLISH."""
    client.send(Publish(topic.encode(), b"x", 1, packet_id=1))
    return (await client.answer(PubAck)).reason_code


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
async def test_mosquitto_clients_get_readable_topics_only(
    nodes: Nodes, mosquitto: Mosquitto, tmp_path: Path, version: str
) -> None:
    accounts = tmp_path / "accounts.yml"
    accounts.write_text("".join(f"- username: {name}\n  password: secret\n" for name in ("alice", "root")))
    (tmp_path / "acl").write_text(ACL + "user root\ntopic write #\n")
    node = await nodes.start(config(tmp_path / "acl", password_file=str(accounts), hash="plain"))
    sub = await mosquitto.sub(
        node.port, "-t", "#", "-i", "d1", "-q", "1", "-u", "alice", "-P", "secret", version=version
    )
    for topic in ("news/x", "home/x", "home/safe", "devices/d1/x", "devices/d2/x", "home/last"):
        await mosquitto.pub(node.port, "-t", topic, "-m", "x", "-u", "root", "-P", "secret", "-q", "1", version=version)
    topics = [(await sub.message())[0] for _ in range(3)]
    assert topics == ["home/x", "devices/d1/x", "home/last"]


@pytest.mark.one_process(SOON)
async def test_new_rules_hold_for_connected_clients_after_a_reload(
    nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    node = await node_with(nodes, tmp_path, "topic readwrite a\n")
    reader, writer = await connected(clients, node.port, "reader"), await connected(clients, node.port, "writer")
    assert await reader.subscribe("+", "c") == [0, 0x87]
    assert [await code_of(writer, topic) for topic in ("a", "b")] == [0, 0x87]
    (tmp_path / "acl").write_text("topic readwrite b\ntopic read\n\ttopic c\n")
    os.kill(node.pid, signal.SIGHUP)
    await eventually(lambda: "line 3: " in node.log(), "the fault is logged")
    assert "is not `user`, `topic` or `pattern`" in node.log()
    assert "a file was not read again, what it had before stays" in node.log()
    assert [await code_of(writer, topic) for topic in ("a", "b")] == [0, 0x87], "the former rules stay"
    (tmp_path / "acl").write_text("topic readwrite b\n")
    os.kill(node.pid, signal.SIGHUP)
    await eventually(lambda: node.log().count("access rules read") == 2, "the rules are read again")
    assert [await code_of(writer, topic) for topic in ("a", "b")] == [0x87, 0]
    assert [message.topic for message in await reader.take(3)] == [b"a", b"a", b"b"]


async def test_the_rules_of_a_receiver_hold_on_its_own_node(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    """The publisher's node has no rules."""
    path = tmp_path / "acl"
    path.write_text("topic read a/#\n")
    free = nodes.make_federated()
    bound = nodes.make_federated([free], {**config(path), "plugin_order": ["auth", "admin", "federation"]})
    for node in (free, bound):
        node.spawn()
    for node in (free, bound):
        await eventually(node.serves, f"{node.name} serves clients")
    await nodes.all_alive([free, bound])
    reader = await connected(clients, bound.port, "reader")
    assert await reader.subscribe("#") == [0]
    writer = await connected(clients, free.port, "writer")
    await eventually(lambda: _has_interest(writer), "the interest is known on the other node")
    for topic in ("b", "a/x", "c", "a/y"):
        await writer.publish(topic, b"of another node", 1)
    got = [await reader.message()]
    while got[-1].topic != b"a/y":
        got.append(await reader.message())
    assert {message.topic for message in got} <= {b"a/x", b"a/y", b"a/probe"}


async def _has_interest(writer: MqttClient) -> bool:
    return await code_of(writer, "a/probe") == 0
