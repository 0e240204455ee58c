"""Links with real processes: a mosquitto or another node as the upstream."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.codec.packets import Properties, Publish
from broker.codec.properties import SESSION_EXPIRY_INTERVAL
from broker.server.lifecycle import Server
from mosquitto_broker import StartMosquitto
from mqtt_client import Clients, MqttClient
from node_process import Node, Nodes
from waiting import eventually


def link_config(port: int, upstream: dict[str, Any] | None = None, pattern: str = "sensors/#") -> dict[str, Any]:
    """One upstream on this machine, and one policy."""
    north = {"uri": f"mqtt://127.0.0.1:{port}", "reconnect-delay": 0.3, **(upstream or {})}
    policy = {"pattern": pattern, "definition": {"federation-upstream": "north"}}
    return {
        "plugin_order": ["links"],
        "plugins": {"links": {"domain": "berlin", "upstreams": {"north": north}, "policies": {"s": policy}}},
    }


async def running(node: Node, times: int = 1) -> None:
    """Wait until the node's link has come to be running so often."""
    await eventually(lambda: node.log().count("links: link running") >= times, f"link running {times} times")


def seen(message: Publish) -> tuple[bytes, bytes, int, bool]:
    return message.topic, message.payload, message.qos, message.retain


async def subscriber_with_link(node: Node, clients: Clients, client_id: str = "reader") -> MqttClient:
    reader = await clients.connect(node.port, client_id)
    await reader.subscribe("sensors/+", qos=2)
    await running(node)
    return reader


async def test_each_qos_and_retained_messages_cross(
    nodes: Nodes, clients: Clients, start_mosquitto: StartMosquitto
) -> None:
    upstream = await start_mosquitto()
    writer = await clients.connect(upstream.port, "writer")
    await writer.publish("sensors/kept", b"old", qos=1, retain=True)
    node = await nodes.start(link_config(upstream.port))
    reader = await subscriber_with_link(node, clients)
    assert seen(await reader.message()) == (b"sensors/kept", b"old", 1, False)
    for qos in (0, 1, 2):
        await writer.publish("sensors/a", f"qos {qos}".encode(), qos=qos)
        # QoS 2 crosses a link as QoS 1.
        assert seen(await reader.message()) == (b"sensors/a", f"qos {qos}".encode(), min(qos, 1), False)
    await writer.publish("sensors/kept", b"new", qos=1, retain=True)
    assert (await reader.message()).payload == b"new"
    late = await clients.connect(node.port, "late")
    await late.subscribe("sensors/kept", qos=1)
    assert seen(await late.message()) == (b"sensors/kept", b"new", 1, True)
    await writer.publish("sensors/kept", b"", qos=1, retain=True)
    assert (await reader.message()).payload == b""
    later = await clients.connect(node.port, "later")
    await later.subscribe("sensors/kept", qos=1)
    await writer.publish("sensors/kept", b"live", qos=1)
    assert seen(await later.message()) == (b"sensors/kept", b"live", 1, False)


async def test_messages_wait_in_the_session_while_the_node_is_away(
    nodes: Nodes, clients: Clients, start_mosquitto: StartMosquitto
) -> None:
    upstream = await start_mosquitto("max_queued_messages 0\n")
    node = await nodes.start({**link_config(upstream.port), "mqtt": {"session_expiry": "1h"}})
    await subscriber_with_link(node, clients)
    writer = await clients.connect(upstream.port, "writer")
    await node.kill()
    payloads = [f"{number}".encode() for number in range(500)]
    for payload in payloads:
        await writer.publish("sensors/a", payload, qos=1)
    await node.start()
    reader = await clients.connect(node.port, "reader")
    await reader.subscribe("sensors/+", qos=2)
    assert [message.payload for message in await reader.take(len(payloads))] == payloads


async def test_a_link_comes_back_after_its_upstream(
    nodes: Nodes, clients: Clients, start_mosquitto: StartMosquitto
) -> None:
    upstream = await start_mosquitto("max_queued_messages 0\nautosave_interval 1\n", persists=True)
    node = await nodes.start(link_config(upstream.port))
    reader = await subscriber_with_link(node, clients)
    local = await clients.connect(node.port, "local")
    for round_number in (2, 3):
        await upstream.stop()
        await node.logged("link error")
        await local.publish("sensors/here", b"goes on", qos=1)
        assert (await reader.message()).payload == b"goes on"
        await upstream.start()
        writer = await clients.connect(upstream.port, "writer")
        # The session has lasted, so this need not wait for the link.
        await writer.publish("sensors/a", b"again", qos=1)
        assert (await reader.message()).payload == b"again"
        await running(node, round_number)


