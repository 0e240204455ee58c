"""Named schedules for whole federated nodes: what nodes live through, and what must hold everywhere afterwards.

Each is a function of the seed; it raises AssertionError with the seed and the virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from federation.serf.events import MemberStatus
from simulator.change_schedules import CHANGE_SCHEDULES
from simulator.copy_schedules import COPY_SCHEDULES
from simulator.cut_schedules import CUT_SCHEDULES
from simulator.definition_schedules import definitions_converge, one_clock_is_wrong
from simulator.domain_schedules import DOMAIN_SCHEDULES
from simulator.drain_schedules import DRAIN_SCHEDULES
from simulator.federation import RETURN_LIMIT, Federation
from simulator.group_schedules import GROUP_SCHEDULES
from simulator.healing_schedules import HEALING_SCHEDULES
from simulator.promise_schedules import PROMISE_SCHEDULES
from simulator.queue_schedules import QUEUE_SCHEDULES
from simulator.restart_schedules import RESTART_SCHEDULES
from simulator.retained_schedules import RETAINED_SCHEDULES
from simulator.roaming_schedules import ROAMING_SCHEDULES
from simulator.serf_process import GOSSIP_PORT
from simulator.traffic import TRAFFIC_SCHEDULES
from simulator.worker_schedules import WORKER_SCHEDULES


def kill_and_restart_at_once(seed: int) -> None:
    federation = Federation(seed, 4)
    victim = federation.rng.choice(federation.hosts)
    victim.crash()
    federation.run(federation.rng.random())
    victim.start()
    federation.interest_changes(6)
    federation.until_agreement(RETURN_LIMIT, "a restart within a second")


def kill_and_restart_later(seed: int) -> None:
    federation = Federation(seed, 4)
    victim = federation.rng.choice(federation.hosts)
    victim.crash()
    federation.interest_changes(6)
    federation.run(1.0 + federation.rng.random() * 39.0)
    victim.start()
    federation.interest_changes(6)
    federation.until_agreement(RETURN_LIMIT, "a restart after up to 40 s")


def return_at_another_address(seed: int) -> None:
    federation = Federation(seed, 4)
    victim = federation.rng.choice(federation.hosts[1:])
    name = federation.node(victim).name
    victim.crash()
    federation.run(federation.rng.random() * 60.0)
    moved = federation.add(101, name, [1])
    federation.hosts.append(moved)
    moved.start()
    federation.interest_changes(6)
    federation.run(0.5)
    federation.until_agreement(RETURN_LIMIT, "a return at another address")
    federation.world.check(moved.process is not None, "it returned for good")


def leave_and_restart(seed: int) -> None:
    """The process ends after its leave and is started again while the others list it as left; at the same address, also
    where it is the only seed, or at another one."""
    federation = Federation(seed, 4)
    victim = federation.rng.choice(federation.hosts)
    name = federation.node(victim).name
    federation.do(victim, lambda node, now: node.leave(now))
    federation.run(2.0 + federation.rng.random() * 3.0)
    victim.crash()
    federation.run(federation.rng.random() * 40.0)
    if victim is federation.hosts[0] or federation.rng.random() < 0.5:
        victim.start()
    else:
        moved = federation.add(101, name, [1])
        federation.hosts.append(moved)
        moved.start()
    federation.interest_changes(6)
    federation.until_agreement(RETURN_LIMIT, "a restart after a leave")


def leave_and_join(seed: int) -> None:
    """By the API, the process runs on."""
    federation = Federation(seed, 4)
    victim = federation.rng.choice(federation.hosts)
    others = [host for host in federation.hosts if host is not victim]
    for _ in range(3):
        federation.do(victim, lambda node, now: node.leave(now))
        federation.run(4.0 + federation.rng.random() * 4.0)
        federation.interest_changes(4)
        federation.until_agreement(30.0, "a leave by the API")
        federation.check_no_failure(federation.node(victim).name, others)
        seed_host = federation.rng.choice(others)
        target = (seed_host.ip, GOSSIP_PORT)
        federation.do(victim, lambda node, now, target=target: node.join([target], now))  # type: ignore[misc]
        federation.interest_changes(4)
        federation.until_agreement(RETURN_LIMIT, "a join by the API after a leave")


def stays_away_after_a_leave(seed: int) -> None:
    """A node with seeds that was told to leave stays away, even when the last other node disappears and returns."""
    federation = Federation(seed, 2)
    first, leaver = federation.hosts
    federation.do(leaver, lambda node, now: node.leave(now))
    federation.run(8.0)
    first.crash()
    federation.run(20.0)
    first.start()
    federation.run(60.0)
    federation.world.check(federation.node(leaver).node.has_left, "it came back by itself")
    federation.world.check(not federation.node(first).node.senders, "the other one took it back")


def join_one_that_joins(seed: int) -> None:
    """n2 is joining n1 while n3 joins n2, and n1 joins n3."""
    federation = Federation(seed, 1)
    federation.hosts += [federation.add(2), federation.add(3), federation.add(4)]
    for host in federation.hosts[1:]:
        host.start()
    hosts = federation.hosts
    for joiner, target in ((1, 0), (2, 1), (0, 2), (3, 2)):
        where = (hosts[target].ip, GOSSIP_PORT)
        federation.do(hosts[joiner], lambda node, now, where=where: node.join([where], now))  # type: ignore[misc]
        federation.run(federation.rng.random() * 0.002)
    federation.interest_changes(8)
    federation.until_agreement(RETURN_LIMIT, "joins across each other")


def force_leave_an_alive_node(seed: int) -> None:
    federation = Federation(seed, 5)
    accuser, victim = federation.rng.sample(federation.hosts, 2)
    name = federation.node(victim).name
    prune = federation.rng.random() < 0.5
    federation.do(accuser, lambda node, now: node.serf.force_leave(name, now, prune))
    federation.interest_changes(4)
    federation.run(1.0)
    federation.until_agreement(30.0, "a force-leave of a node that is alive")
    federation.run(30.0)
    federation.until_agreement(30.0, "a force-leave of a node that is alive, later")
    federation.check_no_failure(name, federation.running)


def force_leave_a_failed_node(seed: int) -> None:
    federation = Federation(seed, 4)
    accuser, victim = federation.rng.sample(federation.hosts, 2)
    name = federation.node(victim).name
    victim.crash()
    federation.until_failed(name)
    federation.do(accuser, lambda node, now: node.serf.force_leave(name, now))
    federation.run(10.0)
    for host in federation.running:
        member = federation.node(host).serf.member(name)
        federation.world.check(
            member is not None and member.status == MemberStatus.LEFT, f"{host.name} has {member} for {name}"
        )
        federation.world.check(name not in federation.node(host).node.senders, f"{host.name} keeps a stream for {name}")
    victim.start()
    federation.until_agreement(RETURN_LIMIT, "the return of one that was forced out")


def two_of_one_name(seed: int) -> None:
    """Two nodes with one name start at the same time, through different seeds: at most one of them stays."""
    federation = Federation(seed, 4)
    twins = [federation.add(101, "twin", [1]), federation.add(102, "twin", [2])]
    federation.hosts += twins
    for twin in twins:
        twin.start()
        federation.run(federation.rng.random() * 0.4)
    federation.run(60.0)
    alive = [twin for twin in twins if twin.process is not None]
    federation.world.check(len(alive) <= 1, "both live")
    if not alive:
        federation.until_failed("twin")
    else:
        federation.until_agreement(RETURN_LIMIT, "a fight for a name")


def newcomer_of_a_taken_name(seed: int) -> None:
    """The one that was there stays, and nobody takes it for gone at any moment."""
    federation = Federation(seed, 4)
    owner = federation.rng.choice(federation.hosts)
    twin = federation.add(101, federation.node(owner).name, [federation.rng.randrange(4) + 1])
    federation.hosts.append(twin)
    twin.start()
    federation.run(20.0)
    federation.world.check(twin.process is None, "the newcomer was refused")
    federation.world.check(owner.process is not None, "the owner of the name stayed")
    federation.until_agreement(RETURN_LIMIT, "a newcomer with a taken name")
    federation.check_no_failure(federation.node(owner).name, federation.running)


def split_and_heal(seed: int) -> None:
    """Two halves, each with a seed of its own, change their interest while apart."""
    federation = Federation(seed, 6, [1, 4])
    left, right = federation.hosts[:3], federation.hosts[3:]
    federation.world.partition(left, right)
    federation.run(1.0 + federation.rng.random() * 60.0)
    federation.interest_changes(10)
    federation.world.heal()
    federation.interest_changes(10)
    federation.until_agreement(RETURN_LIMIT, "a split that healed")


def split_off_one(seed: int) -> None:
    """One node is alone for a time; it is a seed, so that only the others can find it."""
    federation = Federation(seed, 4)
    lone = federation.hosts[0]
    federation.world.partition([lone], federation.hosts[1:])
    federation.run(1.0 + federation.rng.random() * 90.0)
    federation.interest_changes(10)
    federation.world.heal()
    federation.until_agreement(RETURN_LIMIT, "a node that was alone came back")


def flapping(seed: int) -> None:
    """Crashes, returns, leaves, joins and splits in a row; agreement in the end."""
    federation = Federation(seed, 5, [1, 2])
    hosts = federation.hosts
    left: set[str] = set()
    for _ in range(12):
        host = federation.rng.choice(hosts)
        action = federation.rng.random()
        if host.process is None:
            host.start()
            left.discard(host.name)
        elif action < 0.3:
            host.crash()
        elif action < 0.5 and host.name not in left:
            federation.do(host, lambda node, now: node.leave(now))
            left.add(host.name)
        elif action < 0.7:
            federation.world.partition(federation.rng.sample(hosts, 2))
        else:
            federation.world.heal()
        federation.interest_changes(2)
        federation.run(federation.rng.random() * 15.0)
    federation.world.heal()
    for host in hosts:
        if host.process is None:
            host.start()
            left.discard(host.name)
    federation.run(20.0)
    for host in hosts:
        if host.name in left:
            target = federation.rng.choice([other.ip for other in hosts if other is not host])
            federation.do(host, lambda node, now, ip=target: node.join([(ip, GOSSIP_PORT)], now))  # type: ignore[misc]
    federation.interest_changes(10)
    federation.until_agreement(300.0, "all that")


def thirty_nodes(seed: int) -> None:
    federation = Federation(seed, 30)
    victims = federation.rng.sample(federation.hosts[1:], 3)
    for victim in victims:
        victim.crash()
    federation.run(federation.rng.random() * 30.0)
    federation.interest_changes(30)
    for victim in victims:
        victim.start()
    federation.until_agreement(RETURN_LIMIT, "crashes among thirty")


SCHEDULES: Final[dict[str, Callable[[int], None]]] = {
    schedule.__name__: schedule
    for schedule in (
        kill_and_restart_at_once,
        kill_and_restart_later,
        return_at_another_address,
        leave_and_restart,
        leave_and_join,
        stays_away_after_a_leave,
        join_one_that_joins,
        force_leave_an_alive_node,
        force_leave_a_failed_node,
        two_of_one_name,
        newcomer_of_a_taken_name,
        split_and_heal,
        split_off_one,
        flapping,
        thirty_nodes,
        *HEALING_SCHEDULES,
        *TRAFFIC_SCHEDULES,
        definitions_converge,
        one_clock_is_wrong,
        *DOMAIN_SCHEDULES,
        *QUEUE_SCHEDULES,
        *CHANGE_SCHEDULES,
        *PROMISE_SCHEDULES,
        *RETAINED_SCHEDULES,
        *ROAMING_SCHEDULES,
        *COPY_SCHEDULES,
        *CUT_SCHEDULES,
        *RESTART_SCHEDULES,
        *DRAIN_SCHEDULES,
        *GROUP_SCHEDULES,
        *WORKER_SCHEDULES,
    )
}
