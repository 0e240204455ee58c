"""Links of a cluster: one node runs a link, another takes it over, and each node tells the status of all."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from mqtt_client import Clients, MqttClient, reached
from node_process import FAILED_SECONDS, Node, Nodes
from waiting import eventually

Row = dict[str, Any]


def cluster_config(upstream: Node, count: int = 1) -> dict[str, Any]:
    """Upstreams that are one broker, and a policy for each: `s0/#`, `s1/#` and so on."""
    uri = f"mqtt://user:secret@127.0.0.1:{upstream.port}"
    return {
        "plugin_order": ["admin", "federation", "links"],
        "plugins": {
            "links": {
                "domain": "berlin",
                "upstreams": {
                    f"up{number}": {"uri": uri, "reconnect-delay": 0.3, "interest": "all"} for number in range(count)
                },
                "policies": {
                    f"p{number}": {"pattern": f"s{number}/#", "definition": {"federation-upstream": f"up{number}"}}
                    for number in range(count)
                },
            }
        },
    }


async def links_of(node: Node, query: str = "") -> list[Row]:
    status, answer = await node.rest("GET", f"/v1/federation-links{query}")
    assert status == 200, answer
    assert answer["unanswered"] == []
    rows: list[Row] = answer["links"]
    return rows


async def all_run(node: Node, count: int, names: list[str]) -> dict[str, Row]:
    """Wait until each link runs once, on one of the named nodes. The rows by id."""
    found: list[Row] = []

    async def is_so() -> bool:
        status, answer = await node.rest("GET", "/v1/federation-links")
        found[:] = answer["links"] if status == 200 else []
        return (
            len(found) == count
            and all(row["status"] == "running" and row["node"] in names for row in found)
            and not answer["unanswered"]
        )

    await eventually(is_so, f"{count} links run on {names}: {found}", FAILED_SECONDS)
    return {row["id"]: row for row in found}


async def write(writer: MqttClient, count: int) -> None:
    """Publish numbers; the upstream acknowledges each."""
    for number in range(count):
        await writer.publish("s0/n", f"{number}".encode(), qos=1)


async def one_of(reader: MqttClient) -> set[int]:
    """The number of the next message; none for a probe."""
    message = await reader.message(FAILED_SECONDS)
    return {int(message.payload)} if message.topic == b"s0/n" else set()


async def test_one_node_runs_a_link_and_another_takes_it_over_after_a_kill(nodes: Nodes, clients: Clients) -> None:
    upstream = await nodes.start({"mqtt": {"session_expiry": "1h", "max_queued_messages": 10_000}}, name="upstream")
    cluster = await nodes.federation(3, cluster_config(upstream))
    names = [node.name for node in cluster]
    (row,) = (await all_run(cluster[0], 1, names)).values()
    (owner,) = [node for node in cluster if node.name == row["node"]]
    others = [node for node in cluster if node is not owner]
    reader = await clients.connect(others[0].port, "reader")
    await reader.subscribe("s0/#", qos=1)
    writer = await clients.connect(upstream.port, "writer")
    await reached(writer, "s0/probe", reader)
    count = 3_000
    writing = asyncio.create_task(write(writer, count))
    found: set[int] = set()
    while len(found) < count // 10:
        found |= await one_of(reader)
    await owner.kill()
    await writing
    while len(found) < count:
        found |= await one_of(reader)
    assert found == set(range(count))
    (after,) = (await all_run(others[0], 1, [node.name for node in others])).values()
    assert after["id"] == row["id"]
    assert int(after["epoch"]) > int(row["epoch"])
    assert after["sessions_lost"] == "0"
    assert "secret" not in json.dumps(after)
