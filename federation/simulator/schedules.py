"""Named schedules for whole federated nodes: what nodes live through, and what must hold everywhere afterwards.

Each is a function of the seed; it raises AssertionError with the seed and the virtual time. `check_agreement` is the
oracle: every node lists the same members, every stream flows, and every node's tree holds exactly what the others want.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from federation.gossip.addresses import Address
from federation.serf.events import MemberFailed, MemberStatus
from federation.simulator.network import Faults
from federation.simulator.node_process import NodeOptions, NodeProcess
from federation.simulator.serf_process import GOSSIP_PORT
from federation.simulator.world import Host, World
from federation.stream.sender import State

FAILED_LIMIT: Final = 40.0
"""Seconds until a crash is known to all, in a small cluster with losses."""
RETURN_LIMIT: Final = 150.0
"""Seconds until everything agrees again after a return: reconnects and push-pulls come every 30 s, and may miss."""
MESSAGE_LIMIT: Final = 45.0
LOSSY: Final = Faults(loss=0.03, duplication=0.03, delay_min=0.0005, delay_max=0.02)


class Federation:
    """Nodes n1, n2, ... at 10.0.0.1, ...; all but the first have n1 (or `seeds`) in retry_join. The federation is lossy
    for every other seed."""

    def __init__(self, seed: int, count: int, seeds: list[int] | None = None) -> None:
        self.world = World(seed, LOSSY if seed % 2 else None)
        self.rng = self.world.schedule_rng
        self.hosts: list[Host] = []
        for number in range(1, count + 1):
            self.hosts.append(self.add(number, seeds=[1] if seeds is None else seeds))
        self.filters: dict[str, list[str]] = {}
        for host in self.hosts:
            host.start()
            self.world.run(self.rng.random() * 0.3)
        self.interest_changes(2 * count)
        self.until_agreement(60.0, "the start")

    def add(self, number: int, name: str = "", seeds: list[int] | None = None) -> Host:
        """A host that is not started yet."""
        ip = address(number)[0]
        seed_addresses = [address(seed) for seed in seeds or [] if seed != number]
        options = NodeOptions(name or f"n{number}", seed_addresses)
        return self.world.add_host(f"h{number}", ip, lambda host: NodeProcess(host, options))

    def node(self, host: Host) -> NodeProcess:
        assert isinstance(host.process, NodeProcess)
        return host.process

    def do(self, host: Host, action: Callable[[NodeProcess, float], object]) -> None:
        action(self.node(host), self.world.now)
        host.settle()

    def run(self, seconds: float) -> None:
        self.world.run(seconds)
        for host in self.hosts:
            if host.process is not None and self.node(host).lost_name:
                host.crash()

    @property
    def running(self) -> list[Host]:
        return [host for host in self.hosts if host.process is not None]

    # --- clients

    def interest_changes(self, count: int) -> None:
        """Clients of running nodes subscribe and unsubscribe, some of them in shared groups."""
        for _ in range(count if self.running else 0):
            host = self.rng.choice(self.running)
            name = f"{self.rng.choice(['', '', '$share/g/'])}t/{self.rng.choice('abcd+#')}"
            if self.rng.random() < 0.7:
                self.do(host, lambda node, now, name=name: node.subscribe(name, now))  # type: ignore[misc]
            else:
                self.do(host, lambda node, now, name=name: node.unsubscribe(name, now))  # type: ignore[misc]

    def until_failed(self, name: str, limit: float = FAILED_LIMIT) -> None:
        def all_know() -> bool:
            for host in self.running:
                member = self.node(host).serf.member(name)
                if self.node(host).name != name and member is not None and member.status != MemberStatus.FAILED:
                    return False
            return True

        self.world.run_until(all_know, limit, f"all know that {name} has failed")

    # --- the oracle

    def until_agreement(self, limit: float, after: str) -> None:
        start = self.world.now
        while True:
            found = self.disagreement()
            if not found:
                break
            self.world.check(self.world.now - start < limit, f"no agreement {limit:g} s after {after}: {found}")
            self.run(0.25)
        self.check_messages()

    def disagreement(self) -> str:
        """ "" when all members of the federation agree on everything, otherwise the first difference."""
        members = [host for host in self.running if not self.node(host).node.has_left]
        names = sorted(self.node(host).name for host in members)
        for host in members:
            process = self.node(host)
            alive = {m.name: (m.ip, m.port) for m in process.serf.members() if m.status == MemberStatus.ALIVE}
            if sorted(alive) != names:
                return f"{host.name} holds {sorted(alive)} for alive, not {names}"
            for other in members:
                found = self._difference(process, self.node(other), alive)
                if found:
                    return f"{host.name}: {found}"
            strangers = set(process.node.senders) - set(names)
            failed = {m.name for m in process.serf.members() if m.status == MemberStatus.FAILED}
            if strangers - failed:
                return f"{host.name} keeps streams for {sorted(strangers - failed)}"
        for host in self.running:
            if host not in members and self.node(host).node.senders:
                return f"{host.name} has left and still has streams"
        return ""

    def _difference(self, process: NodeProcess, other: NodeProcess, alive: dict[str, Address]) -> str:
        name = other.name
        if alive[name] != (other.serf.config.advertise_ip, GOSSIP_PORT):
            return f"{name} is said to be at {alive[name]}"
        if process is other:
            return ""
        sender = process.node.senders.get(name)
        if sender is None or sender.state is not State.STREAMING:
            return f"no stream to {name}"
        wanted = sorted(other.broker.local_interest())
        known = sorted(process.node.tree.interest_of(name))
        if known != wanted:
            return f"the tree has {known} for {name}, which wants {wanted}"
        return ""

    def check_messages(self) -> None:
        """A message from each member reaches every member with interest once, and of each shared group one."""
        members = [host for host in self.running if not self.node(host).node.has_left]
        for host in members:
            self.node(host).received.clear()
        sent: list[bytes] = []
        for number, host in enumerate(members):
            payload = b"%d" % number
            self.do(host, lambda node, now, payload=payload: node.publish("t/a", payload, now))  # type: ignore[misc]
            sent.append(payload)
        start = self.world.now
        while True:
            self.world.run(0.5)
            found = self._message_difference(members, sent)
            if not found:
                break
            # a stream that was cut off for a short time may need its silence to be noticed
            self.world.check(self.world.now - start < MESSAGE_LIMIT, found)
        self.world.run(1.0)
        found = self._message_difference(members, sent)
        self.world.check(not found, found)

    def _message_difference(self, members: list[Host], sent: list[bytes]) -> str:
        groups: set[tuple[bytes, bytes]] = set()
        ordinary = 0
        copies: Counter[bytes] = Counter()
        for host in members:
            process = self.node(host)
            matching = [key for key in process.broker.local_interest() if key[1] in (b"t/a", b"t/+", b"t/#")]
            groups.update(key for key in matching if key[0])
            got = Counter(payload for topic, payload in process.received if topic == b"t/a")
            copies += got
            if any(not share for share, _ in matching):
                ordinary += 1
                for payload in sent:
                    if not got[payload]:
                        return f"{host.name} lacks message {payload!r}"
        for payload in sent:
            if copies[payload] != ordinary + len(groups):
                return f"{copies[payload]} copies of {payload!r} for {ordinary} subscribers and {len(groups)} groups"
        return ""

    def check_no_failure(self, name: str, seen_by: list[Host]) -> None:
        for host in seen_by:
            for event in self.node(host).events:
                if isinstance(event, MemberFailed):
                    self.world.check(event.member.name != name, f"{host.name} took {name} for failed")


def address(number: int) -> Address:
    return (f"10.0.{number // 250}.{number % 250}", GOSSIP_PORT)


# --- schedules


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
    )
}