async def test_pushing(nodes: Nodes, clients: Clients) -> None:
    upstream = await nodes.start(name="upstream")
    node = await nodes.start(link_config(upstream.port, {"direction": "out"}), name="downstream")
    await running(node)
    reader = await clients.connect(upstream.port, "reader")
    await reader.subscribe("#", qos=2)
    writer = await clients.connect(node.port, "writer")
    for qos in (0, 1, 2):
        await writer.publish("sensors/a", f"qos {qos}".encode(), qos=qos)
        assert seen(await reader.message()) == (b"sensors/a", f"qos {qos}".encode(), min(qos, 1), False)
    await upstream.kill()
    await node.logged("link error")
    await writer.publish("sensors/a", b"while it was away", qos=1, retain=True)
    await upstream.start()
    again = await clients.connect(upstream.port, "again")
    await again.subscribe("#", qos=2)
    payload = (await again.message()).payload
    while payload in (b"qos 1", b"qos 2"):  # their PUBACK may not have left before the kill
        payload = (await again.message()).payload
    assert payload == b"while it was away"


async def test_messages_to_push_outlive_a_restart_of_a_node_that_is_alone(
    nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    upstream = await nodes.start({"data_dir": str(tmp_path / "upstream")}, name="upstream")
    config = link_config(upstream.port, {"direction": "out"}) | {"data_dir": str(tmp_path / "data")}
    node = await nodes.start(config, name="downstream")
    await running(node)
    lasts: Properties = {SESSION_EXPIRY_INTERVAL: 3600}
    reader = await clients.connect(upstream.port, "reader", properties=lasts)
    await reader.subscribe("sensors/#", qos=1)
    await upstream.kill()
    await node.logged("link error")
    writer = await clients.connect(node.port, "writer")
    await writer.publish("sensors/a", b"kept", qos=1)
    await node.stop()
    await node.start()
    await upstream.start()
    reader = await clients.connect(upstream.port, "reader", clean_start=False, properties=lasts)
    assert (await reader.message()).payload == b"kept"


async def test_topics_are_mapped_both_ways_and_other_policies_keep_theirs(nodes: Nodes, clients: Clients) -> None:
    upstream = await nodes.start(name="upstream")
    config = link_config(upstream.port, {"exchange": "eu/# -> from/{#}"}, pattern="from/#")
    links = config["plugins"]["links"]
    links["upstreams"]["nowhere"] = {"uri": f"mqtt://127.0.0.1:{nodes.free_port()}"}
    links["policies"]["higher"] = {
        "pattern": "from/private/#",
        "priority": 1,
        "definition": {"federation-upstream": "nowhere"},
    }
    node = await nodes.start(config, name="downstream")
    reader = await clients.connect(node.port, "reader")
    await reader.subscribe("#", qos=1)
    await running(node)
    writer = await clients.connect(upstream.port, "writer")
    for topic in ("eu/a", "eu/private/b", "us/c"):
        await writer.publish(topic, topic.encode(), qos=1)
    await writer.publish("eu/last", b"last", qos=0)
    assert [seen(message) for message in await reader.take(2)] == [
        (b"from/a", b"eu/a", 1, False),
        (b"from/last", b"last", 0, False),
    ]


@pytest.mark.parametrize("persistence", [{}, {"persistence": {"type": "memory"}}], ids=["store", "memory"])
async def test_the_name_of_a_session_is_random_and_outlives_the_process(
    start_server: Callable[[dict[str, Any]], Awaitable[Server]],
    clients: Clients,
    tmp_path: Path,
    persistence: dict[str, Any],
) -> None:
    """That of an upstream of the configuration file."""
    upstream = await start_server({})
    port = int(upstream.listeners.addresses[0].rpartition(":")[2])
    definitions = {
        "upstreams": {"north": {"uri": f"mqtt://127.0.0.1:{port}"}},
        "policies": {"p": {"pattern": "s/#", "definition": {"federation-upstream": "north"}}},
    }
    settings = {"data_dir": str(tmp_path / "data"), "plugin_order": ["links"], "plugins": {"links": definitions}}
    settings |= persistence
    (tmp_path / "data").mkdir(mode=0o700)
    found: list[str] = []
    for _ in range(2):
        node = await start_server(settings)
        reader = await clients.connect(int(node.listeners.addresses[0].rpartition(":")[2]), "reader")
        await reader.subscribe("s/#")
        await eventually(
            lambda: any(each.connection for each in upstream.broker.sessions.values()), "the link is there"
        )
        found += upstream.broker.sessions
        await node.stop()
    assert re.fullmatch("federation-link-gmqttd-north-[0-9a-f]{8}-[0-9a-f]{12}", found[0])
    assert found == [found[0], found[0]]
