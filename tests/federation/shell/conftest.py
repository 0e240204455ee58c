"""Fixtures: nodes on sockets (tests/support/stations.py), and proxies between them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest_asyncio

from broker.server.tls_transport import TlsConnection
from direct_peers import Proxy
from federation.shell.direct_client import DirectConnection
from federation.shell.direct_server import DirectServerProtocol
from federation.shell.passing import Passing
from federation.shell.stream_server import Front
from stations import BYTES_MAX, StartStation, Station

KINDS = (DirectServerProtocol, DirectConnection, asyncio.StreamReaderProtocol, Front, Passing, TlsConnection)


@pytest_asyncio.fixture
async def start_station() -> AsyncIterator[StartStation]:
    """Nodes that are stopped at the end: then nothing may be left, and nothing may have escaped into the loop."""
    stations: list[Station] = []
    escaped: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: escaped.append(context))

    async def start(name: str, host: str = "127.0.0.1", bytes_max: int = BYTES_MAX, **trust: Any) -> Station:
        station = Station(name, bytes_max, **trust)
        stations.append(station)
        return await station.start(host)

    yield start
    for station in stations:
        await station.stop()
        assert not station.streams.connections
        assert [line for line in station.log.lines if line[0] == "error"] == []
    await asyncio.sleep(0)
    gc.collect()
    assert escaped == []
    left = [found for found in gc.get_objects() if isinstance(found, KINDS)]
    assert left == [], "a timer or a task keeps a connection"


@pytest_asyncio.fixture
async def start_proxy() -> AsyncIterator[Callable[..., Any]]:
    proxies: list[Proxy] = []

    async def start(target: int, mode: str = "pass") -> Proxy:
        proxy = await Proxy(target, mode).start()
        proxies.append(proxy)
        return proxy

    yield start
    for proxy in proxies:
        await proxy.stop()
