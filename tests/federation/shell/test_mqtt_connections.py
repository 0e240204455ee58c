"""Connections of MQTT on the address of the event streams: an extension takes them, and they count until they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

from broker.codec.packets import Connect
from broker.codec.writer import encode_packet
from direct_peers import Raw
from federation.extension import Extension
from federation.shell.stream_server import StreamServer
from federation.trust import Caller
from stations import Station
from waiting import eventually

CONNECT = encode_packet(Connect("node", 5), 5)


class Echo(asyncio.Protocol):
    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()


class Taking(Extension):
    def mqtt_protocol(self, ended: Callable[[], None], caller: Caller) -> asyncio.Protocol:
        return Echo(ended)


@asynccontextmanager
async def started(*extensions: Extension) -> AsyncIterator[tuple[StreamServer, Raw]]:
    """A node with these extensions, and a connection to it."""
    station = await Station("n1", extensions=extensions).start()
    try:
        yield station.streams, await Raw.connect(int(station.addr.rpartition(":")[2]))
    finally:
        await station.stop()


async def test_an_extension_takes_connections_of_mqtt() -> None:
    async with started(Extension(), Taking()) as (server, peer):
        for data in (CONNECT[:1], CONNECT[1:]):
            peer.writer.write(data)
            assert await peer.reader.readexactly(len(data)) == data
        assert len(server.connections) == 1
        peer.writer.close()
        await eventually(lambda: not server.connections, "the connection counts no more")
        assert server.connections_refused == 0


async def test_connections_of_mqtt_are_refused_without_an_extension() -> None:
    async with started(Extension()) as (server, peer):
        peer.writer.write(CONNECT)
        assert await peer.rest() == b""
        assert server.connections_refused == 1
