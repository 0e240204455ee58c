"""A large cluster of bare Serf nodes that has stood for long: all know all, and nothing is left to be broadcast.

To let N nodes join one by one would cost N * N broadcasts before anything is measured. What happens after the start is done
by the rules alone.
"""

from __future__ import annotations

import gc
from collections import deque
from dataclasses import dataclass

from federation.gossip.addresses import Address
from federation.gossip.broadcasts import Broadcast, BroadcastQueue
from federation.gossip.config import LAN, GossipConfig
from federation.gossip.members import STATE_ALIVE, STATE_DEAD, Node, NodeFacts
from federation.gossip.push_pull import push_pull_scale
from federation.serf.config import SerfConfig
from federation.serf.events import Event, MemberFailed, MemberStatus
from federation.serf.roster import MemberRecord
from simulator.network import Faults
from simulator.process import Machine
from simulator.serf_process import GOSSIP_PORT, SerfProcess
from simulator.world import Host, World


@dataclass(slots=True)
class _Seen:
    """What an observer last knew of a member: the record of its table, the incarnation, whether it was gone."""

    node: Node
    incarnation: int
    is_gone: bool


class _NewsQueue(BroadcastQueue):
    """The queue of the broadcasts about members, which notes the names: each change of a record is broadcast."""

    def __init__(self) -> None:
        super().__init__()
        self._names: list[str] = []

    def queue(self, message: bytes, name: str = "") -> Broadcast:
        self._names.append(name)
        return super().queue(message, name)

    def take_names(self) -> list[str]:
        names = self._names
        if names:
            self._names = []
        return names


class CheckedProcess(SerfProcess):
    """A Serf node whose table is held against the rules: each record after each input that has changed it, whether or not an
    event tells of the change."""

    def __init__(self, cluster: Cluster, host: Host, config: SerfConfig, seeds: list[Address]) -> None:
        self._cluster = cluster
        self._seen: dict[str, _Seen] = {}
        super().__init__(host, config, seeds)
        membership = self.serf.gossip.membership
        self._queue = _NewsQueue()
        for message in membership.queue.take(0, 1 << 20, 1 << 20, 1):
            self._queue.queue(message, membership.name)
        membership.queue = self._queue

    def handle_events(self, events: list[Event], now: float) -> None:
        for event in events:
            if isinstance(event, MemberFailed) and event.member.name not in self._cluster.impaired:
                self._cluster.false_failures += 1

    def flush(self, host: Machine, now: float) -> None:
        for name in self._queue.take_names():
            node = self.serf.gossip.table.get(name)
            if node is not None:  # else it was removed meanwhile
                self.check(name, node)
                self._seen[name] = _Seen(node, node.incarnation, node.state >= STATE_DEAD)
        super().flush(host, now)

    def check(self, name: str, node: Node) -> None:
        """Hold one record against the rules, and against what it was before."""
        cluster = self._cluster
        observer = self.serf.config.node_name
        issued = cluster.issued(name)
        if node.incarnation > issued:
            cluster.world.fail(f"{observer} has {name} at {node.incarnation}, it has said {issued} at most")
        if node.facts.ip != cluster.owner(name) and name != observer:
            cluster.world.fail(f"{observer} has {name} at {node.facts.ip}, which is not its machine")
        seen = self._seen.get(name)
        if seen is None or seen.node is not node:
            return
        if node.incarnation < seen.incarnation:
            cluster.world.fail(f"{observer} had {name} at {seen.incarnation} and goes back to {node.incarnation}")
        if seen.is_gone and node.state < STATE_DEAD and node.incarnation == seen.incarnation:
            cluster.world.fail(f"at {observer} {name} is back without a refutation")


