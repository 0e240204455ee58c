"""Whole federated nodes on simulated hosts, and the oracle of their agreement: every node lists the same members, every
stream flows, and every node's tree holds exactly what the others want.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from federation.gossip.addresses import Address
from federation.serf.events import MemberFailed, MemberStatus
from federation.stream.state import State
from simulator.network import Faults
from simulator.node_process import NodeOptions, NodeProcess
from simulator.serf_process import GOSSIP_PORT
from simulator.world import Host, World

FAILED_LIMIT: Final = 40.0
"""Seconds until a crash is known to all, in a small cluster with losses."""
RETURN_LIMIT: Final = 150.0
"""Seconds until everything agrees again after a return: reconnects and push-pulls come every 30 s, and may miss."""
MESSAGE_LIMIT: Final = 45.0
"""Seconds: a stream that was cut off for a short time may need its silence to be noticed."""
LOSSY: Final = Faults(loss=0.03, duplication=0.03, delay_min=0.0005, delay_max=0.02)
ROUGH: Final = Faults(loss=0.03, duplication=0.03, delay_min=0.0005, delay_max=0.02, pieces=0.2)


class Federation:
    """Nodes n1, n2, ... at 10.0.0.1, ...; all but the first have n1 (or `seeds`) in retry_join, and workers the others of their
    node. The federation is lossy for every other seed."""

    def __init__(
        self,
        seed: int,
        count: int,
        seeds: list[int] | None = None,
        faults: Faults = LOSSY,
        direct_block: str = "",
        each: Sequence[dict[str, Any]] = (),
        **options: Any,
    ) -> None:
        self.world = World(seed, faults if seed % 2 else None)
        self.world.direct_block = direct_block
        self.options = options  # further ones of all nodes, by their names in NodeOptions
        self._each = each  # and of n1, n2, ...
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
        own = self._each[number - 1] if number <= len(self._each) else {}
        siblings = [(ip, GOSSIP_PORT) for ip in own.get("siblings", {}).values()]
        seed_addresses = list(dict.fromkeys([*siblings, *seed_addresses]))
        options = NodeOptions(name or f"n{number}", seed_addresses, **self.options, **own)
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
            if process.refuses:
                return f"{host.name} refuses messages: its store is full"
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
        self.until_nothing_differs(lambda: self._message_difference(members, sent), MESSAGE_LIMIT, 1.0)

    def until_nothing_differs(self, difference: Callable[[], str], limit: float, longer: float) -> None:
        """Let time pass until there is no difference ("") any more; there must be none `longer` seconds later either."""
        start = self.world.now
        found = "not looked yet"
        while found:
            self.world.run(0.5)
            found = difference()
            self.world.check(not found or self.world.now - start < limit, found)
        self.world.run(longer)
        found = difference()
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
