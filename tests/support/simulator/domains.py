"""Domains that are linked by upstreams, and the oracle of them: a message arrives once in every domain that links reach within
their hops, and in no other; where nobody reads, no link keeps a filter.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import Final

from federation.definitions.policy import parse_policy
from federation.definitions.resolution import Resolution
from federation.definitions.upstream import parse_upstream
from federation.links.status import LinkState
from simulator.client import Client
from simulator.domain_node import DomainNode
from simulator.federation import ROUGH, address
from simulator.link_streams import MQTT_PORT
from simulator.node_process import NodeOptions
from simulator.node_store import Disk
from simulator.world import Host, World

RUNNING_LIMIT: Final = 60.0
"""Seconds until all links run after the start, and after faults of the network: a connection without answers ends in 30 s."""
MESSAGE_LIMIT: Final = 120.0
"""Seconds until everything has arrived after the faults: half-open connections are noticed, and links wait before they try."""
NO_FILTER_LIMIT: Final = 15.0
"""Seconds until the last filter of a link is gone after its last reader, in the largest graphs."""
RETAINED_TOPICS: Final = 3
SESSION_SECONDS: Final = 3600
"""Session Expiry Interval of readers of nodes with a store."""
SETTLE_SECONDS: Final = 3.0
"""Until all domains know the interest of all others. A message before may reach one on two ways before it is numbered."""


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


def _upstream_name(edge: Edge) -> str:
    return f"to-{edge.other}" if edge.is_push else edge.other


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


def both(edges: list[Edge], others: list[Edge]) -> list[Edge]:
    """The links that are among both, with the lower number of hops."""
    found = {replace(edge, max_hops=0): edge.max_hops for edge in others}
    return [
        replace(edge, max_hops=min(edge.max_hops, found[key]))
        for edge in edges
        if (key := replace(edge, max_hops=0)) in found
    ]


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """A message, the domains that it must reach, once its publisher has the acknowledgement, and those that it may reach."""

    payload: bytes
    publisher: Client
    packet_id: int
    must: set[str]
    may: set[str]


class Domains:
    """`sizes`: nodes of domains that have several. `plain`: upstreams without the plugin `links`. `has_stores`: nodes have
    stores, and may be killed and started again. `has_names`: each domain has names of its own for all topics, which its links
    map. `clock_error_max`: seconds that the clocks of nodes may be wrong. The network is lossy and late for every other seed.

    publishing  domains that publish
    qos         of what they publish, by chance
    """

    def __init__(
        self,
        seed: int,
        edges: list[Edge],
        sizes: dict[str, int] | None = None,
        plain: frozenset[str] = frozenset(),
        has_stores: bool = False,
        has_names: bool = False,
        clock_error_max: float = 0.0,
    ) -> None:
        self.world = World(seed, ROUGH if seed % 2 else None)
        self.rng = self.world.schedule_rng
        self.edges = edges
        self.plain = plain
        self.has_stores = has_stores
        self._has_names = has_names
        self._clock_error_max = clock_error_max
        self.qos: tuple[int, ...] = (1,)
        self._kills = 0
        self.names = sorted({name for edge in edges for name in (edge.downstream, edge.upstream)})
        self.publishing = self.names
        self.hosts: dict[str, list[Host]] = {}
        self.readers: dict[str, list[Client]] = {name: [] for name in self.names}
        self._reading: dict[Client, Host] = {}
        self._publishers: dict[Host, Client] = {}
        self.sent: dict[str, list[Sent]] = {name: [] for name in self.names}
        self._retained: dict[bytes, bytes] = {}  # the last payload of each topic, b"" for a deletion
        self._levels = "#"  # of the policies, behind the first level
        self._old_edges: list[Edge] | None = None  # while the definitions change
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
        seeds = [address(seed)] if seed != number else []
        error = (2 * self.rng.random() - 1) * self._clock_error_max if self._clock_error_max else 0.0
        disk = Disk() if self.has_stores else None
        options = NodeOptions(f"{domain}.{number}", seeds, disk=disk, clock_error=error)
        return self.world.add_host(
            f"h{number}",
            address(number)[0],
            lambda host: DomainNode(host, options, domain, self._resolution(domain), domain not in self.plain),
        )

    def _resolution(self, domain: str) -> Resolution:
        upstreams = [
            parse_upstream(
                _upstream_name(edge),
                {
                    "uri": [f"mqtt://{host.ip}:{MQTT_PORT}" for host in self.hosts[edge.other]],
                    "max-hops": edge.max_hops,
                    "reconnect-delay": 0.5,
                    "direction": "out" if edge.is_push else "in",
                    **({"exchange": f"{edge.other}/# -> {edge.owner}/{{#}}"} if self._has_names else {}),
                },
            )
            for edge in self.edges
            if edge.owner == domain
        ]
        policy = {"pattern": self._topic(domain, self._levels), "definition": {"federation-upstream-set": "all"}}
        return Resolution(upstreams, [], [parse_policy("p", policy)])

    def _topic(self, domain: str, origin: str) -> str:
        """The topic of the messages of a domain, as another domain names it."""
        return f"{domain}/t/{origin}" if self._has_names else f"t/{origin}"

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
            node = self.node(host)
            expiry = SESSION_SECONDS if self.has_stores else 0
            reader = Client(node.broker, f"reader {len(self.readers[name])}", self.world.now, expiry=expiry)
            node.clients.append(reader)
            reader.subscribe(self._topic(name, "#"), self.world.now)
            self.readers[name].append(reader)
            self._reading[reader] = host
            host.settle()

    def end_reading(self, names: list[str]) -> None:
        for name in names:
            for reader in self.readers[name]:
                host = self._reading.pop(reader, None)
                if host is not None:
                    reader.unsubscribe(self._topic(name, "#"), self.world.now)
                    host.settle()

    def has_reader(self, host: Host) -> bool:
        return host in self._reading.values()

    def publish(self, count: int) -> None:
        """Messages of domains by chance, through nodes by chance."""
        for _ in range(count):
            name = self.rng.choice(self.publishing)
            host = self.rng.choice(self.hosts[name])
            if host.is_still or host.process is None:
                continue
            publisher = self._publisher(host)
            payload = b"%s %d" % (name.encode(), len(self.sent[name]))
            packet_id = publisher.publish(self._topic(name, name), payload, self.world.now, self.rng.choice(self.qos))
            must, may = self._reach_now(name, bool(packet_id))
            self.sent[name].append(Sent(payload, publisher, packet_id, must, may))
            host.settle()

    def _reach_now(self, origin: str, is_kept: bool) -> tuple[set[str], set[str]]:
        """The domains that a message must and may reach. `is_kept`: links that begin anew find it in their sessions."""
        if self._old_edges is None:
            reached = reach(self.edges, origin)
            return reached, reached
        lasting = both(self._old_edges, self.edges) if is_kept else []
        return reach(lasting, origin), reach(self._old_edges + self.edges, origin)

    def _publisher(self, host: Host) -> Client:
        if host not in self._publishers:
            self._publishers[host] = self.node(host).add_client("publisher", self.world.now)
        return self._publishers[host]

    def retain(self) -> None:
        """A domain by chance publishes or deletes a retained message."""
        host = self.rng.choice(self.hosts[self.rng.choice(self.publishing)])
        if not host.is_still and host.process is not None:
            topic = f"t/retained/{self.rng.randrange(RETAINED_TOPICS)}"
            payload = b"" if self.rng.random() < 0.3 else b"%d" % self.rng.getrandbits(60)
            self._publisher(host).publish(topic, payload, self.world.now, retain=True)
            self._retained[topic.encode()] = payload
            host.settle()

    # --- changes of definitions

    def begin_change(self, edges: list[Edge]) -> None:
        """Other links from now on; the domains learn it one after the other, until `end_change`."""
        self.world.run(1.0)  # what is on its way with QoS 0 is lost where a link begins anew
        self._old_edges = self.edges
        self.edges = edges
        self._levels = self.rng.choice("#+")
        for name in self.rng.sample(self.names, len(self.names)):
            self.run(self.rng.random() * 0.5, 10.0)
            for host in self.hosts[name]:
                if host.process is not None:
                    self.node(host).resolve(self._resolution(name), self.world.now)
                    host.settle()

    def end_change(self) -> None:
        """All domains know what the others want now."""
        self._old_edges = None

    # --- kills

    def kill(self, host: Host) -> None:
        """kill -9. What its publisher has no acknowledgement of may be lost."""
        self._kills += 1
        host.crash()
        self._publishers.pop(host, None)

    def start(self, host: Host) -> None:
        """The node comes back, and so do its readers."""
        host.start()
        for reader, place in self._reading.items():
            if place is host:
                reader.connect(self.node(host).broker, self.world.now)
                self.node(host).clients.append(reader)
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
        again may be there again: between two domains, without numbers, nobody can tell. It may reach every domain. After a kill
        what was not acknowledged may be missing, and anything may be there again."""
        copies_max = sum(node.repeated for node in self.nodes) * len(self.names)
        copies = 0
        for origin, sent in self.sent.items():
            for name in self.names:
                topic = self._topic(name, origin).encode()
                strange = {message.payload for message in sent if name not in message.may}
                for reader in self.readers[name]:
                    found = Counter(payload for came, payload in reader.received if came == topic)
                    for payload in strange.intersection(found):
                        return f"{name} got {payload!r}, and no links reach it from {origin} within their hops"
                    for message in sent:
                        count = found[message.payload]
                        copies += max(count - 1, 0)
                        is_lost = count == 0 and name in message.must and self._is_due(message)
                        if is_lost or (copies > copies_max and not self._kills):
                            return f"{name} got {count} copies of {message.payload!r}"
        return ""

    def _is_due(self, message: Sent) -> bool:
        """Whether a message must arrive."""
        return not self._kills or message.packet_id in message.publisher.acknowledged

    def link_filters(self) -> list[str]:
        """The filters that links have at their upstreams."""
        return [
            f"{node.name}: {session.client_id} {topic_filter.decode()}"
            for node in self.nodes
            for session in node.broker.sessions.values()
            if session.client_id.startswith("federation-link-")
            for topic_filter in session.subscriptions
        ]

    def check_retained(self) -> None:
        """Each node holds the same retained messages, and the newest ones where the clocks are right."""
        start = self.world.now
        while found := self._retained_difference():
            self.world.check(self.world.now - start < MESSAGE_LIMIT, found)
            self.world.run(0.5)

    def _retained_difference(self) -> str:
        wanted = {topic: payload for topic, payload in self._retained.items() if payload}
        for node in self.nodes:
            held = {message.topic: message.payload for message in node.broker.retained.messages()}
            if self._clock_error_max and node is self.nodes[0]:
                wanted = held
            if held != wanted:
                return f"{node.name} holds {held}, not {wanted}"
        return ""

    def check_filters(self) -> None:
        """The session of each link that pulls has the filters that the link wants, and no others."""
        sessions = {
            session.client_id: session
            for node in self.nodes
            for session in node.broker.sessions.values()
            if session.bridge_end is not None and session.connection is not None
        }
        for node in self.nodes:
            for link in node.links.by_id.values():
                if link.state is LinkState.RUNNING and link.subscriptions.wanted:
                    found = set(sessions[link.client_id].subscriptions)
                    self.world.check(found == set(link.subscriptions.wanted), f"{link.client_id} has {found}")

    def check_sessions(self) -> None:
        """No session of a link that is gone stays, at either end."""
        there = {f"federation-link-{edge.owner}-{_upstream_name(edge)}" for edge in self.edges}
        here = {(edge.owner, f"link:{_upstream_name(edge)}") for edge in self.edges}
        for name in self.names:
            for host in self.hosts[name]:
                for client_id in self.node(host).broker.sessions:
                    link, _, _ = client_id.rpartition("-")
                    local, _, _ = client_id.rpartition(":")
                    is_gone = (client_id.startswith("federation-link-") and link not in there) or (
                        client_id.startswith("link:") and (name, local) not in here
                    )
                    self.world.check(not is_gone, f"{host.name} has the session {client_id} of a link that is gone")

    def check_no_filters(self) -> None:
        """After the last reader no filter of a link is left: the interest of links keeps no interest of links alive."""
        self.end_reading(self.names)
        self.world.run_until(
            lambda: not self.link_filters(), NO_FILTER_LIMIT, f"no filter of {self.link_filters()[:3]}"
        )
