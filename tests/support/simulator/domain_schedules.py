"""Named schedules of domains: the topologies of RabbitMQ's guides and random ones, without faults and with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, permutations
from random import Random
from typing import Final

from simulator.domains import Domains, Edge


def both_ways(first: str, second: str, max_hops: int) -> list[Edge]:
    return [Edge(first, second, max_hops), Edge(second, first, max_hops)]


def pair() -> list[Edge]:
    return both_ways("a", "b", 1)


def chain() -> list[Edge]:
    """A message goes one link far, though there is another one."""
    return [Edge("b", "a", 1), Edge("c", "b", 1)]


def complete_graph() -> list[Edge]:
    return [Edge(downstream, upstream, 1) for downstream, upstream in permutations("abc", 2)]


def fan_out() -> list[Edge]:
    """Three levels downwards. The root needs no plugin."""
    return [Edge(downstream, upstream, 2) for upstream, downstream in ("ab", "ac", "bd", "be", "cf", "cg")]


def tree() -> list[Edge]:
    """Three levels, both ways."""
    return [edge for link in fan_out() for edge in both_ways(link.downstream, link.upstream, 4)]


def ring() -> list[Edge]:
    return [Edge(downstream, upstream, 5) for upstream, downstream in pairwise("abcdefa")]


def diamond() -> list[Edge]:
    return [Edge("b", "a", 2), Edge("c", "a", 2), Edge("d", "b", 2), Edge("d", "c", 2)]


def diamond_of_pushes() -> list[Edge]:
    return [Edge(edge.downstream, edge.upstream, edge.max_hops, is_push=True) for edge in diamond()]


def pulled_and_pushed() -> list[Edge]:
    """A diamond whose second half pushes what the first one pulls."""
    return [Edge(edge.downstream, edge.upstream, edge.max_hops, edge.downstream == "d") for edge in diamond()]


TOPOLOGIES: Final[dict[str, Callable[[], list[Edge]]]] = {
    topology.__name__: topology
    for topology in (pair, chain, complete_graph, fan_out, tree, ring, diamond, diamond_of_pushes, pulled_and_pushed)
}
PLAIN: Final = {"fan_out": frozenset("a")}


def quiet(seed: int, topology: str) -> None:
    """Nothing fails: every message arrives once, and no filter is left after the last reader."""
    domains = Domains(seed, TOPOLOGIES[topology](), plain=PLAIN.get(topology, frozenset()))
    domains.run(5.0, 40.0)
    domains.check_messages()
    domains.check_no_filters()


def graph(rng: Random, count: int, links: int) -> list[Edge]:
    """A random graph in which every domain has a link. All links allow as many hops as a way can have."""
    names = [f"d{number}" for number in range(count)]
    found = {(name, rng.choice([other for other in names if other != name])) for name in names}
    while len(found) < min(links, count * (count - 1)):
        downstream, upstream = rng.sample(names, 2)
        found.add((downstream, upstream))
    return [Edge(downstream, upstream, count) for downstream, upstream in sorted(found)]


def faults(domains: Domains, times: int, rate: float) -> None:
    """Streams break, nodes stand still, domains are cut off, while messages are published."""
    world = domains.world
    hosts = list(world.hosts.values())
    for _ in range(times):
        domains.run(domains.rng.random() * 5.0, rate)
        match domains.rng.randrange(4):
            case 0:
                host, other = domains.rng.sample(hosts, 2)
                world.break_streams(host, other, domains.rng.choice(([host, other], [host], [other], [])))
            case 1:
                host = domains.rng.choice(hosts)
                if not host.is_still:
                    host.stand_still(domains.rng.choice((0.5, 5.0, 40.0)) * (0.5 + domains.rng.random()))
            case 2:
                world.partition(domains.rng.sample(hosts, domains.rng.randrange(1, len(hosts))))
            case _:
                world.heal()
    world.heal()
    domains.run(60.0, rate)
    domains.until_running("the faults")


def domains_with_faults(seed: int) -> None:
    """A small random graph whose network fails again and again."""
    rng = Random(f"graph {seed}")
    count = rng.randrange(2, 9)
    edges = graph(rng, count, count + rng.randrange(count))
    domains = Domains(seed, [replace(edge, is_push=rng.random() < 0.2) for edge in edges])
    faults(domains, 6, 4.0)
    domains.check_messages()
    domains.check_no_filters()


def hops_end(seed: int) -> None:
    """Links allow few hops, each another number, and some push: messages reach the domains that these allow, and no other. Of
    several ways between two domains the shorter ones may allow more, and often the copy that comes first took a longer one. One
    domain is a cluster, whose nodes run links to several others."""
    rng = Random(f"hops {seed}")
    count = rng.randrange(3, 12)
    edges = [
        Edge(edge.downstream, edge.upstream, rng.randrange(1, 4), rng.random() < 0.2)
        for edge in graph(rng, count, 2 * count)
    ]
    domains = Domains(seed, edges, {f"d{rng.randrange(count)}": 3})
    domains.begin_reading(domains.names)
    domains.world.run(1.0)  # until the other nodes know
    domains.run(5.0, 40.0)
    domains.check_messages()
    domains.check_no_filters()


def fifty_domains(seed: int) -> None:
    domains = Domains(seed, graph(Random(f"graph {seed}"), 50, 75))
    faults(domains, 2, 4.0)
    domains.check_messages()


CLUSTERS: Final = (pair, complete_graph, diamond, lambda: [Edge("b", "a", 2), Edge("c", "b", 2)])


def clusters(seed: int) -> Domains:
    """Two to four domains of one to three nodes."""
    rng = Random(f"clusters {seed}")
    edges = rng.choice(CLUSTERS)()
    domains = Domains(seed, edges, {name: rng.randrange(1, 4) for name in "abcd"})
    domains.begin_reading(domains.names)
    domains.world.run(1.0)  # until the other nodes know
    return domains


def linked_clusters(seed: int) -> None:
    """Nothing fails: one node of each cluster runs a link, two ends of a diamond maybe on two nodes, and every message reaches
    two readers of each domain once."""
    domains = clusters(seed)
    domains.run(5.0, 40.0)
    domains.check_messages()
    domains.check_no_filters()


def two_owners(seed: int) -> None:
    """The halves of a cluster do not reach each other, while both reach the upstream: two nodes believe to run a link."""
    domains = clusters(seed)
    world = domains.world
    for _ in range(4):
        domains.run(domains.rng.random() * 5.0, 4.0)
        hosts = domains.hosts[domains.rng.choice(domains.names)]
        half = domains.rng.sample(hosts, len(hosts) // 2)
        world.cut(half, [host for host in hosts if host not in half])
        domains.run(domains.rng.random() * 40.0, 2.0)
        if domains.rng.random() < 0.7:
            world.heal()
    world.heal()
    domains.run(90.0, 2.0)
    domains.until_running("the splits")
    domains.check_messages()
    domains.check_no_filters()


def _quiet(topology: str) -> Callable[[int], None]:
    def schedule(seed: int) -> None:
        quiet(seed, topology)

    schedule.__name__ = f"domains_{topology}"
    schedule.__doc__ = quiet.__doc__
    return schedule


DOMAIN_SCHEDULES: Final = (
    *(_quiet(topology) for topology in TOPOLOGIES),
    domains_with_faults,
    hops_end,
    fifty_domains,
    linked_clusters,
    two_owners,
)
