"""Push-pull rules: the interval, acceptable versions, and other nodes of this node's name (wire-gossip 2.1 and 6.8)."""

from __future__ import annotations

import math
from typing import Final

from federation.gossip.addresses import Address, ip_text
from federation.gossip.members import STATE_ALIVE, STATE_SUSPECT, NodeFacts
from federation.gossip.messages import VERSION_BYTES, PushPull

SCALING_THRESHOLD: Final = 32
"""Members up to which the interval is not scaled."""


def push_pull_scale(node_count: int) -> int:
    """Factor of the push-pull interval; it grows with log2(N) above SCALING_THRESHOLD members."""
    if node_count <= SCALING_THRESHOLD:
        return 1
    return math.ceil(math.log2(node_count) - math.log2(SCALING_THRESHOLD)) + 1


def find_namesake(remote: PushPull, own: NodeFacts) -> Address | None:
    """Address of another node with this node's name that the other side holds for alive, or suspects: it may be one."""
    for node in remote.nodes:
        if node.name == own.name and node.state in (STATE_ALIVE, STATE_SUSPECT):
            ip = ip_text(node.addr)
            if ip != own.ip or node.port != own.port:
                return (ip, node.port)
    return None


class VersionRange:
    """The versions that all nodes of one cluster speak (wire-gossip 2.1). `add` every node of both sides, then ask
    `refused`.

    The common range of the alive nodes, of gossip protocol and Serf protocol, must contain the current version of every node.
    """

    def __init__(self) -> None:
        self._protocol_low = 0
        self._protocol_high = 255
        self._delegate_low = 0
        self._delegate_high = 255
        # current (protocol, delegate) versions -> a node that has them; a cluster has few different ones
        self._current: dict[tuple[int, int], str] = {}
        self._added: set[tuple[bytes, bool]] = set()

    def add(self, name: str, versions: bytes, alive: bool) -> None:
        if (versions, alive) in self._added:
            return
        self._added.add((versions, alive))
        if len(versions) != VERSION_BYTES:
            self._current.setdefault((0, 0), name)
            return
        if alive:
            self._protocol_low = max(self._protocol_low, versions[0])
            self._protocol_high = min(self._protocol_high, versions[1])
            self._delegate_low = max(self._delegate_low, versions[3])
            self._delegate_high = min(self._delegate_high, versions[4])
        self._current.setdefault((versions[2], versions[5]), name)

    def refused(self) -> str:
        """Gives "" when all versions are acceptable, otherwise the reason."""
        for (protocol, delegate), name in self._current.items():
            if not self._protocol_low <= protocol <= self._protocol_high:
                return (
                    f"node {name!r} speaks gossip protocol {protocol}, the cluster needs "
                    f"{self._protocol_low} to {self._protocol_high}"
                )
            if not self._delegate_low <= delegate <= self._delegate_high:
                return (
                    f"node {name!r} speaks Serf protocol {delegate}, the cluster needs "
                    f"{self._delegate_low} to {self._delegate_high}"
                )
        return ""
