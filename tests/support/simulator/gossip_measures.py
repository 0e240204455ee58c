"""What a cluster of N nodes costs, and how fast it learns: the figures of SWIM's and Lifeguard's papers, measured in virtual
time."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from statistics import mean
from typing import Final

from federation.gossip.config import LAN, GossipConfig
from federation.gossip.members import STATE_DEAD, STATE_SUSPECT
from federation.gossip.suspicion import suspicion_timeout
from simulator.gossip_cluster import Agreement, Cluster, states_of
from simulator.network import Faults
from simulator.world import Host

POLL: Final = 0.1
"""Seconds of virtual time between two looks at what the nodes think: the resolution of all times here."""
QUIET_SECONDS: Final = 10.0
CRASHES_MAX: Final = 10
CUT_OFF_MAX: Final = 10
CUT_SECONDS: Final = 30.0
CHURN_SECONDS: Final = 60.0
RETURN_AFTER: Final = 20.0
"""Seconds from a crash of the churn to the return of that node."""

SWIM: Final = GossipConfig(awareness_max_multiplier=1, suspicion_max_timeout_mult=1)
"""Without what Lifeguard adds: probes never slow down, and a suspicion ends after the shortest time however few confirm it.
Lifeguard's third part, the accusation beside the ping of a suspect, stays."""


@dataclass(slots=True)
class Crash:
    """Seconds from the crash of one node to the first suspicion, the first node that holds it for failed, and the last."""

    suspected: float = 0.0
    first: float = 0.0
    last: float = 0.0


@dataclass(slots=True)
class Measures:
    """Of one cluster. Times in virtual seconds; packets and bytes for each node and second, while nothing happens.

    joined       until all know a node that joined, and it knows all
    healed       from the end of a partition until all hold all for alive
    false        times that a node took a living one for failed, all phases but the partition together
    cpu, memory  seconds and MiB (the peak of this process so far) that the simulation took
    """

    nodes: int
    packets: float = 0.0
    packet_bytes: float = 0.0
    stream_bytes: float = 0.0
    crashes: list[Crash] = field(default_factory=list)
    joined: float = 0.0
    cut_off: int = 0
    healed: float = 0.0
    churned: int = 0
    false: int = 0
    simulated: float = 0.0
    cpu: float = 0.0
    memory: float = 0.0

    def suspected(self) -> float:
        return mean(crash.suspected for crash in self.crashes)

    def first(self) -> float:
        return mean(crash.first for crash in self.crashes)

    def last(self) -> float:
        return mean(crash.last for crash in self.crashes)


def measure(
    nodes: int, seed: int, loss: float, churn: float, is_cut: bool = True, crashes: int = CRASHES_MAX
) -> Measures:
    """One cluster through all phases. `loss`: probability for each packet; `churn`: crashes (and returns) a minute; `is_cut`:
    the last phase, the longest one, is a partition; `crashes`: of how many nodes, a tenth of all at most.

    AssertionError with the seed and the virtual time when a rule is broken or a time limit passes.
    """
    began = time.process_time()
    measures = Measures(nodes)
    with closing(Cluster(seed, nodes, Faults(loss=loss, delay_min=0.0005, delay_max=0.005))) as cluster:
        _stay_quiet(cluster, measures)
        _crash(cluster, measures, crashes)
        _join(cluster, measures)
        if churn > 0:
            _churn(cluster, measures, churn)
        measures.false = cluster.false_failures
        if is_cut:
            _cut(cluster, measures)
        cluster.check_all()
        measures.simulated = cluster.world.now
    measures.cpu = time.process_time() - began
    measures.memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return measures


def _stay_quiet(cluster: Cluster, measures: Measures) -> None:
    world = cluster.world
    world.run(QUIET_SECONDS)
    share = len(cluster.hosts) * QUIET_SECONDS
    measures.packets = world.packets_sent / share
    measures.packet_bytes = world.packet_bytes / share
    measures.stream_bytes = world.stream_bytes / share


