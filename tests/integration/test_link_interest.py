"""Interest across domains with real processes: how far it goes, also through a cluster, and that nothing of it is left over."""

from __future__ import annotations

from typing import Any

from mqtt_client import Clients
from node_process import Node, Nodes
from waiting import eventually


def links_config(domain: str, pulls_from: list[Node], max_hops: int) -> dict[str, Any]:
    """A domain that takes topics below `t` from others."""
    upstreams = {
        node.name: {"uri": f"mqtt://127.0.0.1:{node.port}", "max-hops": max_hops, "reconnect-delay": 0.3}
        for node in pulls_from
    }
    policy = {"pattern": "t/#", "definition": {"federation-upstream-set": "all"}}
    return {"domain": domain, "upstreams": upstreams, "policies": {"t": policy}}


async def filters_of_links(node: Node) -> list[str]:
    """What links of other domains have subscribed to on a node."""
    status, answer = await node.rest("GET", "/v1/subscriptions?page_size=100")
    assert status == 200, answer
    return sorted(
        row["topic_name"] for row in answer["subscriptions"] if row["client_id"].startswith("federation-link-")
    )


async def test_interest_goes_round_a_ring_and_ends_with_its_subscriber(nodes: Nodes, clients: Clients) -> None:
    ring = [nodes.make_federated(overrides={"plugin_order": ["admin", "federation", "links"]}) for _ in range(3)]
    for index, node in enumerate(ring):
        node.config["plugins"]["links"] = links_config(f"domain{index}", [ring[index - 1]], 5)
    for node in ring:
        await node.start()
    reader = await clients.connect(ring[0].port, "reader")
    await reader.subscribe("t/+", qos=1)

    async def has(expected: list[list[str]]) -> bool:
        return [await filters_of_links(node) for node in ring] == expected

    await eventually(
        lambda: has([[], ["t/+"], ["t/+"]]), "the interest is in both other domains, and does not come back"
    )
    writer = await clients.connect(ring[1].port, "writer")

    async def arrives() -> bool:
        await writer.publish("t/a", b"from afar", qos=1)
        return not reader.messages.empty()

    await eventually(arrives, "messages come over two links")
    await reader.unsubscribe("t/+")
    await eventually(lambda: has([[], [], []]), "no filter of a link is left")


async def test_interest_of_a_link_passes_a_cluster(nodes: Nodes, clients: Clients) -> None:
    """The middle domain has two nodes: one has the link session of the domain below, any of them runs the link above."""
    above = nodes.make_federated()
    await above.start()
    links = {"plugin_order": ["admin", "federation", "links"], "plugins": {"links": links_config("middle", [above], 2)}}
    middle = await nodes.federation(2, links)
    below = nodes.make_federated(overrides={"plugin_order": ["admin", "federation", "links"]})
    below.config["plugins"]["links"] = links_config("below", [middle[1]], 2)
    await below.start()
    reader = await clients.connect(below.port, "reader")
    await reader.subscribe("t/#", qos=1)
    await eventually(lambda: reaches(above, ["t/#"]), "the interest is in the domain above")
    writer = await clients.connect(above.port, "writer")

    async def arrives() -> bool:
        await writer.publish("t/a", b"from above", qos=1)
        return not reader.messages.empty()

    await eventually(arrives, "messages come over two links and a cluster")
    await reader.unsubscribe("t/#")
    await eventually(lambda: reaches(above, []), "the interest is gone")


async def reaches(node: Node, filters: list[str]) -> bool:
    return await filters_of_links(node) == filters
