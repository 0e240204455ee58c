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
from mosquitto_process import MOSQUITTO_MISSING, Mosquitto
from mqtt_client import Clients, Watch
from node_process import Node, Nodes, merged


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not MOSQUITTO_MISSING:
        return
    skip = pytest.mark.skip(reason="mosquitto_pub and mosquitto_sub (Debian package mosquitto-clients) are missing")
    for item in items:
        if "mosquitto" in getattr(item, "fixturenames", ()):
            item.add_marker(skip)


@pytest.fixture
async def nodes(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Nodes]:
    """Nodes as processes. Each must end cleanly. Their logs are printed, so that a failed test shows them."""
    made = Nodes(tmp_path)
    try:
        yield made
    finally:
        await asyncio.gather(*(node.finish() for node in made.all))
        for node in made.all:
            print(f"--- log of {node.name}\n{node.log()[-8000:]}")
        unclean = [text for node in made.all for text in node.unclean]
        assert not unclean, unclean


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
async def watch(clients: Clients) -> Callable[[Node | int], Awaitable[Watch]]:
    async def start(node: Node | int) -> Watch:
        port = node if isinstance(node, int) else node.port
        subscriber = await clients.connect(port, "watch-subscriber")
        await subscriber.subscribe("watch/topic", qos=2)
        return Watch(subscriber, await clients.connect(port, "watch-publisher"))

    return start


@pytest.fixture
async def mosquitto(nodes: Nodes) -> AsyncIterator[Mosquitto]:
    clients = Mosquitto()
    yield clients
    await clients.close()
