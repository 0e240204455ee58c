"""One gossip node on virtual time."""

from __future__ import annotations

import contextlib
from random import Random

from federation.gossip.addresses import Address
from federation.gossip.config import LAN, GossipConfig
from federation.gossip.counters import Counters
from federation.gossip.delegate import GossipDelegate
from federation.gossip.gossip import Gossip
from federation.gossip.members import FactsPool
from federation.gossip.messages import (
    OUR_VERSIONS,
    PING,
    Alive,
    Ping,
    PushPullNode,
)
from federation.gossip.sealing import PLAIN, Sealing
from federation.gossip.wire import open_packet
from federation.serf.messages import RecentEvent, UserEvent
from federation.serf.serf import Serf
from federation.serf.state import SerfState


def user_event(time: int, name: str, payload: bytes = b"", may_be_coalesced: bool = False) -> bytes:
    """The message of a user event, as Serf's agents send it."""
    return UserEvent(time, name, payload, may_be_coalesced).encode()


def user_events(serf: Serf) -> list[RecentEvent]:
    """The user events that a node remembers and tells in its push-pulls."""
    return SerfState.decode(serf.local_state()[1:]).events


def introduce(serf: Serf, other: Serf) -> None:
    """`serf` gets the members that `other` knows, as in a push-pull."""
    entries = [PushPullNode.decode(entry) for entry in other.gossip.membership.encode_nodes()]
    serf.gossip.membership.merge(entries, 0.0)


def merge_state(serf: Serf, state: bytes, now: float = 0.0) -> None:
    """`serf` gets Serf's part of a push-pull, with all its slices at once."""
    steps = serf.merge_remote_state(state, now)
    with contextlib.suppress(StopIteration):
        next(steps)
        while True:
            steps.send(now)


def merge_all(gossip: Gossip, now: float) -> int:
    """Let `gossip` do what is left of its merges. Gives the number of slices."""
    slices = 0
    while gossip.exchanges.merges.next_timeout() is not None:
        gossip.handle_timeout(now)
        slices += 1
    return slices


OWN = bytes((10, 0, 0, 1))


def address(host: int) -> Address:
    return (f"10.0.0.{host}", 8902)


class GossipNode:
    """One node named "me" at 10.0.0.1 on virtual time."""

    def __init__(self, config: GossipConfig = LAN, sealing: Sealing = PLAIN) -> None:
        self.now = 100.0
        pool = FactsPool()
        facts = pool.get("me", OWN, 8902, b"", OUR_VERSIONS)
        self.joined: list[str] = []
        self.gossip = Gossip(facts, config, Random(3), Counters(), GossipDelegate(), pool, self.now, sealing)
        self.gossip.membership.queue.take(0, 1 << 20, 1000, 1)

    def know(self, *hosts: int) -> None:
        for host in hosts:
            alive = Alive(1, f"n{host}", bytes((10, 0, 0, host)), 8902, b"", OUR_VERSIONS)
            self.receive(alive.encode(), host)
        self.gossip.membership.queue.take(0, 1 << 20, 1000, 1)

    def receive(self, packet: bytes, host: int) -> None:
        self.gossip.receive_packet(packet, address(host), self.now)

    def sent(self) -> list[tuple[bytes, Address]]:
        """Single messages."""
        return [
            (message, destination)
            for data, destination in self.gossip.packets_to_send()
            for message in open_packet(data, Counters())
        ]

    def sent_of(self, kind: int) -> list[tuple[bytes, Address]]:
        return [(message[1:], destination) for message, destination in self.sent() if message[0] == kind]

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while (deadline := self.gossip.next_timeout()) <= end:
            self.now = max(self.now, deadline)
            self.gossip.handle_timeout(self.now)
        self.now = end

    def wakes(self, seconds: float) -> int:
        """Number of timeouts that the node asks for in this time."""
        end = self.now + seconds
        count = 0
        while (deadline := self.gossip.next_timeout()) <= end:
            count += 1
            self.now = max(self.now, deadline)
            self.gossip.handle_timeout(self.now)
        self.now = end
        return count

    def until_probe(self) -> Ping:
        """The next ping that it sends by itself."""
        while True:
            self.now = self.gossip.next_timeout()
            self.gossip.handle_timeout(self.now)
            pings = self.sent_of(PING)
            if pings:
                return Ping.decode(pings[0][0])

    def state(self, host: int) -> int:
        return self.gossip.table.nodes[f"n{host}"].state
