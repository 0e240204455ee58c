"""Domains as real processes that links connect as a graph says, with a reader and a writer at every node.

Every message must arrive once at every reader of each domain that links reach within max-hops, and at no other.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from federation.links.ownership_table import (
    weight,
)
from mqtt_client import Clients, MqttClient
from node_process import Node, Nodes, free_port
from simulator.domain_schedules import PLAIN, TOPOLOGIES, complete_graph, diamond, tree
from simulator.domains import Edge, reach
from waiting import eventually

ROUND: Final = 100  # messages of a domain that are published before the readers must have them
PROBE_SECONDS: Final = 1.0
ADMIN: Final = "admin"


@dataclass(frozen=True)
class Topology:
    """sizes  nodes of the domains that have several
    plain  upstreams without the plugin `links`
    """

    edges: list[Edge]
    sizes: Mapping[str, int] = field(default_factory=dict)
    plain: frozenset[str] = frozenset()


CASES: Final[Mapping[str, Topology]] = {
    **{name: Topology(make(), plain=PLAIN.get(name, frozenset())) for name, make in TOPOLOGIES.items()},
    "chain_of_one_hop": Topology([Edge("b", "a"), Edge("c", "b")]),
    "complete_graph_with_a_cluster": Topology(complete_graph(), {"b": 3}),
    "tree_with_a_cluster": Topology(tree(), {"b": 2}),
    "diamond_with_a_cluster": Topology(diamond(), {"d": 3}),
}


class Station:
    """A node of a domain and its two clients.

    got       what the reader has received: (topic, payload), and how often
    messages  how many of these are messages of domains
    """

    def __init__(self, domain: str, node: Node, reader: MqttClient, writer: MqttClient) -> None:
        self.domain = domain
        self.node = node
        self.writer = writer
        self.got: Counter[tuple[str, bytes]] = Counter()
        self.messages = 0
        self._reader = reader

    async def read(self) -> str:
        """The topic of the next message."""
        message = await self._reader.message()
        topic = message.topic.decode()
        self.got[topic, message.payload] += 1
        self.messages += topic.startswith("t/messages/")
        return topic

    async def read_messages(self, count: int) -> None:
        """Return when so many messages of domains have come."""
        while self.messages < count:
            await self.read()

    async def read_probes(self, topics: set[str], payload: bytes) -> None:
        """Return when these probes have come."""
        while not all(self.got[topic, payload] for topic in topics):
            await self.read()

    async def drain(self) -> None:
        """Read everything that waits: a message of this station comes behind it."""
        own = f"drain/{self.node.name}"
        await self.writer.publish(own, b"", qos=1)
        while await self.read() != own:
            pass

    async def end_reading(self) -> None:
        await self._reader.unsubscribe("#")


class LinkedDomains:
    """`start`, then `publish`, then `no_filter_seconds`."""

    def __init__(self, nodes: Nodes, clients: Clients, topology: Topology) -> None:
        self._nodes = nodes
        self._clients = clients
        self._edges = topology.edges
        self._plain = topology.plain
        self.names = sorted({name for edge in self._edges for name in (edge.downstream, edge.upstream)})
        self.reached = {name: reach(self._edges, name) for name in self.names}
        self.domains = {name: self._make(name, topology.sizes.get(name, 1)) for name in self.names}
        for name, cluster in self.domains.items():
            for node in cluster:
                self._link(name, node)
        self.stations: list[Station] = []
        self.published = 0  # messages of each domain
        self._probes = 0

    # --- start

    def _make(self, domain: str, size: int) -> list[Node]:
        """The nodes of a domain. One node alone needs no federation."""
        if size == 1:
            grpc, http = free_port(), free_port()
            api = {
                "grpc": [{"address": f"tcp://127.0.0.1:{grpc}"}],
                "http": [{"address": f"tcp://127.0.0.1:{http}", "map": f"tcp://127.0.0.1:{grpc}"}],
            }
            return [self._nodes.make({"api": api, "plugin_order": [ADMIN]}, domain)]
        cluster: list[Node] = []
        for number in range(1, size + 1):
            named = {"plugins": {"federation": {"node_name": f"{domain}{number}"}}}
            cluster.append(self._nodes.make_federated(cluster[:1], named))
        return cluster

    def _link(self, domain: str, node: Node) -> None:
        """The plugin `links` of a node, with the upstreams of its domain."""
        if domain in self._plain:
            return
        upstreams = {
            edge.other: {
                "uri": [f"mqtt://127.0.0.1:{other.port}" for other in self.domains[edge.other]],
                "direction": "out" if edge.is_push else "in",
                "max-hops": edge.max_hops,
                "reconnect-delay": 0.2,
            }
            for edge in self._edges
            if edge.owner == domain
        }
        policies = {"all": {"pattern": "t/#", "definition": {"federation-upstream-set": "all"}}}
        node.config["plugin_order"].append("links")
        plugins: dict[str, Any] = node.config.setdefault("plugins", {})
        plugins["links"] = {"domain": domain, "upstreams": upstreams, "policies": policies}

    async def start(self) -> None:
        """Return when every domain knows the interest of all others that it may know."""
        every = [node for cluster in self.domains.values() for node in cluster]
        for node in every:
            node.spawn()
        for node in every:
            await eventually(node.serves, f"{node.name} serves clients")
        for name, cluster in self.domains.items():
            if len(cluster) > 1:
                await self._nodes.all_alive(cluster)
            for node in cluster:
                reader = await self._clients.connect(node.port, f"reader-{node.name}")
                await reader.subscribe("#", qos=2)
                writer = await self._clients.connect(node.port, f"writer-{node.name}")
                self.stations.append(Station(name, node, reader, writer))
        for name in self.names:
            await eventually(lambda name=name: self._links_run(name), f"the links of {name} run where they belong")
        await self.until_known()

    async def _links_run(self, domain: str) -> bool:
        wanted = sum(edge.owner == domain for edge in self._edges)
        if not wanted:
            return True
        cluster = self.domains[domain]
        status, answer = await cluster[0].rest("GET", "/v1/federation-links")
        if status != 200 or len(answer["links"]) != wanted or answer["unanswered"]:
            return False
        names = [node.name for node in cluster] if len(cluster) > 1 else [""]
        return all(
            row["status"] == "running" and row["node"] == max(names, key=lambda name: weight(row["id"], name))
            for row in answer["links"]
        )

    async def until_known(self) -> None:
        """Return when a probe of each node reaches the readers that it should reach, once. It comes behind what was published
        before."""
        await eventually(self._probes_arrive, "probes arrive once where links reach")

    async def _probes_arrive(self) -> bool:
        self._probes += 1
        payload = b"%d" % self._probes
        await asyncio.gather(
            *(station.writer.publish(f"t/probes/{station.node.name}", payload, qos=1) for station in self.stations)
        )
        wanted = {
            station: {
                f"t/probes/{node.name}"
                for origin in self.names
                if station.domain in self.reached[origin]
                for node in self.domains[origin]
            }
            for station in self.stations
        }
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                for station, topics in wanted.items():
                    await station.read_probes(topics, payload)
        except TimeoutError:
            return False
        for station in self.stations:
            await station.drain()
        return all(
            {topic: count for (topic, probe), count in station.got.items() if self._is_probe(topic, probe, payload)}
            == dict.fromkeys(topics, 1)
            for station, topics in wanted.items()
        )

    def _is_probe(self, topic: str, found: bytes, payload: bytes) -> bool:
        return topic.startswith("t/probes/") and found == payload

    # --- messages

    async def publish(self, count: int) -> None:
        """`count` messages of each domain through its nodes by turns, each third one of a QoS. They go on when the readers have
        what was published so far, or when nothing came for long: `faults` tells the difference."""
        last = self.published + count
        while self.published < last:
            numbers = range(self.published, min(self.published + ROUND, last))
            self.published = numbers.stop
            await asyncio.gather(*(self._publish_at(station, numbers) for station in self.stations))
            try:
                for station in self.stations:
                    await station.read_messages(self.published * len(self._origins(station)))
            except TimeoutError:
                return
        await self.until_known()

    async def _publish_at(self, station: Station, numbers: range) -> None:
        cluster = self.domains[station.domain]
        place = cluster.index(station.node)
        topic = f"t/messages/{station.domain}"
        await station.writer.publish_all(
            [(topic, b"%d" % number, number % 3) for number in numbers if number % len(cluster) == place]
        )

    def _origins(self, station: Station) -> list[str]:
        """The domains whose messages are to reach a station."""
        return [origin for origin in self.names if station.domain in self.reached[origin]]

    @property
    def copies(self) -> int:
        """How many messages the readers have."""
        return sum(station.messages for station in self.stations)

    def faults(self) -> list[str]:
        """What is missing, came twice, or is where it should not be."""
        found = []
        for station in self.stations:
            expected = Counter(
                {
                    (f"t/messages/{origin}", b"%d" % number): 1
                    for origin in self._origins(station)
                    for number in range(self.published)
                }
            )
            got = Counter({key: count for key, count in station.got.items() if key[0].startswith("t/messages/")})
            for what, odd in (("lacks", expected - got), ("got too often", got - expected)):
                if odd:
                    found.append(f"the reader of {station.node.name} {what} {odd.total()}: {odd.most_common(3)}")
        return found

    # --- after the last reader

    async def no_filter_seconds(self) -> float:
        """All readers end. Returns the seconds until no link has a filter at its upstream."""
        assert bool(await self.link_filters()) == any(not edge.is_push for edge in self._edges)
        begun = time.monotonic()
        for station in self.stations:
            await station.end_reading()
        await eventually(self._has_no_filter, "no filter of a link")
        return time.monotonic() - begun

    async def _has_no_filter(self) -> bool:
        return not await self.link_filters()

    async def link_filters(self) -> list[str]:
        """The filters that links have at their upstreams."""
        found = []
        for station in self.stations:
            status, answer = await station.node.rest("GET", "/v1/subscriptions?page_size=1000")
            assert status == 200, answer
            found += [
                f"{station.node.name}: {item['client_id']} {item['topic_name']}"
                for item in answer["subscriptions"]
                if item["client_id"].startswith("federation-link-")
            ]
        return found
