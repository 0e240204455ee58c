"""Fixtures: nodes as processes, nodes in this process, MQTT clients (tests/support)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.config.loader import load
from broker.server.lifecycle import Server
from browser_page import CHROMIUM
from mosquitto_broker import PROGRAM, MosquittoBroker, StartMosquitto
from mosquitto_process import MOSQUITTO_MISSING, Mosquitto
from mqtt_client import Clients, Watch
from node_process import Node, Nodes, merged, nodes_in


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    """Nodes as processes."""
    async with nodes_in(tmp_path) as made:
        yield made


@pytest.fixture
async def start_server(tmp_path: Path) -> AsyncIterator[Callable[[dict[str, Any]], Awaitable[Server]]]:
    """Starts servers on this loop, for tests that look at counters."""
    started: list[Server] = []

    async def start(overrides: dict[str, Any]) -> Server:
        path = tmp_path / f"server{len(started)}.yml"
        path.write_text(yaml.safe_dump(merged({"listeners": [{"address": "127.0.0.1:0"}]}, overrides)))
        loaded = load(str(path))
        assert loaded.settings is not None, loaded.faults
        server = Server(loaded.settings)
        started.append(server)
        await server.start()
        return server

    yield start
    await asyncio.gather(*(server.stop() for server in started))


@pytest.fixture
async def clients(nodes: Nodes) -> AsyncIterator[Clients]:
    opened = Clients()
    yield opened
    await opened.close()


@pytest.fixture
async def browser() -> AsyncIterator[Any]:
    """Chromium, without a window."""
    playwright = pytest.importorskip("playwright.async_api", reason="no playwright: scripts/setup")
    async with playwright.async_playwright() as started:
        made = await started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        await made.close()


@pytest.fixture
async def watch(clients: Clients) -> Callable[[Node | int], Awaitable[Watch]]:
    async def start(node: Node | int) -> Watch:
        port = node if isinstance(node, int) else node.port
        subscriber = await clients.connect(port, "watch-subscriber")
        await subscriber.subscribe("watch/topic", qos=2)
        return Watch(subscriber, await clients.connect(port, "watch-publisher"))

    return start


@pytest.fixture
async def mosquitto(nodes: Nodes) -> AsyncIterator[Mosquitto]:
    if MOSQUITTO_MISSING:
        pytest.skip("mosquitto_pub and mosquitto_sub (Debian package mosquitto-clients) are missing")
    clients = Mosquitto()
    yield clients
    await clients.close()


@pytest.fixture
async def start_mosquitto(tmp_path: Path) -> AsyncIterator[StartMosquitto]:
    """Starts brokers of mosquitto, which are stopped with the test."""
    if PROGRAM is None:
        pytest.skip("mosquitto (Debian package) is missing")
    started: list[MosquittoBroker] = []

    async def start(extra: str = "", persists: bool = False) -> MosquittoBroker:
        broker = MosquittoBroker(tmp_path, extra, persists)
        started.append(broker)
        return await broker.start()

    yield start
    for broker in started:
        await broker.stop()
