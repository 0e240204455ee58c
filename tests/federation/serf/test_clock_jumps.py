"""The clock of one node jumps, forward as after a machine was suspended, and back: nothing crashes, nothing grows, and the
cluster agrees again."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.gossip.addresses import Address
from federation.gossip.gossip import PACKETS_PENDING_MAX
from federation.serf.config import SerfConfig
from federation.serf.events import Event, MemberStatus
from federation.serf.serf import Serf
from gossip_node import introduce
from simulator.network import Stream
from simulator.process import Machine
from simulator.serf_process import SerfProcess
from simulator.world import Host, World

HOUR = 3600.0
DAY = 24 * HOUR


class OffClock(SerfProcess):
    """A node whose clock is `off` seconds before that of the world."""

    def __init__(self, host: Host, config: SerfConfig, seeds: list[Address]) -> None:
        self.off = 0.0
        super().__init__(host, config, seeds)

    def receive_packet(self, data: bytes, source: Address, now: float) -> None:
        super().receive_packet(data, source, now + self.off)

    def stream_accepted(self, stream: Stream, now: float) -> None:
        super().stream_accepted(stream, now + self.off)

    def stream_received(self, stream: Stream, data: bytes, now: float) -> None:
        super().stream_received(stream, data, now + self.off)

    def stream_closed(self, stream: Stream, error: str, now: float) -> None:
        super().stream_closed(stream, error, now + self.off)

    def next_timeout(self) -> float | None:
        at = super().next_timeout()
        return None if at is None else at - self.off

    def handle_timeout(self, now: float) -> None:
        super().handle_timeout(now + self.off)

    def flush(self, host: Machine, now: float) -> None:
        super().flush(host, now + self.off)


def cluster_of(count: int, seed: int) -> tuple[World, list[Host]]:
    world = World(seed)

    def add(number: int) -> Host:
        ip = f"10.0.0.{number}"
        seeds = [("10.0.0.1", 8902)] if number > 1 else []
        host = world.add_host(f"n{number}", ip, lambda host: OffClock(host, SerfConfig(f"n{number}", ip, 8902), seeds))
        host.start()
        return host

    hosts = [add(number) for number in range(1, count + 1)]
    world.run(5.0)
    return world, hosts


def process_of(host: Host) -> OffClock:
    assert isinstance(host.process, OffClock)
    return host.process


def all_alive(hosts: list[Host]) -> bool:
    names = {host.name for host in hosts}
    return all(
        {member.name for member in process_of(host).serf.members() if member.status == MemberStatus.ALIVE} == names
        for host in hosts
    )


@pytest.mark.parametrize("jump", [2.0, 60.0, HOUR, 2 * DAY, 400 * DAY, -2.0, -60.0, -2 * DAY])
def test_the_clock_of_one_node_jumps(jump: float) -> None:
    world, hosts = cluster_of(4, 1)
    jumping = process_of(hosts[1])
    jumping.off = jump
    hosts[1].settle()
    world.run(30.0)
    if jump > 0:
        world.run_until(lambda: all_alive(hosts), 60.0, "all hold all for alive")
    else:  # its own timers wait for the hour that they were set for; it answers, so that nobody takes it for failed
        assert all_alive(hosts)
        jumping.off = 0.0
        hosts[1].settle()
        world.run(30.0)
    assert all_alive(hosts)
    for host in hosts:
        serf = process_of(host).serf
        assert len(serf.gossip.membership.queue) <= len(hosts)
        assert serf.gossip.exchanges.incoming_streams <= len(hosts)
        assert serf.counters.drops == 0
    hosts[2].crash()
    world.run(60.0)
    for host in (hosts[0], hosts[1], hosts[3]):
        member = process_of(host).serf.member("n3")
        assert member is not None
        assert member.status == MemberStatus.FAILED


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=30), st.integers(0, 1 << 16))
def test_any_times_in_any_order(times: list[float], seed: int) -> None:
    """Whatever the clock says, a node with members does not raise, and what waits in it is bounded."""
    serf = Serf(SerfConfig("me", "10.0.0.1", 8902), Random(seed), 0.0)
    for number in range(2, 6):
        introduce(serf, Serf(SerfConfig(f"n{number}", f"10.0.0.{number}", 8902), Random(number), 0.0))
    events: list[Event] = []
    for now in times:
        serf.handle_timeout(now)
        serf.user_event("tick", b"")
        asked = serf.query("load", b"", now)
        assert asked.deadline > now
        assert len(serf.packets_to_send()) <= PACKETS_PENDING_MAX
        requests = serf.take_stream_requests()
        for request in requests:
            serf.receive_stream_reply(request.request_id, None, "refused", now)
        events += serf.take_events()
        serf.next_timeout()
    assert len(serf.members()) <= 5
    assert len(events) < 1000
