"""A plain cluster becomes an encrypted one, node by node, as docs/operations.md says; nothing is dropped meanwhile."""

from __future__ import annotations

import pytest

from federation.gossip.counters import DropReason
from federation.serf.config import SerfConfig
from federation.serf.events import MemberFailed, MemberStatus
from federation.serf.leaving import SerfPhase
from simulator.network import Faults
from simulator.serf_process import SerfProcess
from simulator.world import Host, World

COUNT = 5
KEYS = (b"k" * 32,)
PLAIN: tuple[tuple[bytes, ...], bool, bool] = ((), True, True)
ROUNDS = [(KEYS, False, False), (KEYS, False, True), (KEYS, True, True)]
REFUSED = (DropReason.PLAIN, DropReason.WRONG_KEY, DropReason.ENCRYPTED)


class Cluster:
    def __init__(self, seed: int) -> None:
        self.world = World(seed, Faults(delay_min=0.001, delay_max=0.02))
        self.steps = [PLAIN] * COUNT
        self.hosts = [self._add(number) for number in range(COUNT)]
        for host in self.hosts:
            host.start()

    def _add(self, number: int) -> Host:
        ip = f"10.0.0.{number + 1}"
        seeds = [(f"10.0.0.{(number + 1) % COUNT + 1}", 8902), (f"10.0.0.{(number + 2) % COUNT + 1}", 8902)]

        def made(host: Host) -> SerfProcess:
            keys, incoming, outgoing = self.steps[number]
            config = SerfConfig(
                f"n{number}", ip, 8902, encrypt_keys=keys, verify_incoming=incoming, verify_outgoing=outgoing
            )
            return SerfProcess(host, config, seeds)

        return self.world.add_host(f"n{number}", ip, made)

    def process(self, number: int) -> SerfProcess:
        process = self.hosts[number].process
        assert isinstance(process, SerfProcess)
        return process

    def all_see_all(self) -> bool:
        return all(
            [member.status for member in self.process(number).serf.members()] == [MemberStatus.ALIVE] * COUNT
            for number in range(COUNT)
        )

    def check(self) -> None:
        for number in range(COUNT):
            process = self.process(number)
            dropped = {reason: process.serf.counters.dropped[reason] for reason in REFUSED}
            self.world.check(not any(dropped.values()), f"n{number} refuses nothing, not {dropped}")
            self.world.check(
                not any(isinstance(event, MemberFailed) for event in process.events), f"n{number} sees nobody fail"
            )

    def restart(self, number: int, step: tuple[tuple[bytes, ...], bool, bool]) -> None:
        serf = self.process(number).serf
        serf.leave(self.world.now)
        self.hosts[number].settle()
        self.world.run_until(lambda: serf.phase == SerfPhase.LEFT, 20.0, f"n{number} has left")
        self.check()
        self.hosts[number].crash()
        self.steps[number] = step
        self.hosts[number].start()
        self.world.run_until(self.all_see_all, 60.0, f"n{number} is back")
        self.check()


@pytest.mark.parametrize("seed", range(1, 4))
def test_rounds_of_restarts(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.world.run_until(cluster.all_see_all, 60.0, "all see all")
    for step in ROUNDS:
        for number in range(COUNT):
            cluster.restart(number, step)
        cluster.world.run(35.0)
        cluster.check()


def test_without_the_rounds_a_node_is_refused() -> None:
    cluster = Cluster(1)
    cluster.world.run_until(cluster.all_see_all, 60.0, "all see all")
    cluster.steps[0] = (KEYS, True, True)
    cluster.hosts[0].crash()
    cluster.hosts[0].start()
    cluster.world.run(40.0)
    assert cluster.process(0).serf.alive_others() == 0
    assert cluster.process(0).serf.counters.dropped[DropReason.PLAIN] > 0
    assert sum(cluster.process(number).serf.counters.dropped[DropReason.ENCRYPTED] for number in range(1, COUNT)) > 0
