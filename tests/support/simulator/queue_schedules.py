"""Named schedules of federated queues: consumers of several domains come and go, with faults of the network and without."""

from __future__ import annotations

from itertools import permutations
from random import Random
from typing import Final

from simulator.domains import Edge
from simulator.queue_domains import QueueDomains

COMPLETE: Final = tuple(Edge(downstream, upstream) for downstream, upstream in permutations("abc", 2))
ONE_WAY: Final = (Edge("b", "a"), Edge("c", "a"))


def queue_of_peers(seed: int) -> None:
    """Three domains that are all upstreams of each other. Nothing fails."""
    domains = QueueDomains(seed, COMPLETE)
    for name in domains.names:
        domains.come(name)
    domains.run(60.0, 10.0, 0.5)
    domains.check(domains.rng.choice(domains.names))
    domains.world.check(domains.moved() > 0, "jobs move to where consumers are")


def queue_of_one_upstream(seed: int) -> None:
    """Jobs go from one domain to two others; what is published in those stays there."""
    domains = QueueDomains(seed, ONE_WAY)
    for name in domains.names:
        domains.come(name)
    domains.run(30.0, 5.0)
    for name in domains.names:  # jobs of `b` and `c` are done before their consumers leave
        while any(not worker.is_free() for _, worker in domains.all_workers(name)):
            domains.run(0.1, 0.0)
    for node, worker in domains.all_workers("a"):
        domains.leave(node, worker)
    for _ in range(20):
        domains.publish("a")
    domains.run(30.0, 0.0)
    found = domains.difference()
    domains.world.check(not found, found)
    domains.world.check(domains.moved() >= 20, f"{domains.moved()} jobs moved")


def queue_with_faults(seed: int) -> None:
    """Streams break, nodes stand still, domains are cut off, while consumers come and go: nothing is lost or done twice."""
    domains = QueueDomains(seed, COMPLETE)
    rng = Random(f"faults {seed}")
    _with_faults(domains, rng, 40.0)
    domains.check(rng.choice(domains.names))


def queue_of_clusters_with_faults(seed: int) -> None:
    """As `queue_with_faults`, but a node of a cluster that is taken for failed may do a job that another one does, too. A
    consumer that is free is none for another node of its cluster that does not reach it."""
    rng = Random(f"faults of clusters {seed}")
    domains = QueueDomains(seed, COMPLETE, {name: rng.randrange(1, 3) for name in "abc"})
    domains.at_home_min = 0.0
    domains.may_repeat = True
    _with_faults(domains, rng, 40.0)
    domains.check(rng.choice(domains.names))


def _with_faults(domains: QueueDomains, rng: Random, still_max: float) -> None:
    """`still_max`: longest time that a node stands still."""
    world = domains.world
    hosts = list(domains.hosts.values())
    for name in domains.names:
        domains.come(name)
    for _ in range(6):
        domains.run(rng.random() * 8.0, 10.0, 0.5)
        match rng.randrange(4):
            case 0:
                host, other = rng.sample(hosts, 2)
                world.break_streams(host, other, rng.choice(([host, other], [host], [other], [])))
            case 1:
                host = rng.choice(hosts)
                if not host.is_still:
                    host.stand_still(rng.choice((0.5, 5.0, still_max)) * (0.5 + rng.random()))
            case 2:
                world.partition(rng.sample(hosts, rng.randrange(1, len(hosts))))
            case _:
                world.heal()
    world.heal()
    domains.run(100.0, 2.0, 0.5)


def queue_links_break(seed: int) -> None:
    """All jobs move, and the connections that they move on break again and again: none is lost or done twice."""
    domains = QueueDomains(seed, ONE_WAY)
    upstream, *others = domains.hosts.values()
    for name in ("b", "c", "c"):
        domains.come(name, 10)
    for _ in range(30):
        for _ in range(20):
            domains.publish("a")
        domains.run(domains.rng.random() * 0.1, 0.0)
        other = domains.rng.choice(others)
        domains.world.break_streams(upstream, other, domains.rng.choice(([upstream, other], [upstream], [other])))
        domains.run(domains.rng.random() * 3.0, 0.0)
    domains.check("b", "c")


