"""Named schedules of domains whose nodes die and come back, and whose definitions change, while messages flow."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from simulator.domain_schedules import complete_graph, faults, graph, pair, ring, tree
from simulator.domains import Domains, Edge
from simulator.world import Host


def nodes_with_stores_die(seed: int) -> None:
    """Nodes of a random graph are killed and come back, streams break: with stores nothing that was acknowledged is lost."""
    rng = Random(f"kills {seed}")
    count = rng.randrange(2, 7)
    edges = [replace(edge, is_push=rng.random() < 0.2) for edge in graph(rng, count, count + rng.randrange(count))]
    domains = Domains(seed, edges, has_stores=True)
    domains.qos = (1, 2)
    _kill_again_and_again(domains, list(domains.world.hosts.values()), 8)
    domains.check_messages()
    domains.check_no_filters()


def owners_die(seed: int) -> None:
    """A cluster takes the messages of several domains. Those of its nodes that have no readers are killed and come back, also
    all at the same time."""
    rng = Random(f"owners {seed}")
    upstreams = "abc"[: rng.randrange(1, 4)]
    edges = [Edge("z", name) for name in upstreams]
    domains = Domains(seed, edges, {"z": rng.randrange(2, 5)}, has_stores=rng.random() < 0.5)
    domains.publishing = list(upstreams)
    domains.qos = (1, 2)
    _kill_again_and_again(domains, [host for host in domains.hosts["z"] if not domains.has_reader(host)], 8)
    domains.check_messages()
    domains.check_no_filters()


def _kill_again_and_again(domains: Domains, hosts: list[Host], times: int) -> None:
    """Kill some of these hosts, start them again after a while, break their streams, while messages are published."""
    world = domains.world
    rng = domains.rng
    for _ in range(times):
        domains.run(rng.random() * 4.0, 10.0)
        host = rng.choice(hosts)
        if host.process is None:
            domains.start(host)
        elif rng.random() < 0.7:
            domains.kill(host)
            if rng.random() < 0.5:
                domains.run(rng.random() * 0.5, 10.0)
                domains.start(host)
        else:
            other = rng.choice([other for other in world.hosts.values() if other is not host])
            world.break_streams(host, other, rng.choice(([host, other], [host], [other], [])))
    for host in hosts:
        if host.process is None:
            domains.start(host)
    domains.run(60.0, 4.0)
    domains.until_running("the kills")


def domains_with_names(seed: int) -> None:
    """Each domain names all topics in its own way, and the links of a random graph map them, some of clusters, some push."""
    rng = Random(f"names {seed}")
    count = rng.randrange(2, 10)
    edges = _limited(rng, graph(rng, count, count + rng.randrange(count)))
    domains = Domains(seed, edges, {f"d{rng.randrange(count)}": rng.randrange(1, 4)}, has_names=True)
    domains.begin_reading(domains.names)
    domains.world.run(1.0)
    domains.qos = (0, 1, 2)
    domains.run(5.0, 40.0)
    domains.check_messages()
    domains.check_no_filters()


def clusters_with_faults(seed: int) -> None:
    """A random graph of domains of one to three nodes whose network fails again and again. What is pushed while two nodes of a
    cluster believe to run a link is lost, so none is."""
    rng = Random(f"clusters {seed}")
    count = rng.randrange(2, 6)
    edges = [replace(edge, is_push=False) for edge in _limited(rng, graph(rng, count, count + rng.randrange(count)))]
    domains = Domains(seed, edges, {f"d{number}": rng.randrange(1, 4) for number in range(count)})
    faults(domains, 6, 4.0)
    domains.check_messages()
    domains.check_no_filters()


def definitions_change(seed: int) -> None:
    """Links come and go, allow other numbers of hops, and have other patterns, while messages flow. No session of a link that
    is gone stays, and no filter that a link does not want any more."""
    rng = Random(f"changes {seed}")
    count = rng.randrange(2, 8)
    edges = _limited(rng, graph(rng, count, count + rng.randrange(count)))
    sizes = {f"d{rng.randrange(count)}": 2} if rng.random() < 0.5 else {}
    domains = Domains(seed, edges, sizes)
    domains.begin_reading(domains.names)
    domains.qos = (0, 1, 2)
    for _ in range(4):
        domains.run(rng.random() * 3.0, 10.0)
        domains.begin_change(_changed(rng, domains))
        domains.run(rng.random() * 2.0, 10.0)
        domains.until_running("a change")
        domains.run(5.0, 5.0)
        domains.end_change()
        domains.check_filters()
    domains.run(3.0, 10.0)
    domains.check_messages()
    domains.check_no_filters()
    domains.check_sessions()


def _limited(rng: Random, edges: list[Edge]) -> list[Edge]:
    return [replace(edge, max_hops=rng.randrange(1, 4), is_push=rng.random() < 0.2) for edge in edges]


def _changed(rng: Random, domains: Domains) -> list[Edge]:
    """Some links fewer, some more, and some that allow other numbers of hops. Each domain keeps one."""
    edges = {(edge.downstream, edge.upstream): edge for edge in domains.edges}
    for _ in range(rng.randrange(1, 4)):
        downstream, upstream = rng.sample(domains.names, 2)
        edge = edges.pop((downstream, upstream), None)
        if edge is None:
            edges[downstream, upstream] = Edge(downstream, upstream, rng.randrange(1, 4), rng.random() < 0.2)
        elif rng.random() < 0.5:
            edges[downstream, upstream] = replace(edge, max_hops=rng.randrange(1, 4))
    return list(edges.values())


def retained_messages_of_domains(seed: int) -> None:
    """All domains change the same few retained messages while the network fails: in the end all have the newest ones. Where the
    clocks differ by seconds, all have the same ones."""
    rng = Random(f"retained {seed}")
    clock_error_max = rng.choice((0.0, 5.0))
    edges = rng.choice((pair, complete_graph, tree, ring))()
    names = sorted({edge.downstream for edge in edges})
    domains = Domains(
        seed,
        [replace(edge, max_hops=len(names)) for edge in edges],
        {rng.choice(names): rng.randrange(1, 3)},
        clock_error_max=clock_error_max,
    )
    hosts = list(domains.world.hosts.values())
    for _ in range(8):
        for _ in range(5):
            domains.world.run(0.1 + rng.random())
            domains.retain()
        if rng.random() < 0.5:
            domains.world.partition(rng.sample(hosts, rng.randrange(1, len(hosts))))
        elif rng.random() < 0.5:
            first, second = rng.sample(hosts, 2)
            domains.world.break_streams(first, second, [])
        else:
            domains.world.heal()
    domains.world.heal()
    domains.until_running("the faults")
    domains.check_retained()


CHANGE_SCHEDULES: Final = (
    nodes_with_stores_die,
    owners_die,
    domains_with_names,
    clusters_with_faults,
    definitions_change,
    retained_messages_of_domains,
)
