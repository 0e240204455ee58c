"""Schedules for nodes with stores: what they live through, and what is promised all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from federation.stream.counters import DropReason
from simulator.promise_mixes import (
    clocks_are_apart,
    disks_are_replaced,
    older_nodes_beside,
    plain_nodes_beside,
    subscribers_come_before_a_power_cut,
    subscribers_come_while_a_node_is_down,
)
from simulator.promise_steps import check, pair, short_or_long, some
from simulator.promises import Promises

BOUNDS: Final[frozenset[str]] = frozenset((DropReason.OUTBOX_FULL, DropReason.OUTBOX_AGE, DropReason.PEER_GONE))
"""The stated bounds of outboxes: what they cost is counted."""


def one_node_dies(seed: int) -> None:
    """It comes back after at most a minute; the others go on."""
    promises = Promises(seed, 3)
    for _ in range(3):
        promises.run(promises.rng.random() * 2.0, 30.0)
        victim = promises.rng.choice(promises.federation.hosts)
        promises.kill(victim)
        promises.run(short_or_long(promises), 10.0)
        promises.start(victim)
    promises.run(promises.rng.random() * 2.0, 30.0)
    check(promises)


def several_nodes_die(seed: int) -> None:
    """They are down at the same time, and come back one after the other."""
    promises = Promises(seed, 5)
    for _ in range(2):
        promises.run(promises.rng.random() * 3.0, 40.0)
        for victim in some(promises, promises.federation.hosts):
            promises.kill(victim)
            promises.run(promises.rng.random() * 0.2, 40.0)
        down = [host for host in promises.federation.hosts if host.process is None]
        promises.rng.shuffle(down)
        for victim in down:
            promises.run(short_or_long(promises) / 2, 10.0)
            promises.start(victim)
    promises.run(promises.rng.random() * 2.0, 30.0)
    check(promises)


def power_cuts(seed: int) -> None:
    """All nodes die at once, and come back in any order."""
    promises = Promises(seed, 4)
    hosts = promises.federation.hosts
    for _ in range(3):
        promises.run(promises.rng.random() * 3.0, 50.0)
        for host in hosts:
            promises.kill(host)
        for host in promises.rng.sample(hosts, len(hosts)):
            promises.federation.run(promises.rng.choice((0.0, 0.5, 10.0)) * promises.rng.random())
            promises.start(host)
    promises.run(promises.rng.random() * 2.0, 30.0)
    check(promises)


def nodes_die_while_cut_off(seed: int) -> None:
    """What was acknowledged for the other side of the cut is in the store of a node that dies then."""
    promises = Promises(seed, 4)
    for _ in range(2):
        promises.world.partition(some(promises, promises.federation.hosts[1:]))
        promises.run(1.0 + short_or_long(promises), 15.0)
        for victim in some(promises, promises.federation.hosts):
            promises.kill(victim)
        promises.run(promises.rng.random() * 10.0, 15.0)
        if promises.rng.random() < 0.5:
            promises.world.heal()
        for host in promises.federation.hosts:
            promises.start(host)
        promises.run(promises.rng.random() * 20.0, 15.0)
        promises.world.heal()
        promises.run(promises.rng.random() * 10.0, 15.0)
    check(promises)


def streams_break_between_stores(seed: int) -> None:
    """Streams end, stand still, or bring bytes one way only, while acknowledgements of commits are due."""
    promises = Promises(seed, 4)
    for _ in range(6):
        promises.run(promises.rng.random() * 3.0, 60.0)
        first, second = pair(promises)
        fault = promises.rng.random()
        if fault < 0.5:
            promises.world.break_streams(first, second, promises.rng.choice(([first, second], [first], [second], [])))
        elif fault < 0.8:
            promises.world.cut_one_way([first], [second])
        else:
            promises.world.cut([first], [second])
        promises.run(short_or_long(promises) / 2, 15.0)
        promises.world.heal()
        if promises.rng.random() < 0.3:
            promises.kill(first)
            promises.run(promises.rng.random(), 30.0)
            promises.start(first)
    check(promises)


def hosts_with_stores_stand_still(seed: int) -> None:
    """For up to a minute, so that others take them for failed; some die as soon as they go on, or while they stand."""
    promises = Promises(seed, 4)
    for _ in range(4):
        promises.run(promises.rng.random() * 3.0, 40.0)
        host, other = pair(promises)
        if host.process is not None:
            host.stand_still(short_or_long(promises))
        promises.run(promises.rng.random() * 10.0, 20.0)
        victim = promises.rng.choice((host, other))
        if promises.rng.random() < 0.5:
            promises.kill(victim)
            promises.run(promises.rng.random() * 5.0, 20.0)
        promises.start(victim)
    check(promises)


def disks_are_slow(seed: int) -> None:
    """Commits take up to two seconds, on some nodes or on all; nodes die meanwhile."""
    promises = Promises(seed, 3)
    for _ in range(4):
        for host in promises.federation.hosts:
            disk = promises.stations[host].disk
            assert disk is not None
            disk.write_seconds_max = promises.rng.choice((0.0, 0.02, 0.2, 2.0))
        promises.run(promises.rng.random() * 6.0, 30.0)
        victim = promises.rng.choice(promises.federation.hosts)
        if promises.rng.random() < 0.6:
            promises.kill(victim)
            promises.run(short_or_long(promises) / 3, 15.0)
            promises.start(victim)
    check(promises)


def disks_are_full(seed: int) -> None:
    """A disk takes nothing for a while: nothing durable is acknowledged there, and what was stays."""
    promises = Promises(seed, 3)
    for _ in range(3):
        promises.run(promises.rng.random() * 3.0, 30.0)
        for host in some(promises, promises.federation.hosts):
            disk = promises.stations[host].disk
            assert disk is not None
            disk.is_full = True
        promises.run(promises.rng.choice((1.0, 10.0, 40.0)) * promises.rng.random(), 20.0)
        if promises.rng.random() < 0.4:
            victim = promises.rng.choice(promises.federation.hosts)
            promises.kill(victim)
            promises.run(promises.rng.random() * 5.0, 20.0)
            promises.start(victim)
        for station in promises.stations.values():
            assert station.disk is not None
            station.disk.is_full = False
    promises.run(2.0, 20.0)
    check(promises)


def nodes_are_absent(seed: int) -> None:
    """Some are down for minutes, within `outbox_age_max`, while those that keep their messages die as well."""
    promises = Promises(seed, 4, outbox_age_max=600.0)
    absent = promises.rng.sample(promises.federation.hosts, promises.rng.randint(1, 2))
    for host in absent:
        promises.kill(host)
    for _ in range(3):
        promises.run(10.0 + promises.rng.random() * 40.0, 5.0)
        victim = promises.rng.choice([host for host in promises.federation.hosts if host not in absent])
        promises.kill(victim)
        promises.run(short_or_long(promises) / 2, 5.0)
        promises.start(victim)
    for host in absent:
        promises.run(promises.rng.random() * 10.0, 10.0)
        promises.start(host)
    promises.run(2.0, 10.0)
    check(promises)


def absent_nodes_are_given_up(seed: int) -> None:
    """They are away for longer than `outbox_age_max`: what that costs is counted."""
    promises = Promises(seed, 3, outbox_age_max=15.0)
    host = promises.rng.choice(promises.federation.hosts)
    for _ in range(2):
        promises.run(promises.rng.random() * 3.0, 20.0)
        if promises.rng.random() < 0.5:
            promises.world.partition([host])
        else:
            promises.kill(host)
        promises.run(promises.rng.random() * 60.0, 8.0)
        promises.world.heal()
        promises.start(host)
        promises.run(promises.rng.random() * 20.0, 8.0)
    check(promises, BOUNDS)


def everything_fails(seed: int) -> None:
    """Three to seven nodes, all faults at once."""
    count = 3 + seed % 5
    promises = Promises(seed, count)
    hosts = promises.federation.hosts
    for _ in range(8):
        promises.run(promises.rng.random() * 4.0, 30.0)
        fault = promises.rng.randrange(9)
        host, other = pair(promises)
        disk = promises.stations[host].disk
        assert disk is not None
        if fault == 0:
            promises.kill(host)
        elif fault == 1:
            for victim in some(promises, hosts):
                promises.kill(victim)
        elif fault == 2:
            promises.world.partition(some(promises, hosts))
        elif fault == 3:
            promises.world.cut_one_way([host], some(promises, [each for each in hosts if each is not host]))
        elif fault == 4:
            promises.world.break_streams(host, other, promises.rng.choice(([host, other], [host], [])))
        elif fault == 5 and host.process is not None:
            host.stand_still(short_or_long(promises) / 2)
        elif fault == 6:
            disk.write_seconds_max = promises.rng.choice((0.0, 0.02, 0.5, 2.0))
        elif fault == 7:
            disk.is_full = not disk.is_full
        else:
            promises.world.heal()
        if promises.rng.random() < 0.6:
            for each in some(promises, hosts):
                promises.start(each)
        promises.run(short_or_long(promises) / 4, 15.0)
    check(promises)


PROMISE_SCHEDULES: Final[tuple[Callable[[int], None], ...]] = (
    one_node_dies,
    several_nodes_die,
    power_cuts,
    nodes_die_while_cut_off,
    streams_break_between_stores,
    hosts_with_stores_stand_still,
    disks_are_slow,
    disks_are_full,
    nodes_are_absent,
    absent_nodes_are_given_up,
    plain_nodes_beside,
    disks_are_replaced,
    clocks_are_apart,
    older_nodes_beside,
    subscribers_come_while_a_node_is_down,
    subscribers_come_before_a_power_cut,
    everything_fails,
)
