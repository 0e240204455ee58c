"""Schedules for nodes that are drained, stopped, and started again by turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from federation.sessions.drain import DRAINED, Drain
from federation.settings import ReplicationSettings
from simulator.durable_client import DurableClient
from simulator.node_process import NodeProcess
from simulator.roaming import Roaming, check_roaming
from simulator.world import Host

DRAIN_LIMIT: Final = 60.0


class Drained(Roaming):
    """Clients move, now and then to a node that is drained, which refuses them."""

    def __init__(self, seed: int, count: int, is_rough: bool = False) -> None:
        super().__init__(seed, count, is_rough, replication=ReplicationSettings(copies=1))

    def _connect(self, host: Host, client: DurableClient) -> None:
        others: list[Host] = []
        for other in self.awake:
            node = self.federation.node(other)
            if self._is_ready(node) and (node.broker.elsewhere is None or (other is host and self.rng.random() < 0.2)):
                others.append(other)
        if others:
            super()._connect(host if host in others else self.rng.choice(others), client)

    def _is_ready(self, node: NodeProcess) -> bool:
        """Return whether streams are up in both directions: before, just after a start, a client would be let in without its
        session when claim_wait is over."""
        for other in self.nodes():
            for first, second in ((node, other), (other, node)):
                sender = first.node.senders.get(second.name)
                if other is not node and (sender is None or not sender.reachable):
                    return self.is_rough
        return True

    def drain_of(self, host: Host) -> Drain:
        drain = self.federation.node(host).node.drain
        assert drain is not None
        return drain

    def begin_drain(self, host: Host, rate: int) -> None:
        self.federation.node(host).begin_drain(rate, self.world.now)
        host.settle()

    def end_drain(self, host: Host) -> None:
        self.federation.node(host).end_drain(self.world.now)
        host.settle()

    def until_drained(self, host: Host) -> None:
        """All clients and sessions of the node are elsewhere, while clients go on; also what it is given meanwhile."""
        drain = self.drain_of(host)
        end = self.world.now + DRAIN_LIMIT
        while drain.state != DRAINED or (self.is_rough and drain.sessions_left()):
            text = f"{drain.clients_left()} clients, {drain.sessions_left()} sessions; waits for {drain.waits_for()!r}"
            self.world.check(self.world.now < end, f"{host.name} is drained: left are {text}")
            self.run(0.5, 20.0)
        node = self.federation.node(host)
        self.world.check(not node.broker.sessions, f"P6: drained, with the sessions {list(node.broker.sessions)}")

    def stop_drained(self, host: Host) -> None:
        """The node dies when it is drained, and often its disk is lost: it has nothing that anybody misses."""
        self.kill(host)
        disk = self.stations[host].disk
        assert disk is not None
        if self.rng.random() < 0.5:
            disk.records.clear()


def nodes_are_drained(seed: int) -> None:
    """Node after node is drained, stopped, and started, or takes clients again: nothing is lost, not even with its disk."""
    drained = Drained(seed, 3 + seed % 3)
    for _ in range(3):
        drained.run(drained.rng.random() * 4.0, 30.0)
        victim = drained.rng.choice(drained.federation.hosts)
        drained.begin_drain(victim, drained.rng.choice((5, 50, 500)))
        if drained.rng.random() < 0.3:
            drained.run(drained.rng.random() * 8.0, 20.0)
            drained.end_drain(victim)
            continue
        drained.until_drained(victim)
        if drained.rng.random() < 0.8:
            drained.stop_drained(victim)
            drained.run(drained.rng.random() * 8.0, 20.0)
            drained.start(victim)
        else:
            drained.end_drain(victim)
    drained.run(drained.rng.random() * 4.0, 30.0)
    check_roaming(drained)


def nodes_are_drained_while_others_die(seed: int) -> None:
    """The node that takes sessions dies, and comes back: the drained one keeps what it has until then."""
    drained = Drained(seed, 4, is_rough=True)
    for _ in range(2):
        drained.run(drained.rng.random() * 4.0, 30.0)
        victim, other = drained.rng.sample(drained.federation.hosts[1:], 2)
        drained.begin_drain(victim, drained.rng.choice((5, 50, 500)))
        drained.run(drained.rng.random() * 8.0, 20.0)
        drained.kill(other)
        drained.run(drained.rng.random() * 15.0, 15.0)
        drained.start(other)
        drained.until_drained(victim)
        drained.kill(victim)
        drained.run(drained.rng.random() * 8.0, 20.0)
        drained.start(victim)
    drained.run(drained.rng.random() * 4.0, 30.0)
    check_roaming(drained)


DRAIN_SCHEDULES: Final[tuple[Callable[[int], None], ...]] = (nodes_are_drained, nodes_are_drained_while_others_die)