def queue_of_clusters(seed: int) -> None:
    """Some domains are clusters: every node has a queue and links of its own. What waits on a node moves to a node of the
    cluster with a consumer, or to another domain."""
    rng = Random(f"clusters {seed}")
    domains = QueueDomains(seed, COMPLETE, {"a": 3, "b": rng.randrange(1, 4), "c": rng.randrange(1, 4)})
    for _ in range(20):
        domains.publish("a")
    domains.come("a", 3)
    domains.run(20.0, 0.0)
    found = domains.difference()
    domains.world.check(not found and domains.moved() == 0, f"jobs of the first consumer: {found}")
    for name in domains.names:
        domains.come(name)
    for _ in range(4):
        domains.run(10.0, 8.0, 0.5)
        domains.rest()
    domains.check(rng.choice(domains.names))


def queue_of_one_cluster(seed: int) -> None:
    """Consumers of one cluster come and go: its nodes have one queue, as far as consumers can see."""
    domains = QueueDomains(seed, (), {"a": Random(f"nodes {seed}").randrange(2, 6)})
    domains.come("a")
    for _ in range(8):
        domains.run(6.0, 12.0, 1.0)
        domains.rest()
    for node, worker in domains.all_workers("a"):
        if not worker.is_leaving:
            domains.leave(node, worker)
    for _ in range(20):
        domains.publish("a")
    domains.check("a")
    domains.world.check(domains.jobs_sent() > 0, "jobs move to where consumers are")


def queue_of_one_cluster_with_faults(seed: int) -> None:
    """Streams break, nodes stand still and are cut off for less than a node may be away: nothing is lost; what was with a
    node that is taken for failed may be done twice."""
    domains = QueueDomains(seed, (), {"a": 4})
    domains.may_repeat = True
    _with_faults(domains, Random(f"faults {seed}"), 10.0)
    domains.rest()
    domains.check("a")


def queue_nodes_die(seed: int) -> None:
    """Nodes with stores are killed with their consumers and come back: no job that was acknowledged is lost."""
    rng = Random(f"kills {seed}")
    sizes = {"a": rng.randrange(1, 3), "b": rng.randrange(1, 3)}
    domains = QueueDomains(seed, rng.choice((COMPLETE, ONE_WAY)), sizes, has_stores=True)
    for name in domains.names:
        domains.come(name)
    for _ in range(8):
        domains.run(rng.random() * 4.0, 10.0, 1.0)
        node, host = rng.choice(list(domains.hosts.items()))
        if host.process is None:
            domains.start(node)
            continue
        domains.kill(node)
        if rng.random() < 0.5:
            domains.run(rng.random() * 0.5, 10.0)
            domains.start(node)
    for node, host in domains.hosts.items():
        if host.process is None:
            domains.start(node)
    domains.run(60.0, 2.0, 0.5)
    domains.check(*domains.names)


def queue_definitions_change(seed: int) -> None:
    """Upstreams come and go while jobs move: none is lost or done twice."""
    rng = Random(f"changes {seed}")
    domains = QueueDomains(seed, COMPLETE, {"a": rng.randrange(1, 3)})
    for name in domains.names:
        domains.come(name)
    for _ in range(6):
        domains.run(rng.random() * 4.0, 10.0, 1.0)
        domains.define(rng.sample(COMPLETE, rng.randrange(len(COMPLETE))))
    domains.run(5.0, 5.0)
    domains.define(COMPLETE)
    domains.run(20.0, 5.0)
    domains.check(*domains.names)


QUEUE_SCHEDULES: Final = (
    queue_of_peers,
    queue_of_one_upstream,
    queue_with_faults,
    queue_links_break,
    queue_of_clusters,
    queue_of_one_cluster,
    queue_of_one_cluster_with_faults,
    queue_of_clusters_with_faults,
    queue_nodes_die,
    queue_definitions_change,
)