def _crash(cluster: Cluster, measures: Measures, count: int) -> None:
    """Some nodes crash, a second one after the other."""
    world = cluster.world
    victims = world.schedule_rng.sample(cluster.hosts[1:], min(count, max(1, len(cluster.hosts) // 10)))
    crashes = {victim.name: (victim, world.now + number, Crash()) for number, victim in enumerate(victims)}
    for victim, at, _ in crashes.values():
        world.at(at, lambda victim=victim: cluster.crash(victim))  # type: ignore[misc]
    limit = world.now + len(victims) + crash_limit(len(cluster.hosts))
    waiting = dict(crashes)
    while waiting:
        world.run(POLL)
        world.check(world.now < limit, f"{sorted(waiting)} crashed, and not all have noticed")
        tables = cluster.tables(cluster.living())
        for name, (victim, at, crash) in list(waiting.items()):
            if victim.process is None:
                states = states_of(name, tables)
                if not crash.suspected and max(states) >= STATE_SUSPECT:
                    crash.suspected = world.now - at
                if not crash.first and max(states) >= STATE_DEAD:
                    crash.first = world.now - at
                if min(states) >= STATE_DEAD:
                    crash.last = world.now - at
                    del waiting[name]
    measures.crashes = [crash for _, _, crash in crashes.values()]


def crash_limit(nodes: int) -> float:
    """Seconds by which everybody must have noticed a crash: the longest suspicion, and as long again for the probes before it
    and the gossip after it."""
    return 2 * suspicion_timeout(LAN.suspicion_mult, nodes, LAN.probe_interval) * LAN.suspicion_max_timeout_mult


def _join(cluster: Cluster, measures: Measures) -> None:
    known = cluster.living()
    comer = cluster.add_host()
    cluster.start(comer)
    measures.joined = _until(
        cluster, lambda: cluster.all_hold_alive([comer], known) and cluster.all_hold_alive(known, [comer]), "a join"
    )


def _churn(cluster: Cluster, measures: Measures, churn: float) -> None:
    world = cluster.world
    rng = world.schedule_rng
    measures.churned = round(churn * CHURN_SECONDS / 60)
    began = world.now

    def crash(host: Host) -> None:
        if host.process is not None:
            cluster.crash(host)
            world.at(world.now + RETURN_AFTER, lambda: cluster.start(host))

    for host in rng.sample(cluster.living()[1:], measures.churned):
        world.at(began + rng.random() * CHURN_SECONDS, lambda host=host: crash(host))  # type: ignore[misc]
    world.run(CHURN_SECONDS + RETURN_AFTER)
    living = cluster.living()
    _until(cluster, Agreement(cluster, living, living).is_reached, "the end of the churn")


def _cut(cluster: Cluster, measures: Measures) -> None:
    """A few nodes are cut off from the others, and come back."""
    world = cluster.world
    living = cluster.living()
    measures.cut_off = min(CUT_OFF_MAX, len(living) // 4)
    world.partition(world.schedule_rng.sample(living[1:], measures.cut_off))
    world.run(CUT_SECONDS)
    world.heal()
    measures.healed = _until(cluster, Agreement(cluster, living, living).is_reached, "the end of a partition")


def _until(cluster: Cluster, condition: Callable[[], bool], what: str) -> float:
    return cluster.world.run_until(condition, 600.0, what)


def slow_nodes(profile: GossipConfig, seed: int, nodes: int, slow: int, seconds: float) -> int:
    """How often a healthy node was taken for failed while `slow` others process no messages for `seconds`, again and again
    for two minutes, with a moment of work between, and their timers run: Lifeguard's experiment."""
    with closing(Cluster(seed, nodes, profile=profile)) as cluster:
        world = cluster.world
        for host in world.schedule_rng.sample(cluster.hosts, slow):
            cluster.impaired.add(host.name)
            at = world.schedule_rng.random() * seconds
            while at < 120.0:
                world.at(at, lambda host=host: host.hold_messages(seconds))  # type: ignore[misc]
                at += seconds + 0.064
        world.run(120.0)
        return cluster.false_failures
