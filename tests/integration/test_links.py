"""Links with real processes: a mosquitto or another node as the upstream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.codec.packets import Publish
from mosquitto_broker import PROGRAM, MosquittoBroker
from mqtt_client import Clients, MqttClient
from node_process import Node, Nodes
from waiting import eventually

needs_mosquitto = pytest.mark.skipif(PROGRAM is None, reason="mosquitto (Debian package) is missing")
StartMosquitto = Callable[..., Awaitable[MosquittoBroker]]


@pytest.fixture
async def start_mosquitto(tmp_path: Path) -> AsyncIterator[StartMosquitto]:
    started: list[MosquittoBroker] = []

    async def start(extra: str = "", persists: bool = False) -> MosquittoBroker:
        broker = MosquittoBroker(tmp_path, extra, persists)
        started.append(broker)
        return await broker.start()

    yield start
    for broker in started:
        await broker.stop()


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


@needs_mosquitto
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


@needs_mosquitto
async def test_only_wanted_topics_are_subscribed(
    nodes: Nodes, clients: Clients, start_mosquitto: StartMosquitto
) -> None:
    upstream = await start_mosquitto()
    node = await nodes.start(link_config(upstream.port))
    await node.logged("link idle")
    assert "federation-link-berlin-north" not in upstream.log()
    reader = await clients.connect(node.port, "reader")
    await reader.subscribe("other/#", qos=1)
    await reader.subscribe("+/hall", qos=1)
    await running(node)
    await eventually(lambda: "sensors/hall (QoS 1)" in upstream.log(), "the part of the filter that the policy allows")
    assert "other" not in upstream.log()
    await reader.unsubscribe("+/hall")
    await eventually(lambda: "UNSUBSCRIBE" in upstream.log(), "the filter is gone at the upstream")


@needs_mosquitto
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


@needs_mosquitto
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


async def test_two_nodes_of_ours(nodes: Nodes, clients: Clients) -> None:
    upstream = await nodes.start(name="upstream")
    node = await nodes.start(link_config(upstream.port), name="downstream")
    reader = await subscriber_with_link(node, clients)
    writer = await clients.connect(upstream.port, "writer")
    for qos in (0, 1, 2):
        await writer.publish("sensors/a", f"qos {qos}".encode(), qos=qos)
        assert seen(await reader.message()) == (b"sensors/a", f"qos {qos}".encode(), min(qos, 1), False)
    writer.send(*(Publish(b"sensors/b", b"%d" % number) for number in range(1000)))
    assert [message.payload for message in await reader.take(1000)] == [b"%d" % number for number in range(1000)]
    await writer.publish("other/a", b"not wanted", qos=1)
    await writer.publish("sensors/a", b"wanted", qos=1)
    assert (await reader.message()).payload == b"wanted"


async def test_a_publisher_at_the_upstream_waits_for_a_slow_reader_here(nodes: Nodes, clients: Clients) -> None:
    """QoS 1 is acknowledged when it is here: what the node does not take stays in the session at the upstream."""
    queue = {"mqtt": {"max_queued_messages": 100_000}}
    upstream = await nodes.start(queue, name="upstream")
    node = await nodes.start({**link_config(upstream.port, {"prefetch-count": 10}), **queue}, name="downstream")
    reader = await subscriber_with_link(node, clients)
    writer = await clients.connect(upstream.port, "writer")
    payloads = [b"%d" % number for number in range(3000)]
    for payload in payloads:
        await writer.publish("sensors/a", payload, qos=1)
    assert [message.payload for message in await reader.take(len(payloads))] == payloads


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


async def test_a_wrong_password_is_an_error_of_that_link_only(nodes: Nodes, clients: Clients) -> None:
    upstream = await nodes.start(name="upstream")
    config = link_config(upstream.port)
    config["plugins"]["links"]["upstreams"]["bad"] = {"uri": f"mqtt://user:sesame@127.0.0.1:{nodes.free_port()}"}
    config["plugins"]["links"]["policies"]["bad"] = {
        "pattern": "others/#",
        "definition": {"federation-upstream": "bad"},
    }
    node = await nodes.start(config, name="downstream")
    reader = await subscriber_with_link(node, clients)
    await reader.subscribe("others/#")
    await node.logged("link error")
    writer = await clients.connect(upstream.port, "writer")
    await writer.publish("sensors/a", b"still there", qos=1)
    assert (await reader.message()).payload == b"still there"
    assert "sesame" not in node.log()
    assert "sesame" not in (await asyncio.to_thread(node.command, "check")).stdout


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


def domain_config(name: str, pulls_from: list[Node], max_hops: int) -> dict[str, Any]:
    """A domain that takes all topics from others."""
    upstreams = {
        node.name: {"uri": f"mqtt://127.0.0.1:{node.port}", "max-hops": max_hops, "reconnect-delay": 0.3}
        for node in pulls_from
    }
    policy = {"pattern": "#", "definition": {"federation-upstream-set": "all"}}
    return {
        "plugin_order": ["links"],
        "plugins": {"links": {"domain": name, "upstreams": upstreams, "policies": {"all": policy}}},
    }


@pytest.mark.parametrize(
    ("edges", "max_hops", "reach"),
    [
        ({"a": "b", "b": "a"}, 1, {"a": "ab", "b": "ab"}),
        ({"a": "", "b": "a", "c": "b"}, 1, {"a": "ab", "b": "bc", "c": "c"}),
        ({"a": "", "b": "a", "c": "b"}, 2, {"a": "abc", "b": "bc", "c": "c"}),
        ({"a": "c", "b": "a", "c": "b"}, 2, {"a": "abc", "b": "abc", "c": "abc"}),
        ({"a": "", "b": "a", "c": "a", "d": "bc"}, 2, {"a": "abcd", "b": "bd", "c": "cd", "d": "d"}),
    ],
    ids=["pair", "chain of one hop", "chain of two hops", "ring", "diamond"],
)
async def test_each_message_arrives_once_where_links_reach(
    nodes: Nodes, clients: Clients, edges: dict[str, str], max_hops: int, reach: dict[str, str]
) -> None:
    """`edges`: from which domains a domain pulls; `reach`: where the messages of a domain are to arrive."""
    made = {name: nodes.make(name=name) for name in edges}
    for name, pulls in edges.items():
        made[name].config.update(domain_config(name, [made[other] for other in pulls], max_hops))
    for node in made.values():
        await node.start()
    readers = {}
    for name, node in made.items():
        readers[name] = await clients.connect(node.port, f"reader-{name}")
        await readers[name].subscribe("#", qos=1)
    for name, pulls in edges.items():
        await eventually(
            lambda name=name, pulls=pulls: made[name].log().count("link running") >= len(pulls), f"links of {name}"
        )
    writers = {name: await clients.connect(node.port, f"writer-{name}") for name, node in made.items()}

    async def arrived() -> bool:
        """Whether a probe of each domain has gone as far as it may."""
        for name, writer in writers.items():
            await writer.publish(f"probe/{name}", b"", qos=1)
        await asyncio.sleep(0.2)
        seen_by = {name: drained(reader) for name, reader in readers.items()}
        return all(
            f"probe/{name}".encode() in [message.topic for message in seen_by[other]]
            for name, others in reach.items()
            for other in others
        )

    await eventually(arrived, "interest of all domains is known")
    count = 50
    for number in range(count):
        for name, writer in writers.items():
            await writer.publish(f"t/{name}", b"%d" % number, qos=number % 2)
    for name, writer in writers.items():
        await writer.publish("last", name.encode(), qos=1)
    got: dict[str, list[tuple[bytes, bytes]]] = {}
    for name, reader in readers.items():
        lasts = sum(name in others for others in reach.values())
        got[name] = []
        while sum(topic == b"last" for topic, _ in got[name]) < lasts:
            message = await reader.message()
            got[name].append((message.topic, message.payload))
    for name in made:
        expected = sorted(
            (f"t/{origin}".encode(), b"%d" % number)
            for origin, others in reach.items()
            if name in others
            for number in range(count)
        )
        assert sorted(item for item in got[name] if item[0].startswith(b"t/")) == expected, name


def drained(client: MqttClient) -> list[Publish]:
    """The messages that came so far."""
    found = []
    while not client.messages.empty():
        found.append(client.messages.get_nowait())
    return found
