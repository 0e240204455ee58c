"""The topologies of RabbitMQ's guides with real processes, one node for each domain: every message arrives once in each domain
that links reach within max-hops, and in no other; no filter of a link is left after the last reader.

The graphs and what they reach are those of the simulator.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest

from federation.simulator.domain_schedules import PLAIN, TOPOLOGIES
from federation.simulator.domains import Edge, reach
from mqtt_client import Clients, MqttClient
from node_process import Node, Nodes, free_port
from waiting import eventually

pytestmark = pytest.mark.slow

MESSAGES: Final = 200  # of each domain
NO_FILTER_SECONDS: Final = 5.0
LAST: Final = b"last"


def domain_config(domain: str, edges: list[Edge], made: dict[str, Node], is_plain: bool) -> dict[str, Any]:
    """The configuration of a domain's node, with the API that lists subscriptions."""
    grpc, http = free_port(), free_port()
    config: dict[str, Any] = {
        "api": {
            "grpc": [{"address": f"tcp://127.0.0.1:{grpc}"}],
            "http": [{"address": f"tcp://127.0.0.1:{http}", "map": f"tcp://127.0.0.1:{grpc}"}],
        },
        "plugin_order": ["admin"],
    }
    if not is_plain:
        upstreams = {
            edge.upstream: {
                "uri": f"mqtt://127.0.0.1:{made[edge.upstream].port}",
                "max-hops": edge.max_hops,
                "reconnect-delay": 0.2,
            }
            for edge in edges
            if edge.downstream == domain
        }
        policies = {"all": {"pattern": "#", "definition": {"federation-upstream-set": "all"}}}
        config["plugin_order"].append("links")
        config["plugins"] = {"links": {"domain": domain, "upstreams": upstreams, "policies": policies}}
    return config


async def link_filters(made: dict[str, Node]) -> list[str]:
    """The filters that links have at their upstreams."""
    found = []
    for node in made.values():
        status, answer = await node.rest("GET", "/v1/subscriptions?page_size=1000")
        assert status == 200, answer
        found += [
            f"{node.name}: {item['client_id']} {item['topic_name']}"
            for item in answer["subscriptions"]
            if item["client_id"].startswith("federation-link-")
        ]
    return found


async def collect(reader: MqttClient, last: set[str]) -> Counter[tuple[str, bytes]]:
    """The messages of a reader by domain and payload, until the last one of each domain in `last`."""
    got: Counter[tuple[str, bytes]] = Counter()
    while not all(got[(domain, LAST)] for domain in last):
        message = await reader.message()
        if message.topic.startswith(b"t/"):
            got[(message.topic[2:].decode(), message.payload)] += 1
    return got


@pytest.mark.parametrize("topology", TOPOLOGIES)
async def test_messages_arrive_once_where_links_reach(nodes: Nodes, clients: Clients, topology: str) -> None:
    edges = TOPOLOGIES[topology]()
    names = sorted({name for edge in edges for name in (edge.downstream, edge.upstream)})
    made = {name: nodes.make(name=name) for name in names}
    for name, node in made.items():
        node.config.update(domain_config(name, edges, made, name in PLAIN.get(topology, ())))
        node.spawn()
    for node in made.values():
        await eventually(node.serves, f"{node.name} serves clients")
    readers = {name: await clients.connect(node.port, f"reader-{name}") for name, node in made.items()}
    for reader in readers.values():
        await reader.subscribe("#", qos=1)
    writers = {name: await clients.connect(node.port, f"writer-{name}") for name, node in made.items()}
    reached = {name: reach(edges, name) for name in names}

    seen: dict[str, set[bytes]] = {name: set() for name in names}

    async def is_known() -> bool:
        """Whether a probe of each domain has reached the others: interest has travelled as far as it may."""
        for name, writer in writers.items():
            await writer.publish(f"probe/{name}", b"", qos=1)
        for name, reader in readers.items():
            seen[name] |= await drained(name, reader)
        return all(f"probe/{name}".encode() in seen[other] for name in names for other in reached[name])

    await eventually(is_known, "interest of all domains is known")
    for number in range(MESSAGES):
        for name, writer in writers.items():
            await writer.publish(f"t/{name}", b"%d" % number, qos=number % 2)
    for name, writer in writers.items():
        await writer.publish(f"t/{name}", LAST, qos=1)
    payloads = [*(b"%d" % number for number in range(MESSAGES)), LAST]
    for name, reader in readers.items():
        expected = {origin for origin in names if name in reached[origin]}
        got = await collect(reader, expected)
        assert got == Counter({(origin, payload): 1 for origin in expected for payload in payloads})
    # Nothing comes later either: a message of the own domain comes behind it.
    for name, reader in readers.items():
        assert not any(topic.startswith(b"t/") for topic in await drained(name, reader))
    assert await link_filters(made) != []
    for reader in readers.values():
        await reader.unsubscribe("#")
    await eventually(lambda: no_filters(made), "no filter of a link", NO_FILTER_SECONDS)


async def no_filters(made: dict[str, Node]) -> bool:
    return not await link_filters(made)


async def drained(name: str, reader: MqttClient) -> set[bytes]:
    """The topics of the messages that wait; one that the reader sends itself comes behind them."""
    own = f"drain/{name}".encode()
    topics: set[bytes] = set()
    await reader.publish(own.decode(), b"", qos=1)
    while own not in topics:
        topics.add((await reader.message()).topic)
    return topics
