"""The membership of a node in this process, without the rest of the node, over loopback sockets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from broker.server.logging import get_logger
from federation.gossip.config import LAN
from federation.serf.config import SerfConfig
from federation.serf.events import Event, MemberEvent, MemberStatus
from federation.serf.serf import Serf
from federation.shell.gossip import GossipShell
from federation.shell.gossip_sockets import bind_gossip
from waiting import DEADLINE

TAGS = {"fed_addr": "127.0.0.1:8901", "zone": "west"}


class OurNode:
    def __init__(self, name: str, tags: dict[str, str], keys: tuple[bytes, ...] = (), host: str = "127.0.0.1") -> None:
        sockets = bind_gossip(host, 0)
        self.name = name
        self.port = sockets.port
        self.events: list[Event] = []
        self._happened = asyncio.Event()
        config = SerfConfig(name, host, sockets.port, tags, LAN, encrypt_keys=keys)
        self.serf = Serf(config, random.Random(7), asyncio.get_running_loop().time())
        self.shell = GossipShell(self.serf, sockets, self._on_events, get_logger("gossip"))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _on_events(self, events: list[Event]) -> None:
        self.events += events
        self._happened.set()

    async def event(self, kind: type[MemberEvent], name: str) -> None:
        """Wait for a member event about `name`."""
        async with asyncio.timeout(DEADLINE):
            while not any(isinstance(event, kind) and event.member.name == name for event in self.events):
                self._happened.clear()
                await self._happened.wait()

    def status(self, name: str) -> MemberStatus | None:
        member = self.serf.member(name)
        return None if member is None else member.status


@asynccontextmanager
async def running_node(
    name: str, tags: dict[str, str] = TAGS, keys: tuple[bytes, ...] = (), host: str = "127.0.0.1"
) -> AsyncIterator[OurNode]:
    node = OurNode(name, tags, keys, host)
    await node.shell.start()
    try:
        yield node
    finally:
        await node.shell.stop()
