"""Domains that are linked by upstreams, and the oracle of them: a message arrives once in every domain that links reach within
their hops, and in no other; where nobody reads, no link keeps a filter.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Final

from federation.definitions.policy import parse_policy
from federation.definitions.resolution import Resolution
from federation.definitions.upstream import parse_upstream
from federation.links.status import LinkState
from federation.simulator.client import Client
from federation.simulator.domain_node import DomainNode
from federation.simulator.federation import ROUGH, address
from federation.simulator.link_streams import MQTT_PORT
from federation.simulator.node_process import NodeOptions
from federation.simulator.world import Host, World

RUNNING_LIMIT: Final = 60.0
"""Seconds until all links run after the start, and after faults of the network: a connection without answers ends in 30 s."""
MESSAGE_LIMIT: Final = 120.0
"""Seconds until everything has arrived after the faults: half-open connections are noticed, and links wait before they try."""
NO_FILTER_LIMIT: Final = 15.0
"""Seconds until the last filter of a link is gone after its last reader, in the largest graphs."""
SETTLE_SECONDS: Final = 3.0
"""Until all domains know the interest of all others. A message before may reach one on two ways before it is numbered."""
TOPICS: Final = "t/#"


@dataclass(frozen=True, slots=True)
class Edge:
    """A link: `downstream` takes the messages of `upstream`, or `upstream` pushes them; a message has made at most `max_hops`
    hops behind it."""

    downstream: str
    upstream: str
    max_hops: int = 1
    is_push: bool = False

    @property
    def owner(self) -> str:
        """The domain that runs the link."""
        return self.upstream if self.is_push else self.downstream

    @property
    def other(self) -> str:
        return self.downstream if self.is_push else self.upstream


def reach(edges: list[Edge], origin: str) -> set[str]:
    """The domains that get the messages of a domain: over the fewest links, each of which allows the hops so far."""
    hops = {origin: 0}
    todo = deque([origin])
    while todo:
        domain = todo.popleft()
        for edge in edges:
            if edge.upstream == domain and edge.downstream not in hops and hops[domain] < edge.max_hops:
                hops[edge.downstream] = hops[domain] + 1
                todo.append(edge.downstream)
    return set(hops)


class Domains:
    """`sizes`: nodes of domains that have several. `plain`: upstreams without the plugin `links`. The network is lossy and late
    for every other seed."""

    def __init__(
        self, seed: int, edges: list[Edge], sizes: dict[str, int] | None = None, plain: frozenset[str] = frozenset()
    ) -> None:
        self.world = World(seed, ROUGH if seed % 2 else None)
        self.rng = self.world.schedule_rng
        self.edges = edges
        self.plain = plain
        self.names = sorted({name for edge in edges for name in (edge.downstream, edge.upstream)})
        self.hosts: dict[str, list[Host]] = {}
        self.readers: dict[str, list[Client]] = {name: [] for name in self.names}
        self._reading: dict[Client, Host] = {}
        self._publishers: dict[Host, Client] = {}
        self.sent: dict[str, list[bytes]] = {name: [] for name in self.names}
        number = 0
        for name in self.names:
            count = (sizes or {}).get(name, 1)
            self.hosts[name] = [self._add(name, number + index, number + 1) for index in range(1, count + 1)]
            number += count
        for host in self.world.hosts.values():
            host.start()
            self.world.run(self.rng.random() * 0.3)
        self.begin_reading(self.names)
        self.until_running("the start")
        self.world.run(SETTLE_SECONDS)

    def _add(self, domain: str, number: int, seed: int) -> Host:
        options = NodeOptions(f"{domain}.{number}", [address(seed)] if seed != number else [])
        return self.world.add_host(
            f"h{number}",
            address(number)[0],
            lambda host: DomainNode(host, options, domain, self._resolution(domain), domain not in self.plain),
        )

    def _resolution(self, domain: str) -> Resolution:
        upstreams = [
            parse_upstream(
                f"to-{edge.other}" if edge.is_push else edge.other,
                {
                    "uri": [f"mqtt://{host.ip}:{MQTT_PORT}" for host in self.hosts[edge.other]],
                    "max-hops": edge.max_hops,
                    "reconnect-delay": 0.5,
                    "direction": "out" if edge.is_push else "in",
                },
            )
            for edge in self.edges
            if edge.owner == domain
        ]
        policy = {"pattern": TOPICS, "definition": {"federation-upstream-set": "all"}}
        return Resolution(upstreams, [], [parse_policy("p", policy)])

    def node(self, host: Host) -> DomainNode:
        assert isinstance(host.process, DomainNode)
        return host.process

    @property
    def nodes(self) -> list[DomainNode]:
        return [self.node(host) for host in self.world.hosts.values() if host.process is not None]

    # --- clients

    def begin_reading(self, names: list[str]) -> None:
        """A client of one node of each domain reads everything."""
        for name in names:
            host = self.rng.choice(self.hosts[name])
            reader = self.node(host).add_client(f"reader {len(self.readers[name])}", self.world.now)
            reader.subscribe(TOPICS, self.world.now)
            self.readers[name].append(reader)
            self._reading[reader] = host
            host.settle()

    def end_reading(self, names: list[str]) -> None:
        for name in names:
            for reader in self.readers[name]:
                host = self._reading.pop(reader, None)
                if host is not None:
                    reader.unsubscribe(TOPICS, self.world.now)
                    host.settle()

    def publish(self, count: int, qos: int = 1) -> None:
        """Messages of domains by chance, through nodes by chance."""
        for _ in range(count):
            name = self.rng.choice(self.names)
            host = self.rng.choice(self.hosts[name])
            if host.is_still or host.process is None:
                continue
            publisher = self._publishers.get(host)
            if publisher is None:
                publisher = self._publishers[host] = self.node(host).add_client("publisher", self.world.now)
            payload = b"%s %d" % (name.encode(), len(self.sent[name]))
            self.sent[name].append(payload)
            publisher.publish(f"t/{name}", payload, self.world.now, qos)
            host.settle()

    def run(self, seconds: float, rate: float) -> None:
        """Time passes while `rate` messages a second are published, some of them in bursts."""
        end = self.world.now + seconds
        while self.world.now < end:
            self.world.run(min(self.rng.random() * 0.4, end - self.world.now))
            if self.rng.random() < 0.5:
                self.publish(int(rate * 0.4) + 1)

    # --- the oracle

    def until_running(self, after: str) -> None:
        """Until one node of each domain runs each of its links with a reader."""
        self.world.run_until(lambda: not self._not_running(), RUNNING_LIMIT, f"all links run after {after}")

    def _not_running(self) -> str:
        for name in self.names:
            wanted = sum(edge.owner == name for edge in self.edges)
            states = [link.state for host in self.hosts[name] for link in self.node(host).links.by_id.values()]
            if states.count(LinkState.RUNNING) != wanted:
                return f"{name} has {[state.value for state in states]}"
        return ""

    def check_messages(self) -> None:
        """Everything that was published has arrived where it should, once, and stays so."""
        start = self.world.now
        while found := self.difference():
            self.world.check(self.world.now - start < MESSAGE_LIMIT, found)
            self.world.run(0.5)
        self.world.run(5.0)
        found = self.difference()
        self.world.check(not found, found)

    def difference(self) -> str:
        """ "" when the readers have what they should have, otherwise the first difference. A message that an upstream has sent
        again may be there again: between two domains, without numbers, nobody can tell. It may reach every domain."""
        copies_max = sum(node.repeated for node in self.nodes) * len(self.names)
        copies = 0
        for origin, sent in self.sent.items():
            reached = reach(self.edges, origin)
            for name in self.names:
                for reader in self.readers[name]:
                    found = Counter(payload for topic, payload in reader.received if topic == f"t/{origin}".encode())
                    if name not in reached and found:
                        return (
                            f"{name} got {next(iter(found))!r}, and no links reach it from {origin} within their hops"
                        )
                    for payload in sent if name in reached else []:
                        copies += max(found[payload] - 1, 0)
                        if found[payload] == 0 or copies > copies_max:
                            return f"{name} got {found[payload]} copies of {payload!r}"
        return ""

    def link_filters(self) -> list[str]:
        """The filters that links have at their upstreams."""
        return [
            f"{node.name}: {session.client_id} {topic_filter.decode()}"
            for node in self.nodes
            for session in node.broker.sessions.values()
            if session.client_id.startswith("federation-link-")
            for topic_filter in session.subscriptions
        ]

    def check_no_filters(self) -> None:
        """After the last reader no filter of a link is left: the interest of links keeps no interest of links alive."""
        self.end_reading(self.names)
        self.world.run_until(
            lambda: not self.link_filters(), NO_FILTER_LIMIT, f"no filter of {self.link_filters()[:3]}"
        )
