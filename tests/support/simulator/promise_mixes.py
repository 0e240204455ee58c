"""Schedules for nodes with stores beside others, and for sessions that begin while nodes are down."""

from __future__ import annotations

from random import Random
from typing import Final

from broker.counters import DROP_GROUP_GONE
from simulator.durable_station import a_filter
from simulator.promise_steps import check, short_or_long, some_die
from simulator.promises import Promises

CLOCK_ERROR_MAX: Final = 300.0


def plain_nodes_beside(seed: int) -> None:
    """A minority has no store. Nothing is promised there, all else is."""
    promises = Promises(seed, 5, plain=frozenset((4, 5)))
    some_die(promises, 3)
    check(promises)


def disks_are_replaced(seed: int) -> None:
    """A node returns under its name with an empty disk, and takes part as one that knows nothing. What was chosen for a member
    of a group there has nobody to go to."""
    promises = Promises(seed, 4)
    for _ in range(2):
        promises.run(promises.rng.random() * 3.0, 30.0)
        victim = promises.rng.choice(promises.federation.hosts)
        promises.kill(victim)
        promises.replace_disk(victim)
        promises.run(short_or_long(promises) / 2, 10.0)
        promises.start(victim)
        promises.run(promises.rng.random() * 3.0, 30.0)
    check(promises, frozenset((DROP_GROUP_GONE,)))


def clocks_are_apart(seed: int) -> None:
    """The clocks of nodes that die are minutes apart."""
    rng = Random(f"clocks {seed}")
    promises = Promises(seed, 4, clock_errors=tuple(rng.uniform(-CLOCK_ERROR_MAX, CLOCK_ERROR_MAX) for _ in range(4)))
    some_die(promises, 2)
    check(promises)


def older_nodes_beside(seed: int) -> None:
    """A node reads what the version before reads. Nothing is promised there, all else is."""
    promises = Promises(seed, 4, older=frozenset((4,)))
    some_die(promises, 3)
    check(promises)


def subscribers_come_while_a_node_is_down(seed: int) -> None:
    """It publishes for them as soon as it has started, with its disk or with an empty one."""
    promises = Promises(seed, 3)
    for turn in range(2):
        promises.run(promises.rng.random() * 2.0, 20.0)
        absent, *others = promises.rng.sample(promises.federation.hosts, 3)
        promises.kill(absent)
        if promises.rng.random() < 0.3:
            promises.replace_disk(absent)
        promises.run(short_or_long(promises) / 3, 10.0)
        for host in others:
            promises.come(host, f"late {turn}", a_filter(promises.rng))
        promises.start(absent)
        promises.run(promises.rng.random() * 8.0, 40.0)
    check(promises)


def subscribers_come_before_a_power_cut(seed: int) -> None:
    """The other nodes publish for them before their node is back."""
    promises = Promises(seed, 3)
    for turn in range(2):
        promises.run(promises.rng.random() * 2.0, 20.0)
        last, *others = promises.rng.sample(promises.federation.hosts, 3)
        promises.come(last, f"late {turn}", a_filter(promises.rng))
        promises.run(promises.rng.choice((0.0, 0.1, 2.0)) * promises.rng.random(), 40.0)
        for host in promises.federation.hosts:
            promises.kill(host)
        for host in (*others, last):
            promises.run(promises.rng.choice((0.1, 2.0, 20.0)) * promises.rng.random(), 20.0)
            promises.start(host)
        promises.run(promises.rng.random() * 2.0, 20.0)
    check(promises)
