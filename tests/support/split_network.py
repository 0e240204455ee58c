"""A network between nodes that can be split: what a node tells the others as its addresses are relays in this process.

While a split lasts, nothing passes between its sides, and nothing ends: datagrams are lost, streams stand still and go on when
it heals. Clients and upstreams are not behind the relays.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, NamedTuple

import psutil

from broker.workers.shares import PORT_STEP
from node_process import Node, free_port

GATHER_SECONDS: Final = 0.2
"""Streams that come meanwhile are looked for together."""


@asynccontextmanager
async def split_network(nodes: Sequence[Node]) -> AsyncIterator[SplitNetwork]:
    """The network of nodes that are not started yet: each joins through the relays of the others. The nodes end before it."""
    async with AsyncExitStack() as stack:
        network = SplitNetwork(nodes)
        stack.push_async_callback(network.close)
        await network.open()
        yield network


class SplitNetwork:
    """`split`, then `heal`."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._by_gossip_port = {
            _port_of(_federation(node)["gossip_addr"]) + step: node for node in nodes for step in _steps(node)
        }
        self._by_port: dict[int, Node] = {}
        self._looked_at = 0.0  # when these were looked up
        self._looking = asyncio.Lock()
        self._one_side: frozenset[Node] = frozenset()
        self._healed = asyncio.Event()
        self._healed.set()
        self._streams: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._datagrams: list[asyncio.BaseTransport] = []

    def split(self, *one_side: Node) -> None:
        """From now on these nodes reach only each other, and so do the others."""
        self._one_side = frozenset(one_side)
        self._healed.clear()

    def heal(self) -> None:
        self._one_side = frozenset()
        self._healed.set()

    def _is_cut(self, one: Node, other: Node) -> bool:
        return (one in self._one_side) != (other in self._one_side)

    # --- relays

    async def open(self) -> None:
        for node in self._nodes:
            federation = _federation(node)
            for key in ("fed_addr", "gossip_addr"):
                federation[f"advertise_{key}"] = f"127.0.0.1:{await self._relay(node, _port_of(federation[key]))}"
        for node in self._nodes:
            others = [_federation(other)["advertise_gossip_addr"] for other in self._nodes if other is not node]
            _federation(node)["retry_join"] = others

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for transport in self._datagrams:
            transport.close()
        for task in self._streams:
            task.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)

    async def _relay(self, target: Node, port: int) -> int:
        """Relay streams and datagrams to a port of a node, and of its further workers. Returns the port of the relay."""
        steps = _steps(target)
        relay_port = free_port(len(steps))
        for step in steps:
            await self._relay_one(target, port + step, relay_port + step)
        return relay_port

    async def _relay_one(self, target: Node, port: int, relay_port: int) -> None:
        loop = asyncio.get_running_loop()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            source = Source(writer.get_extra_info("peername")[1], time.monotonic())
            task = loop.create_task(self._relay_stream(source, target, port, reader, writer))
            self._streams.add(task)
            task.add_done_callback(self._streams.discard)

        self._servers.append(await asyncio.start_server(connected, "127.0.0.1", relay_port))
        transport, _ = await loop.create_datagram_endpoint(
            lambda: Datagrams(self, target, port), local_addr=("127.0.0.1", relay_port)
        )
        self._datagrams.append(transport)

    async def _relay_stream(
        self, source: Source, target: Node, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            await self._passes(source, target)
            there, to_there = await asyncio.open_connection("127.0.0.1", port)
            try:
                ways = [
                    asyncio.create_task(self._pump(source, target, reader, to_there)),
                    asyncio.create_task(self._pump(source, target, there, writer)),
                ]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
            except asyncio.CancelledError:
                for transport in (to_there.transport, writer.transport):
                    transport.abort()
                raise
            finally:
                to_there.close()
        except OSError:
            pass  # the node is not there: its side of the connection ends, too
        finally:
            writer.close()

    async def _pump(
        self, source: Source, target: Node, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass bytes on until one end closes."""
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._passes(source, target)
                writer.write(data)
                await writer.drain()
            await self._passes(source, target)

    async def _passes(self, source: Source, target: Node) -> None:
        """Return when bytes of a stream pass."""
        while self._one_side:
            node = await self._node_with(source)
            if node is None:
                raise ConnectionResetError("the other end is closed")
            if not self._is_cut(node, target):
                return
            await self._healed.wait()

    async def _node_with(self, source: Source) -> Node | None:
        """The node that a stream comes from. Sockets are looked up only where a split asks for it, beside the relays, and once
        for all streams that have come by then: one that is not found is closed. Nodes that reach nobody dial so often that a
        look for each stream took all the time of this process, and nothing passed on either side of a split."""
        if source.port not in self._by_port:
            async with self._looking:
                if source.port not in self._by_port and source.begun_at >= self._looked_at:
                    await asyncio.sleep(GATHER_SECONDS)
                    self._looked_at = time.monotonic()
                    self._by_port = await asyncio.to_thread(self._look)
        return self._by_port.get(source.port)

    def _look(self) -> dict[int, Node]:
        nodes = {process: node for node in self._nodes if node.process is not None for process in node.processes()}
        found: dict[int, Node] = {}
        for each in psutil.net_connections("tcp"):
            node = nodes.get(each.pid or 0)
            if node is not None and each.raddr and each.laddr:
                found[each.laddr.port] = node
        return found

    def datagram(self, port: int, target: Node) -> bool:
        """Whether a datagram from this port reaches the target."""
        source = self._by_gossip_port.get(port)
        return source is not None and not self._is_cut(source, target)


class Source(NamedTuple):
    """The other end of a stream: its port, and when it came."""

    port: int
    begun_at: float


class Datagrams(asyncio.DatagramProtocol):
    """Passes datagrams on to a node."""

    def __init__(self, network: SplitNetwork, target: Node, port: int) -> None:
        self._network = network
        self._target = target
        self._port = port
        self._transport: Any = None  # that of uvloop is no asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        if self._network.datagram(address[1], self._target):
            self._transport.sendto(data, ("127.0.0.1", self._port))

    def error_received(self, error: Exception) -> None:
        """The node does not listen now: the datagram is lost."""


def _federation(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = node.config["plugins"]["federation"]
    return found


def _steps(node: Node) -> range:
    """What is added to a port of the node for each of its workers."""
    return range(0, PORT_STEP * int(node.config.get("workers", 1)), PORT_STEP)


def _port_of(address: object) -> int:
    return int(str(address).rpartition(":")[2])
