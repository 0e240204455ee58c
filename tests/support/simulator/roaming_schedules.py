"""Schedules for clients that move between nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from simulator.promise_steps import pair, short_or_long, some
from simulator.roaming import Roaming, check_roaming


def clients_move(seed: int) -> None:
    """All nodes run: no client begins anew, nothing is repeated with QoS 2, and the order holds."""
    roaming = Roaming(seed, 3 + seed % 3)
    roaming.run(20.0, 30.0)
    check_roaming(roaming)
    roaming.world.check(roaming.moves > 20, f"{roaming.moves} moves")


def clients_move_without_stores(seed: int) -> None:
    """Some nodes have no store."""
    roaming = Roaming(seed, 5, plain=frozenset((4, 5)))
    roaming.run(15.0, 30.0)
    check_roaming(roaming)


def clients_move_while_nodes_die(seed: int) -> None:
    """Sessions on a node that is down follow when it is back."""
    roaming = Roaming(seed, 4, is_rough=True)
    for _ in range(3):
        roaming.run(roaming.rng.random() * 4.0, 30.0)
        for victim in some(roaming, roaming.federation.hosts[1:]):
            roaming.kill(victim)
        roaming.run(short_or_long(roaming) / 2, 15.0)
        for host in roaming.federation.hosts:
            roaming.start(host)
    roaming.run(roaming.rng.random() * 4.0, 30.0)
    check_roaming(roaming)


def clients_move_between_the_sides_of_a_cut(seed: int) -> None:
    """Both sides serve; after the cut there is one session."""
    roaming = Roaming(seed, 4, is_rough=True)
    for _ in range(2):
        roaming.run(roaming.rng.random() * 4.0, 30.0)
        roaming.world.partition(some(roaming, roaming.federation.hosts[1:]))
        roaming.run(1.0 + short_or_long(roaming), 15.0)
        roaming.world.heal()
    roaming.run(roaming.rng.random() * 4.0, 30.0)
    check_roaming(roaming)


def streams_break_while_clients_move(seed: int) -> None:
    """Streams end, stand still, or bring bytes one way only; hosts stand still, and die."""
    roaming = Roaming(seed, 4, is_rough=True)
    for _ in range(5):
        roaming.run(roaming.rng.random() * 3.0, 30.0)
        first, second = pair(roaming)
        fault = roaming.rng.random()
        if fault < 0.3:
            roaming.world.break_streams(first, second, roaming.rng.choice(([first, second], [first], [])))
        elif fault < 0.5:
            roaming.world.cut_one_way([first], [second])
        elif fault < 0.7:
            roaming.world.cut([first], [second])
        elif first.process is not None:
            first.stand_still(short_or_long(roaming) / 2)
        roaming.run(short_or_long(roaming) / 2, 15.0)
        roaming.world.heal()
        if roaming.rng.random() < 0.3:
            roaming.kill(first)
            roaming.run(roaming.rng.random(), 20.0)
        roaming.start(first)
    check_roaming(roaming)


ROAMING_SCHEDULES: Final[tuple[Callable[[int], None], ...]] = (
    clients_move,
    clients_move_without_stores,
    clients_move_while_nodes_die,
    clients_move_between_the_sides_of_a_cut,
    streams_break_while_clients_move,
)
