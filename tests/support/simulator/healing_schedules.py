"""What Serf does not mend by itself: splits in which the only seed is lost, leaves, moves to another address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from federation.serf.events import MemberStatus
from simulator.federation import RETURN_LIMIT, Federation
from simulator.serf_process import GOSSIP_PORT
from simulator.world import Host

MOVE_LIMIT: Final = 15.0
"""Seconds from the start at another address until all know it there: an attempt to join each 5 s, and packets that get lost."""
CUT_LIMIT: Final = 90.0
"""Seconds until a node that is almost alone has taken all others for failed: it probes ever more slowly."""


def split_loses_its_seeds(seed: int) -> None:
    """The seed of all is lost for good while they are cut from each other. Who is left dials members that have failed."""
    federation = Federation(seed, 5)
    hosts = federation.hosts
    rng = federation.rng
    here = [hosts[0], rng.choice(hosts[1:])]
    there = [host for host in hosts if host not in here]
    federation.world.partition(here, there)
    for host in there:
        until_cut_off(federation, host, here)
    federation.run(rng.random() * 100.0)
    hosts[0].crash()
    federation.run(rng.random() * 40.0)
    federation.world.heal()
    federation.interest_changes(6)
    federation.until_agreement(RETURN_LIMIT, "a split in which the seeds were lost")


def shattered(seed: int) -> None:
    """Each node is alone for minutes."""
    federation = Federation(seed, 4)
    federation.world.partition(*([host] for host in federation.hosts))
    for host in federation.hosts:
        until_cut_off(federation, host, [other for other in federation.hosts if other is not host])
    federation.run(60.0 + federation.rng.random() * 200.0)
    federation.world.heal()
    federation.interest_changes(6)
    federation.until_agreement(RETURN_LIMIT, "a split into single nodes")


def moves_at_once(seed: int) -> None:
    """A node that was taken for failed comes back at another address, and all know it there without a wait."""
    federation = Federation(seed, 4)
    victim = federation.rng.choice(federation.hosts[1:])
    name = federation.node(victim).name
    victim.crash()
    federation.until_failed(name)
    federation.run(federation.rng.random() * 10.0)
    moved = federation.add(101, name, [1])
    federation.hosts.append(moved)
    moved.start()

    def all_know() -> bool:
        for host in federation.running:
            member = federation.node(host).serf.member(name)
            if member is None or member.status != MemberStatus.ALIVE or member.ip != moved.ip:
                return False
        return True

    federation.world.run_until(all_know, MOVE_LIMIT, f"all know {name} at its other address")
    federation.interest_changes(6)
    federation.until_agreement(RETURN_LIMIT, "a move to another address")


def leaves_and_joins_a_split(seed: int) -> None:
    """A node leaves one side of a split, joins it again without a restart, and is a member for both sides when it heals."""
    federation = Federation(seed, 5)
    leaver, *rest = federation.rng.sample(federation.hosts, 5)
    federation.world.partition([leaver, rest[0]], rest[1:])
    for host in rest[1:]:
        until_cut_off(federation, host, [leaver, rest[0]])
    federation.do(leaver, lambda node, now: node.leave(now))
    federation.run(5.0 + federation.rng.random() * 5.0)
    federation.do(leaver, lambda node, now: node.join([(rest[0].ip, GOSSIP_PORT)], now))
    federation.run(federation.rng.random() * 60.0)
    federation.world.heal()
    federation.interest_changes(6)
    federation.until_agreement(RETURN_LIMIT, "a leave and a join within a split")


def until_cut_off(federation: Federation, host: Host, others: list[Host]) -> None:
    """The others hold the node of this host for failed."""
    name = federation.node(host).name

    def all_know() -> bool:
        for other in others:
            member = federation.node(other).serf.member(name)
            if member is None or member.status != MemberStatus.FAILED:
                return False
        return True

    federation.world.run_until(all_know, CUT_LIMIT, f"{len(others)} nodes know that {name} is cut off")


HEALING_SCHEDULES: Final[tuple[Callable[[int], None], ...]] = (
    split_loses_its_seeds,
    shattered,
    moves_at_once,
    leaves_and_joins_a_split,
)
