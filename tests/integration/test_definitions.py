"""Definitions at run time with real nodes: in effect without a restart, on every node of the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqtt_client import Clients
from node_process import Node, Nodes, merged
from waiting import eventually

POLICY = {"pattern": "sensors/#", "definition": {"federation-upstream-set": "all"}}
LINKS: dict[str, Any] = {"plugin_order": ["admin", "federation", "links"], "plugins": {"links": {"domain": "berlin"}}}


def upstream_at(node: Node, port: int = 0) -> dict[str, Any]:
    return {"value": {"uri": f"mqtt://user:secret@127.0.0.1:{port or node.port}", "reconnect-delay": 0.3}}


async def change(node: Node, method: str, path: str, body: Any = None) -> None:
    status, answer = await node.rest(method, path, body)
    assert status == 200, answer


async def clients_of(node: Node) -> int:
    _, answer = await node.rest("GET", "/v1/clients?connected=true")
    return int(answer["total_count"])


async def test_a_link_begins_and_ends_with_its_definitions(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    upstream = nodes.make_federated()
    node = nodes.make_federated([], LINKS | {"data_dir": str(tmp_path / "data")})
    await upstream.start()
    await node.start()
    writer = await clients.connect(upstream.port, "writer")
    reader = await clients.connect(node.port, "reader")
    await reader.subscribe("sensors/+", qos=1)
    await change(node, "PUT", "/v1/policies/p", POLICY)
    await change(node, "PUT", "/v1/parameters/federation-upstream/north", upstream_at(upstream))
    await node.logged("links: link running")
    await writer.publish("sensors/a", b"1", qos=1)
    assert (await reader.message()).payload == b"1"
    await change(node, "DELETE", "/v1/policies/p")
    await eventually(lambda: has_clients(upstream, 1), "the link is gone")
    await change(node, "PUT", "/v1/policies/p", POLICY)
    await eventually(lambda: has_clients(upstream, 2), "the link is there again")
    assert "secret" not in node.log()


async def has_clients(node: Node, count: int) -> bool:
    return await clients_of(node) == count


async def policies(node: Node) -> list[str]:
    _, answer = await node.rest("GET", "/v1/policies")
    return [policy["name"] for policy in answer["policies"]]


@pytest.mark.slow
async def test_a_node_that_was_away_gets_changes_and_deletions(nodes: Nodes, tmp_path: Path) -> None:
    first = nodes.make_federated([], LINKS | {"data_dir": str(tmp_path / "first")})
    second = nodes.make_federated([first], LINKS | {"data_dir": str(tmp_path / "second")})
    await first.start()
    await second.start()
    await nodes.all_alive([first, second])
    await change(first, "PUT", "/v1/policies/old", POLICY)
    await change(second, "PUT", "/v1/policies/kept", POLICY)

    async def have(*names: str) -> bool:
        return await policies(first) == await policies(second) == list(names)

    await eventually(lambda: have("kept", "old"), "both have both")
    await second.kill()
    await change(first, "DELETE", "/v1/policies/old")
    await change(first, "PUT", "/v1/policies/new", POLICY)
    await second.start()
    await eventually(lambda: have("kept", "new"), "the node that was away has changes and deletion")


async def test_a_link_that_one_node_defines_runs_once_in_the_cluster(
    nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    upstream = nodes.make_federated()
    port = nodes.free_port()  # where the link finds its session, whichever node runs it
    upstream.config["listeners"].append({"address": f"127.0.0.1:{port}", "each_worker": True})
    first = nodes.make_federated([], LINKS | {"data_dir": str(tmp_path / "first")})
    second = nodes.make_federated([first], LINKS | {"data_dir": str(tmp_path / "second")})
    for node in (upstream, first, second):
        await node.start()
    await nodes.all_alive([first, second])
    readers = [await clients.connect(node.port, f"reader{node.port}") for node in (first, second)]
    for reader in readers:
        await reader.subscribe("sensors/#", qos=1)
    await change(second, "PUT", "/v1/parameters/federation-upstream/north", upstream_at(upstream, port))
    await change(second, "PUT", "/v1/policies/p", POLICY)
    await eventually(
        lambda: any("links: link running" in node.log() for node in (first, second)), "the link has subscribed"
    )
    writer = await clients.connect(upstream.port, "writer")
    for number in range(20):
        await writer.publish(f"sensors/{number}", b"x", qos=1)
    for reader in readers:
        topics = [message.topic for message in await reader.take(20)]
        assert sorted(topics) == sorted(f"sensors/{number}".encode() for number in range(20))
    await eventually(lambda: has_clients(upstream, 2), "one link and the writer")


@pytest.mark.parametrize("allowed", [False, True])
async def test_passwords_stay_at_a_node_that_others_reach_unless_the_file_allows_it(
    nodes: Nodes, allowed: bool
) -> None:
    federation = {"advertise_fed_addr": "192.0.2.1:8901", "allow_plain_secrets": allowed}
    node = nodes.make_federated([], merged(LINKS, {"plugins": {"federation": federation}}))
    await node.start()
    status, answer = await node.rest("PUT", "/v1/parameters/federation-upstream/north", upstream_at(node))
    assert status == 200
    assert any("allow_plain_secrets" in text for text in answer["warnings"]) is not allowed
    _, listed = await node.rest("GET", "/v1/parameters")
    assert any('"north"' in text and "allow_plain_secrets" in text for text in listed["warnings"]) is not allowed
    await node.logged("definitions: definition changed")  # what a start says stands before it
    assert ("allow_plain_secrets: whoever reaches" in node.log()) is allowed
    assert "secret" not in node.log().replace("allow_plain_secrets", "")
