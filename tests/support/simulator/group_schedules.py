"""Schedules of shared groups: members that come and go, nodes that die with messages in flight, cuts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.routing.strategy import STRATEGIES
from simulator.groups import Groups
from simulator.promise_steps import short_or_long


def members_come_and_go(seed: int) -> None:
    """Streams break, nodes live: each group gets each message once."""
    groups = Groups(seed, 3 + seed % 2, plain=frozenset((2, 3)) if seed % 3 else frozenset())
    for _ in range(5):
        groups.run(2.0 * groups.rng.random(), 40.0)
        if groups.rng.random() < 0.5:
            first, second = groups.rng.sample(groups.federation.hosts, 2)
            groups.world.break_streams(first, second, groups.rng.choice(([first, second], [first], [second])))
    groups.check()


def nodes_of_members_die(seed: int) -> None:
    """With messages in flight; they come back at once, later, or not before the end."""
    groups = Groups(seed, 4, plain=(frozenset(), frozenset((2, 4)), frozenset((1, 2, 3, 4)))[seed % 3])
    for _ in range(3):
        groups.run(2.0 * groups.rng.random(), 40.0)
        victim = groups.rng.choice(groups.federation.hosts[1:])
        groups.kill(victim)
        groups.run(short_or_long(groups) / 2, 15.0)
        if groups.rng.random() < 0.7 and victim.process is None:
            victim.start()
    groups.run(groups.rng.random(), 40.0)
    groups.check()


def groups_are_cut(seed: int) -> None:
    """On both sides of a cut groups go on; a node that stands still is cut off, too."""
    groups = Groups(seed, 4, plain=frozenset((2,)))
    for _ in range(2):
        groups.run(2.0 * groups.rng.random(), 40.0)
        if groups.rng.random() < 0.6:
            groups.cut(
                groups.rng.sample(groups.federation.hosts, groups.rng.choice((1, 2))), short_or_long(groups), 15.0
            )
        else:
            began = groups.world.now
            host = groups.rng.choice(groups.federation.hosts)
            host.stand_still(short_or_long(groups) / 2)
            groups.run(host.still_until - began + 1.0, 15.0)
            groups.faults.append((began, host.still_until))
    groups.check()


def older_nodes_have_members(seed: int) -> None:
    """A node does not tell the end of copies; it gets those for which it is chosen as before."""
    groups = Groups(seed, 4, plain=frozenset((2,)), older=frozenset((3,)))
    for _ in range(3):
        groups.run(2.0 * groups.rng.random(), 40.0)
    groups.check()


def groups_over_grpc(seed: int) -> None:
    """No direct stream gets through from some moment on."""
    groups = Groups(seed, 3, plain=frozenset((2,)))
    for _ in range(3):
        groups.world.direct_block = "" if groups.rng.random() < 0.3 else "closed"
        first, second = groups.rng.sample(groups.federation.hosts, 2)
        groups.world.break_streams(first, second, [first, second])
        groups.run(2.0 * groups.rng.random(), 40.0)
    groups.check()


def strategies_of_groups(seed: int) -> None:
    """Members come and go, streams break, and a node dies: one copy with each strategy. When all are there again, each chooses
    whom it should."""
    strategy = STRATEGIES[1 + seed % (len(STRATEGIES) - 1)]
    is_plain = seed // 4 % 2 == 0
    mqtt = {"shared_subscription_strategy": strategy}
    groups = Groups(seed, 3 + seed // 8 % 2, plain=frozenset((2, 3)) if is_plain else frozenset(), mqtt=mqtt)
    for _ in range(3):
        groups.run(2.0 * groups.rng.random(), 40.0)
        first, second = groups.rng.sample(groups.federation.hosts, 2)
        groups.world.break_streams(first, second, [first, second])
    if groups.rng.random() < 0.7:
        victim = groups.rng.choice(groups.federation.hosts[1:])
        groups.kill(victim)
        groups.run(short_or_long(groups) / 2, 15.0)
        victim.start()
    groups.run(2.0 * groups.rng.random(), 40.0)
    groups.check()
    groups.check_strategy(strategy)


GROUP_SCHEDULES: Final[tuple[Callable[[int], None], ...]] = (
    members_come_and_go,
    nodes_of_members_die,
    groups_are_cut,
    older_nodes_have_members,
    groups_over_grpc,
    strategies_of_groups,
)
