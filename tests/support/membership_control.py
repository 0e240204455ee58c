"""The membership of a node as a test wants it, for the service and the commands: node1 here, and node2 that it knows."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from federation.errors import JoinFailed, NotRunning
from federation.gossip.messages import SUSPECT, Accusation
from federation.member_tags import MemberTags
from federation.membership import FederationMembership
from federation.serf.config import SerfConfig
from federation.serf.serf import Serf
from gossip_node import introduce

OWN_TAGS = {"fed_addr": "192.168.0.105:8901"}


class Control(FederationMembership):
    def __init__(self) -> None:
        self.running = True
        self.joined: list[list[str]] = []
        self.left = 0
        self.forced: list[str] = []
        self.tags = MemberTags({"fed_addr": "192.168.0.105:8901"})
        self.core = Serf(SerfConfig("node1", "192.168.0.105", 8902, OWN_TAGS), Random(1), 0.0)
        introduce(self.core, Serf(SerfConfig("node2", "::1", 8912, {"zone": "west"}), Random(2), 0.0))

    def check(self) -> None:
        if not self.running:
            raise NotRunning

    async def join(self, hosts: list[str], replay: bool = True) -> int:
        self.check()
        if "127.0.0.1:1" in hosts:
            raise JoinFailed({"127.0.0.1:1": "connection refused"})
        self.joined.append(hosts)
        return len(hosts)

    async def leave(self) -> None:
        self.check()
        self.left += 1

    def force_leave(self, name: str, prune: bool = False) -> None:
        self.check()
        if name == "node1":
            raise ValueError("node1 is this node itself; leave does that")
        self.forced.append(f"{name} pruned" if prune else name)

    def change_tags(self, tags: dict[str, str], delete: Iterable[str]) -> None:
        self.check()
        self.tags.change(tags, delete)

    def running_serf(self) -> Serf:
        self.check()
        return self.core

    def accuse(self, message: int, now: float) -> None:
        """Another member holds node2 for suspect or dead."""
        accusation = Accusation(1, "node2", "node9")
        membership = self.core.gossip.membership
        receive = membership.receive_suspect if message == SUSPECT else membership.receive_dead
        receive(accusation, accusation.encode(message), now)
