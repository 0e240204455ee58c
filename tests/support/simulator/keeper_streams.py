"""The connections between a simulated node and the keepers of its store."""

from __future__ import annotations

from typing import Final

from federation.node import Node
from federation.replication.keeper import Keeper, KeeperOutlet
from federation.replication.keeper_server import KeeperServer
from federation.stream.state import State
from simulator.network import Stream
from simulator.stream_end import StreamEnd
from simulator.world import Host

FRAME_BYTES_MAX: Final = 1 << 20


class KeeperEnd(StreamEnd, KeeperOutlet):
    """At the home."""

    def __init__(self, keeper: Keeper, stream: Stream, now: float) -> None:
        StreamEnd.__init__(self, keeper, stream)
        self.attempt = keeper.attempt
        keeper.outlet = self
        keeper.connected(self.attempt, now)

    @property
    def is_over(self) -> bool:
        keeper: Keeper = self.core
        return keeper.attempt != self.attempt or keeper.state not in (State.HELLO, State.STREAMING)

    def received(self, data: bytes, now: float) -> None:
        self.core.receive_data(self.attempt, data, now)

    def flush_at(self, now: float) -> None:
        self.flush(now)

    def flush(self, now: float) -> bool:
        if self.is_over:
            return False
        data = self.core.data_to_send(now)
        self.stream.write(data)
        return bool(data)

    def closed(self, reason: str, now: float) -> None:
        self.core.connection_lost(self.attempt, reason, now)

    def handle_timeout(self, now: float) -> None:
        """The node sees to the time of its keepers."""


class ServedEnd(StreamEnd):
    """At the keeper."""

    core: KeeperServer

    def __init__(self, node: Node, stream: Stream, now: float) -> None:
        assert node.copies is not None
        super().__init__(KeeperServer(node.copies.replicas, FRAME_BYTES_MAX, now), stream)

    def received(self, data: bytes, now: float) -> None:
        self.core.receive_data(data, now)

    def flush(self, now: float) -> bool:
        data = self.core.data_to_send(now)
        self.stream.write(data)
        return bool(data)

    def closed(self, reason: str, now: float) -> None:
        self.core.close()


class KeeperStreams:
    """Of one node, to its keepers."""

    def __init__(self, node: Node, host: Host) -> None:
        self._node = node
        self._host = host
        self._ends: dict[Keeper, KeeperEnd] = {}

    def follow(self, now: float) -> list[KeeperEnd]:
        """Connect as the keepers want. Return the ends of new streams."""
        copies = self._node.copies
        if copies is None:
            return []
        keepers = copies.replication.keepers.values()
        for keeper, end in list(self._ends.items()):
            if end.is_over or keeper not in keepers:
                del self._ends[keeper]
                end.stream.close()
                keeper.outlet = None
        new: list[KeeperEnd] = []
        for keeper in keepers:
            if keeper.state is State.HELLO and keeper not in self._ends:
                ip, _, port = keeper.addr.rpartition(":")
                end = self._ends[keeper] = KeeperEnd(keeper, self._host.open_stream((ip, int(port))), now)
                new.append(end)
        return new
