"""A node as the API sees it: the real broker in virtual time, with the real API on free ports of loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import aiohttp
import grpc.aio
import pytest

from api_calls import PUBLISH, Rest, Service, api_settings
from broker.api.plugin import AdminPlugin
from broker.api.server import ApiServer
from broker.config.settings import Settings
from broker.metrics.broker_metrics import broker_numbers
from broker.metrics.figures import Numbers
from broker.server.logging import get_logger
from broker.server.traces import Traces


class Node:
    """The part of broker.server.lifecycle.Server that the services need."""

    def __init__(self, world: Any, settings: Settings) -> None:
        self.world = world
        self.broker = world.broker
        self.settings = settings
        self.flushes = 0
        self.loop = asyncio.get_running_loop()
        self.protocols: set[object] = set()
        self._traces: Traces | None = None
        self.admin: AdminPlugin
        self.api = ApiServer(settings.api, {}, get_logger("api"))

    def now(self) -> float:
        return float(self.world.now)

    def wall_time(self, monotonic: float) -> float:
        return monotonic + 1_700_000_000.0

    def node_numbers(self) -> tuple[Numbers, Numbers]:
        return broker_numbers(self.broker)

    def made_traces(self) -> Traces:
        if self._traces is None:
            self._traces = Traces(self.now, self.wall_time, self.settings.mqtt.max_packet_size)
        return self._traces

    def flush_soon(self) -> None:
        self.flushes += 1
        self.world.flush()


@pytest.fixture
async def node(make_world: Callable[..., Any], request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    """With the admin services on one address of each protocol; `node` marks carry limits of `mqtt`."""
    limits = getattr(request, "param", {})
    settings = Settings(api=api_settings(["tcp://127.0.0.1:0"], ["tcp://127.0.0.1:0"]))
    settings = replace(settings, mqtt=replace(settings.mqtt, **limits))
    node = Node(make_world(**limits), settings)
    node.admin = AdminPlugin(node)  # type: ignore[arg-type]
    await node.admin.prepare()
    await node.api.start()
    yield node
    await node.api.stop()


@pytest.fixture
async def rest(node: Node) -> AsyncIterator[Rest]:
    async with aiohttp.ClientSession() as session:
        yield Rest(session, f"http://{node.api.http_addresses[0]}")


@pytest.fixture
async def channel(node: Node) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(node.api.grpc_addresses[0]) as channel:
        yield channel


@pytest.fixture
async def make_api() -> AsyncIterator[Callable[..., tuple[ApiServer, Service]]]:
    """An API with the test's own PublishService; the addresses of each protocol are given. The test starts it."""
    made: list[ApiServer] = []

    def make(
        grpc_addresses: list[str], http_addresses: list[str], allowed_hosts: tuple[str, ...] = ()
    ) -> tuple[ApiServer, Service]:
        settings = api_settings(grpc_addresses, http_addresses)
        settings = replace(settings, http=tuple(replace(one, allowed_hosts=allowed_hosts) for one in settings.http))
        api = ApiServer(settings, {}, get_logger("api"))
        service = Service()
        api.register(PUBLISH, service)
        made.append(api)
        return api, service

    yield make
    for api in made:
        await api.stop()
