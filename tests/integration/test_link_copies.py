"""Copies and older values of messages over links, with real nodes."""

from __future__ import annotations

import asyncio
from typing import Final

from mqtt_client import Clients
from node_process import Node, Nodes
from waiting import eventually

CLOCKS_APART_SECONDS: Final = 0.2  # the wall clocks of two nodes differ by some milliseconds, also on one machine
POLICY = {"pattern": "sensors/#", "definition": {"federation-upstream-set": "all"}}


async def change(node: Node, method: str, path: str, body: object = None) -> None:
    status, answer = await node.rest(method, path, body)
    assert status == 200, answer


async def test_a_retained_message_that_waited_for_a_link_does_not_replace_a_newer_one(
    nodes: Nodes, clients: Clients
) -> None:
    upstream = nodes.make_federated()
    await upstream.start()
    definition = {"uri": f"mqtt://127.0.0.1:{upstream.port}", "resource-cleanup-mode": "never"}
    links = {"domain": "berlin", "upstreams": {"north": definition}}
    node = nodes.make_federated([], {"plugin_order": ["admin", "federation", "links"], "plugins": {"links": links}})
    await node.start()
    writer = await clients.connect(upstream.port, "writer")
    reader = await clients.connect(node.port, "reader")
    await reader.subscribe("sensors/+", qos=1)
    await change(node, "PUT", "/v1/policies/p", POLICY)
    await node.logged("links: link running")
    await writer.publish("sensors/a", b"first", qos=1, retain=True)
    assert (await reader.message()).payload == b"first"
    await change(node, "DELETE", "/v1/policies/p")

    async def has_no_link() -> bool:
        _, answer = await upstream.rest("GET", "/v1/clients?connected=true")
        return int(answer["total_count"]) == 1

    await eventually(has_no_link, "the link is away, its session stays")
    for topic in ("sensors/a", "sensors/b"):
        await writer.publish(topic, b"waited", qos=1, retain=True)
    await asyncio.sleep(CLOCKS_APART_SECONDS)
    local = await clients.connect(node.port, "local")
    await local.publish("sensors/a", b"newer", qos=1, retain=True)
    assert (await reader.message()).payload == b"newer"
    await change(node, "PUT", "/v1/policies/p", POLICY)
    # Clients get what waited, each message once.
    assert [(message.topic, message.payload) for message in await reader.take(2)] == [
        (b"sensors/a", b"waited"),
        (b"sensors/b", b"waited"),
    ]
    late = await clients.connect(node.port, "late")
    await late.subscribe("sensors/+", qos=1)
    assert {message.topic: message.payload for message in await late.take(2)} == {
        b"sensors/a": b"newer",
        b"sensors/b": b"waited",
    }
    await writer.publish("sensors/a", b"newest", qos=1, retain=True)
    assert (await late.message()).payload == b"newest"
    last = await clients.connect(node.port, "last")
    await last.subscribe("sensors/a", qos=1)
    assert (await last.message()).payload == b"newest"