class Cluster:
    """`hosts` run nodes n0 to n(count - 1). What is started later joins the first of them.

    impaired        names of nodes that are down, or may be taken for it
    false_failures  how often a node took one for failed that is not impaired
    """

    def __init__(self, seed: int, count: int, faults: Faults | None = None, profile: GossipConfig = LAN) -> None:
        self.world = World(seed, faults)
        self.profile = profile
        self.hosts: list[Host] = []
        self._seeds: list[Address] = []
        self.false_failures = 0
        self.impaired: set[str] = set()
        self._issued: dict[str, int] = {}
        for _ in range(count):
            self.add_host()
        # A collector that walks over N * N records again and again would cost more than the nodes.
        gc.disable()
        for host in self.hosts:
            host.start()
        facts = [self.process(host).serf.roster.own.facts for host in self.hosts]
        for host in self.hosts:
            self._introduce(self.process(host), facts)
            host.settle()
        gc.freeze()
        self._seeds.append((self.hosts[0].ip, GOSSIP_PORT))

    def add_host(self, name: str = "") -> Host:
        """A further machine, which is not started yet. `name`: of its node, when another one has it already."""
        number = len(self.world.hosts)
        ip = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        config = SerfConfig(name or f"n{number}", ip, GOSSIP_PORT, {"fed_addr": f"{ip}:8901"}, profile=self.profile)
        host = self.world.add_host(f"n{number}", ip, lambda host: CheckedProcess(self, host, config, self._seeds))
        if not name:
            self.hosts.append(host)
        return host

    def _introduce(self, process: SerfProcess, everybody: list[NodeFacts]) -> None:
        """Enter all members into the tables of one node, and forget what it would have told about itself."""
        serf = process.serf
        for facts in everybody:
            if facts.name != serf.config.node_name:
                serf.gossip.table.add(Node(facts, self.world.now, 1, STATE_ALIVE))
                serf.roster.records[facts.name] = MemberRecord(facts, MemberStatus.ALIVE, 1)
        # Push-pulls of a cluster of this size are so far apart; those of a node that has just started come sooner.
        interval = self.profile.push_pull_interval * push_pull_scale(len(everybody))
        serf.gossip._push_pull_at = self.world.now + self.world.schedule_rng.random() * interval
        queue = serf.gossip.membership.queue
        while len(queue) > 0:
            queue.take(0, 1 << 20, 1 << 20, 1)

    def process(self, host: Host) -> CheckedProcess:
        assert isinstance(host.process, CheckedProcess)
        return host.process

    def close(self) -> None:
        """Give the memory back: the next cluster needs it."""
        self.hosts.clear()
        self.world.hosts.clear()
        gc.unfreeze()
        gc.enable()
        gc.collect()

    # --- what happens

    def crash(self, host: Host) -> None:
        self._issued[host.name] = self.issued(host.name)
        self.impaired.add(host.name)
        host.crash()

    def start(self, host: Host) -> None:
        self.impaired.discard(host.name)
        host.start()

    # --- what is true

    def issued(self, name: str) -> int:
        """The highest incarnation that this node has ever said of itself."""
        process = self.world.hosts[name].process
        before = self._issued.get(name, 1)
        if process is None:
            return before
        assert isinstance(process, SerfProcess)
        return max(before, process.serf.gossip.membership.incarnation)

    def living(self) -> list[Host]:
        return [host for host in self.hosts if host.process is not None]

    # --- what the nodes think

    def tables(self, observers: list[Host]) -> list[dict[str, Node]]:
        """What these nodes know of each member, by name."""
        return [self.process(observer).serf.gossip.table.nodes for observer in observers]

    def all_hold_alive(self, subjects: list[Host], observers: list[Host]) -> bool:
        """Neither failed nor suspected, for any of the observers."""
        return Agreement(self, subjects, observers).is_reached()

    def all_hold_dead(self, subject: Host, observers: list[Host]) -> bool:
        return min(states_of(subject.name, self.tables(observers))) >= STATE_DEAD

    def owner(self, name: str) -> str:
        """The address of the machine that had the name first."""
        return self.world.hosts[name].ip

    def check_all(self) -> None:
        """Hold all records of all nodes against the rules."""
        for host in self.living():
            process = self.process(host)
            for name, node in process.serf.gossip.table.nodes.items():
                process.check(name, node)


class Agreement:
    """Whether all observers hold all subjects for alive: asked again and again. N * N records are walked over a few times in
    all, because each look begins with the subject that was not held for alive at the one before."""

    def __init__(self, cluster: Cluster, subjects: list[Host], observers: list[Host]) -> None:
        self._cluster = cluster
        self._names = deque(subject.name for subject in subjects)
        self._observers = observers

    def is_reached(self) -> bool:
        tables = self._cluster.tables(self._observers)
        names = self._names
        for _ in range(len(names)):
            name = names[0]
            for table in tables:
                node = table.get(name)
                if node is None or node.state != STATE_ALIVE:
                    return False
            names.rotate(-1)
        return True


def states_of(name: str, tables: list[dict[str, Node]]) -> list[int]:
    """The state of one node in each of the tables; STATE_DEAD where it is unknown."""
    found = [table.get(name) for table in tables]
    return [STATE_DEAD if node is None else node.state for node in found]
