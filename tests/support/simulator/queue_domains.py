"""Domains with a federated queue whose consumers come and go, and the oracle of that: every job is done once, nearly always
where it was published while a consumer was free there.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from broker.broker import Broker
from broker.codec.packets import PubAck, Publish
from federation.definitions.policy import parse_policy
from federation.definitions.resolution import Resolution
from federation.definitions.upstream import parse_upstream
from federation.links.status import LinkState
from simulator.client import Client
from simulator.domain_node import DomainNode
from simulator.domains import Edge
from simulator.federation import ROUGH, address
from simulator.link_streams import MQTT_PORT
from simulator.node_process import NodeOptions
from simulator.node_store import Disk
from simulator.world import Host, World

GROUP: Final = "$share/workers/jobs/#"
START_SECONDS_MAX: Final = 60.0
DONE_SECONDS_MAX: Final = 180.0
"""From the last fault until every job is done: half-open connections are noticed, and links wait before they try."""
AT_HOME_MIN: Final = 0.95
REST_SECONDS: Final = 3.0  # in which nothing is published or done: all that can move has moved then


class Worker(Client):
    """Works on `jobs`, at most as many as its Receive Maximum, until `finish`."""

    def __init__(self, broker: Broker, client_id: str, now: float, window: int = 1) -> None:
        self.jobs: deque[Publish] = deque()
        self.window = window
        self.is_leaving = False
        super().__init__(broker, client_id, now, window)

    def is_free(self) -> bool:
        return not self.is_leaving and len(self.jobs) < self.window

    def finish(self, now: float) -> bytes:
        """The oldest job is done."""
        job = self.jobs.popleft()
        self.send(PubAck(job.packet_id), now)
        return job.payload

    def _handle(self, packet: Publish, now: float) -> None:
        self.jobs.append(packet)


class QueueDomains:
    """Jobs are `NAME NUMBER`, with the domain's name. `sizes`: nodes of domains that have several; such an upstream is one for
    each of its nodes. `has_stores`: nodes have stores, and may be killed and started again.

    hosts    of all nodes, by their names: DOMAIN.NUMBER
    workers  by the names of their nodes
    done     jobs, and the domains where they were done
    may_repeat   nodes of a cluster are taken for failed, and others choose again for what they have (decision 14)
    at_home_min  part of the jobs that a consumer was free for in their domain, and that are to be done there
    """

    def __init__(
        self, seed: int, edges: Sequence[Edge], sizes: dict[str, int] | None = None, has_stores: bool = False
    ) -> None:
        self.world = World(seed, ROUGH if seed % 2 else None)
        self.rng = self.world.schedule_rng
        self.names = sorted({*(sizes or {}), *(name for edge in edges for name in (edge.downstream, edge.upstream))})
        self.places = {name: [f"{name}.{at}" for at in range((sizes or {}).get(name, 1))] for name in self.names}
        nodes = [node for places in self.places.values() for node in places]
        self.hosts: dict[str, Host] = {}
        self.workers: dict[str, list[Worker]] = {node: [] for node in nodes}
        self.done: list[tuple[bytes, str]] = []
        self.published: dict[bytes, bool] = {}  # whether a consumer was free there
        self._acknowledged: dict[bytes, tuple[Client, int]] = {}  # publisher and packet identifier of each job
        self.at_home_min = AT_HOME_MIN
        self.may_repeat = False
        self._has_stores = has_stores
        self._kills = 0
        self._edges = edges
        self._addresses = {node: address(number) for number, node in enumerate(nodes, 1)}
        self._workers_made = 0
        for node in nodes:
            self.hosts[node] = self._add(node)
            self.hosts[node].start()
        self._publishers = {node: self.node(node).add_client("publisher", self.world.now) for node in nodes}
        self.world.run_until(lambda: not self.not_running(), START_SECONDS_MAX, "all links run after the start")

    def _add(self, node: str) -> Host:
        domain = domain_of(node)
        first = self.places[domain][0]
        seeds = [] if node == first else [self._addresses[first]]
        options = NodeOptions(node, seeds, disk=Disk() if self._has_stores else None)
        return self.world.add_host(
            node,
            self._addresses[node][0],
            lambda host: DomainNode(host, options, domain, self._resolution(domain), True),
        )

    def _resolution(self, domain: str) -> Resolution:
        upstreams = [
            parse_upstream(node, {"uri": f"mqtt://{self._addresses[node][0]}:{MQTT_PORT}", "reconnect-delay": 0.5})
            for edge in self._edges
            if edge.downstream == domain
            for node in self.places[edge.upstream]
        ]
        definition = {"federation-upstream-set": "all"} if upstreams else {}
        return Resolution(upstreams, [], [parse_policy("p", {"pattern": GROUP, "definition": definition})])

    def node(self, name: str) -> DomainNode:
        process = self.hosts[name].process
        assert isinstance(process, DomainNode)
        return process

    def not_running(self) -> list[str]:
        """The links that do not run."""
        return [
            f"{node}: {link.state.value}"
            for node, host in self.hosts.items()
            if host.process is not None
            for link in self.node(node).links.by_id.values()
            if link.state is not LinkState.RUNNING
        ]

    # --- jobs and consumers

    def all_workers(self, name: str) -> list[tuple[str, Worker]]:
        """(node, consumer) of a domain."""
        return [(node, worker) for node in self.places[name] for worker in self.workers[node]]

    def publish(self, name: str) -> None:
        nodes = [node for node in self.places[name] if self.hosts[node].process is not None]
        if not nodes:
            return
        node = self.rng.choice(nodes)
        payload = b"%s %d" % (name.encode(), len(self.published))
        self.published[payload] = any(worker.is_free() for _, worker in self.all_workers(name))
        publisher = self._publishers[node]
        self._acknowledged[payload] = publisher, publisher.publish("jobs/a", payload, self.world.now)
        self.hosts[node].settle()

    def come(self, name: str, window: int = 1) -> None:
        nodes = [node for node in self.places[name] if self.hosts[node].process is not None]
        if not nodes:
            return
        node = self.rng.choice(nodes)
        self._workers_made += 1
        now = self.world.now
        worker = Worker(self.node(node).broker, f"worker {self._workers_made}", now, window)
        self.node(node).clients.append(worker)
        self.workers[node].append(worker)
        worker.subscribe(GROUP, now)
        self.hosts[node].settle()

    def leave(self, node: str, worker: Worker) -> None:
        """The consumer takes no more jobs, finishes what it has, and disconnects."""
        worker.is_leaving = True
        worker.unsubscribe(GROUP, self.world.now)
        self.hosts[node].settle()
        self._end(node, worker)

    def _end(self, node: str, worker: Worker) -> None:
        if worker.is_leaving and not worker.jobs:
            worker.disconnect(self.world.now)
            self.workers[node].remove(worker)
            self.node(node).clients.remove(worker)
            self.hosts[node].settle()

    def work(self) -> None:
        """Some of the jobs that consumers have are done."""
        for node, host in self.hosts.items():
            if host.is_still or host.process is None:
                continue
            for worker in list(self.workers[node]):
                if worker.jobs and self.rng.random() < 0.4:
                    self.done.append((worker.finish(self.world.now), domain_of(node)))
                    host.settle()
                    self._end(node, worker)

    def run(self, seconds: float, rate: float, changes: float = 0.0) -> None:
        """Time passes; `rate` jobs are published, and `changes` consumers come or go, in a second."""
        end = self.world.now + seconds
        while self.world.now < end:
            step = 0.02 + self.rng.random() * 0.08
            self.world.run(step)
            self.work()
            name = self.rng.choice(self.names)
            if any(self.hosts[node].is_still for node in self.places[name]):
                continue
            if self.rng.random() < step * rate:
                self.publish(name)
            if self.rng.random() < step * changes:
                staying = [(node, worker) for node, worker in self.all_workers(name) if not worker.is_leaving]
                if staying and self.rng.random() < 0.5:
                    self.leave(*self.rng.choice(staying))
                else:
                    self.come(name, self.rng.choice((1, 1, 3)))

    # --- kills and definitions

    def kill(self, node: str) -> None:
        """kill -9, also of the consumers there. Jobs that the publisher there has no acknowledgement of may be lost."""
        self._kills += 1
        self.hosts[node].crash()
        self.workers[node].clear()

    def start(self, node: str) -> None:
        self.hosts[node].start()
        self._publishers[node] = self.node(node).add_client("publisher", self.world.now)
        self.hosts[node].settle()

    def define(self, edges: Sequence[Edge]) -> None:
        """Other upstreams from now on, which the nodes learn one after the other."""
        self._edges = edges
        for node, host in self.hosts.items():
            if host.process is not None:
                self.node(node).resolve(self._resolution(domain_of(node)), self.world.now)
                host.settle()
                self.run(self.rng.random() * 0.5, 5.0)

    # --- the oracle

    def rest(self) -> None:
        """No job waits on any node of a domain while a consumer of the domain is free, on whatever node."""
        self.world.run_until(lambda: not self.not_running(), START_SECONDS_MAX, "all links run")
        self.world.run(REST_SECONDS)
        for name in self.names:
            free = [node for node, worker in self.all_workers(name) if worker.is_free()]
            waiting = [node for node in self.places[name] if self._waiting(node)]
            self.world.check(not (free and waiting), f"jobs wait on {waiting}, consumers are free on {free}")

    def check(self, *last: str) -> None:
        """In the end only the domains `last` have consumers. Every job is done there or was done before, each once."""
        for name in self.names:
            for node, worker in self.all_workers(name):
                if not worker.is_leaving:
                    self.leave(node, worker)
        for name in last:
            self.come(name, 5)
        self.run(1.0, 0.0)
        start = self.world.now
        while self._not_done() or any(self._waiting(node) for node in self.hosts):
            self.world.check(self.world.now - start < DONE_SECONDS_MAX, f"{self._missing()}")
            self.world.run(0.05)
            self.work()
        self.world.run(5.0)
        found = self.difference()
        self.world.check(not found, found)

    def _not_done(self) -> list[bytes]:
        done = {payload for payload, _ in self.done}
        return [payload for payload in self.published if payload not in done and self._is_due(payload)]

    def _is_due(self, payload: bytes) -> bool:
        """Whether a job must be done. One that was on its way to a member on another node of its cluster may end with that."""
        if not self._kills:
            return True
        publisher, packet_id = self._acknowledged[payload]
        return packet_id in publisher.acknowledged and len(self.places[payload.split()[0].decode()]) == 1

    def _missing(self) -> str:
        missing = self._not_done()
        waiting = {node: self._waiting(node) for node in self.hosts}
        return f"{len(missing)} jobs are not done: {missing[:5]}; waiting: {waiting}; links: {self.not_running()}"

    def difference(self) -> str:
        """ "" where every job was done once, and those that a consumer was free for nearly always at home. Where a node was
        killed, so were consumers: a job may be done again, and somewhere else."""
        counts = Counter(payload for payload, _ in self.done)
        if self._kills or self.may_repeat:
            missing = self._not_done()
            return f"{missing[0]!r} was not done, as {len(missing)} jobs" if missing else ""
        wrong = [payload for payload in self.published if counts[payload] != 1]
        if wrong:
            return f"{wrong[0]!r} was done {counts[wrong[0]]} times, as {len(wrong)} jobs"
        places = dict(self.done)
        at_home = [places[job] == job.split()[0].decode() for job, was_free in self.published.items() if was_free]
        if sum(at_home) < self.at_home_min * len(at_home):
            return f"{sum(at_home)} of {len(at_home)} jobs were done at home"
        left = [node for node in self.hosts if self._waiting(node)]
        return f"jobs wait in {left}" if left else ""

    def jobs_sent(self) -> int:
        """Number of jobs that moved between nodes, of one domain or of several."""
        return sum(self.node(node).links.queues.consumers.sent for node in self.hosts)

    def moved(self) -> int:
        """Number of jobs that were done in another domain."""
        return sum(job.split()[0].decode() != place for job, place in self.done)

    def _waiting(self, node: str) -> int:
        """Jobs in the queue and in the sessions of links."""
        if self.hosts[node].process is None:
            return 0
        sessions = self.node(node).broker.sessions.values()
        return sum(
            session.queue_length() + session.inflight_length()
            for session in sessions
            if session.is_group_queue or session.bridge_end is not None
        )


def domain_of(node: str) -> str:
    return node.partition(".")[0]
