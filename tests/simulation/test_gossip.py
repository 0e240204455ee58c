"""A hundred nodes on virtual time: every node lists all others, detects crashes and leaves, and partitions heal.

A failure names its seed and the virtual time. The seed repeats the run exactly.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from federation.gossip.suspicion import suspicion_timeout
from federation.serf.config import SerfConfig
from federation.serf.events import MemberFailed, MemberStatus
from simulator.network import Faults
from simulator.serf_process import SerfProcess
from simulator.world import Host, World

NODES = 100
LOSSY = Faults(loss=0.05, duplication=0.05, delay_min=0.001, delay_max=0.05)


class Federation:
    """`count` nodes, n0 to n99; all but the first join n0, one each 50 ms."""

    def __init__(self, seed: int, count: int = NODES, faults: Faults | None = None) -> None:
        self.world = World(seed, faults)
        self.count = count
        self.hosts: list[Host] = []
        for number in range(count):
            self._add(number)
        for number, host in enumerate(self.hosts):
            self.world.at(number * 0.05, host.start)
        self.world.run(count * 0.05)

    def _add(self, number: int) -> None:
        ip = f"10.0.{number // 250}.{number % 250 + 1}"
        config = SerfConfig(f"n{number}", ip, 8902, {"fed_addr": f"{ip}:8901"})
        seeds = [("10.0.0.1", 8902)] if number else []
        self.hosts.append(self.world.add_host(f"n{number}", ip, lambda host: SerfProcess(host, config, seeds)))

    def process(self, host: Host) -> SerfProcess:
        assert isinstance(host.process, SerfProcess)
        return host.process

    def all_see(self, status: MemberStatus, subjects: list[Host], observers: list[Host]) -> bool:
        for observer in observers:
            serf = self.process(observer).serf
            for subject in subjects:
                member = serf.member(subject.name)
                if member is None or member.status != status:
                    return False
        return True

    def until_all_see(self, status: MemberStatus, subjects: list[Host], observers: list[Host], limit: float) -> float:
        what = f"all see {len(subjects)} nodes {status.name}"
        return self.world.run_until(lambda: self.all_see(status, subjects, observers), limit, what)

    def check_no_false_failure(self, truly: list[Host]) -> None:
        names = {host.name for host in truly}
        for host in self.hosts:
            if host.process is not None:
                for event in self.process(host).events:
                    if isinstance(event, MemberFailed):
                        self.world.check(
                            event.member.name in names, f"{host.name} takes {event.member.name} for failed"
                        )


def crash_limit(count: int) -> float:
    """Serf's LAN defaults: a probe fails within some seconds, the confirmed suspicion lasts its shortest time, and gossip
    needs a few more rounds."""
    return 5.0 + suspicion_timeout(4, count, 1.0) + 5.0


@pytest.mark.parametrize(
    ("seed", "faults"),
    [pytest.param(1, None, marks=pytest.mark.slow), (2, LOSSY), pytest.param(3, LOSSY, marks=pytest.mark.slow)],
)
def test_a_hundred_nodes_agree_on_joins_crashes_leaves_and_returns(seed: int, faults: Faults | None) -> None:
    federation = Federation(seed, faults=faults)
    hosts = federation.hosts
    # one push-pull interval of 100 nodes is the worst case for a node that missed all gossip
    federation.until_all_see(MemberStatus.ALIVE, hosts, hosts, 90.0)

    hosts[7].crash()
    rest = [host for host in hosts if host is not hosts[7]]
    took = federation.until_all_see(MemberStatus.FAILED, [hosts[7]], rest, crash_limit(NODES))
    assert took > 4.0

    leaver = hosts[9]
    federation.process(leaver).serf.leave(federation.world.now)
    leaver.settle()
    federation.until_all_see(MemberStatus.LEFT, [leaver], rest, 10.0)

    hosts[7].start()
    stayed = [host for host in rest if host is not leaver]  # no node gossips to a member that left
    federation.until_all_see(MemberStatus.ALIVE, [hosts[7]], stayed, 30.0)
    federation.check_no_false_failure([hosts[7]])
    for host in rest:
        federation.world.check(federation.process(host).serf.counters.drops == 0, "nothing was dropped")


@pytest.mark.parametrize("seed", range(1, 8))
def test_a_second_crash_within_half_a_minute_is_noticed_as_soon_as_the_first(seed: int) -> None:
    federation = Federation(seed, count=4)
    hosts = federation.hosts
    federation.until_all_see(MemberStatus.ALIVE, hosts, hosts, 60.0)
    federation.world.run(30.0)
    crashed: list[Host] = []
    for host in hosts[1:3]:
        host.crash()
        crashed.append(host)
        rest = [other for other in hosts if other not in crashed]
        federation.until_all_see(MemberStatus.FAILED, [host], rest, 7.5)
        federation.world.run(10.0)
    federation.check_no_false_failure(crashed)


def test_many_crashes_at_once_are_known_to_all() -> None:
    federation = Federation(4)
    hosts = federation.hosts
    federation.until_all_see(MemberStatus.ALIVE, hosts, hosts, 90.0)
    crashed = hosts[10:30]
    rest = hosts[:10] + hosts[30:]
    for host in crashed:
        host.crash()
    federation.until_all_see(MemberStatus.FAILED, crashed, rest, 60.0)
    federation.check_no_false_failure(crashed)


def test_a_partition_heals() -> None:
    federation = Federation(5, count=40, faults=Faults(loss=0.05, duplication=0.05))
    hosts = federation.hosts
    federation.until_all_see(MemberStatus.ALIVE, hosts, hosts, 60.0)
    left, right = hosts[:25], hosts[25:]
    federation.world.partition(left, right)
    federation.until_all_see(MemberStatus.FAILED, right, left, 60.0)
    federation.until_all_see(MemberStatus.FAILED, left, right, 60.0)
    assert federation.all_see(MemberStatus.ALIVE, left, left)
    assert federation.all_see(MemberStatus.ALIVE, right, right)
    federation.world.heal()
    # a reconnect every 30 s finds a node of the other side; gossip tells the others
    federation.until_all_see(MemberStatus.ALIVE, hosts, hosts, 120.0)


RUN = r"""
from simulator.network import Faults
from simulator.serf_process import SerfProcess
from simulator.world import World
from federation.gossip.msgpack_fields import encode
from federation.serf.config import SerfConfig

EVENT = {"CC": False, "LTime": 1, "Name": "deploy", "Payload": b"x"}
world = World(42, Faults(loss=0.05, duplication=0.05))
for number in range(25):
    ip = f"10.0.0.{number + 1}"
    config = SerfConfig(f"n{number}", ip, 8902, {"fed_addr": ip, "zone": "west"})
    seeds = [("10.0.0.1", 8902)] if number else []
    world.add_host(f"n{number}", ip, lambda host, c=config, s=seeds: SerfProcess(host, c, s)).start()
world.run(20.0)
world.hosts["n3"].crash()
world.hosts["n5"].process.serf.leave(world.now)
world.hosts["n5"].settle()
world.hosts["n6"].process.serf.user_message(b"\x03" + encode(EVENT), world.now)
world.hosts["n6"].settle()
world.run(20.0)
world.hosts["n3"].start()
world.run(20.0)
print(world.digest, len(world.log_lines), world.packets_sent)
"""


def test_the_same_seed_gives_the_same_run_under_any_hash_seed() -> None:
    def run(hash_seed: str) -> str:
        support = Path(__file__).parents[1] / "support"  # the product is installed
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(support)}
        done = subprocess.run(
            [sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    first = run("1")
    assert len(first.split()) == 3
    assert first == run("4242")
