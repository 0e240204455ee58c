"""A node as the API sees it: the real broker in virtual time, with the real API on a free port of loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import aiohttp
import grpc.aio
import pytest
from yarl import URL

from broker.api.plugin import AdminPlugin
from broker.api.server import ApiServer
from broker.config.addresses import parse_address
from broker.config.settings import ApiListener, ApiSettings, Settings
from broker.server.logging import get_logger


def api_settings(grpc_addresses: list[str], http_addresses: list[str]) -> ApiSettings:
    return ApiSettings(
        grpc=tuple(ApiListener(parse_address(text)) for text in grpc_addresses),
        http=tuple(ApiListener(parse_address(text)) for text in http_addresses),
    )


class Node:
    """What the services need of broker.server.lifecycle.Server."""

    def __init__(self, world: Any, settings: Settings) -> None:
        self.world = world
        self.broker = world.broker
        self.settings = settings
        self.flushes = 0
        self.api = ApiServer(settings.api, get_logger("api"))

    def now(self) -> float:
        return float(self.world.now)

    def wall_time(self, monotonic: float) -> float:
        return monotonic + 1_700_000_000.0

    def flush_soon(self) -> None:
        self.flushes += 1
        self.world.flush()


class Rest:
    """REST calls to one address; each gives status and decoded JSON."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self.session = session
        self.base = base

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        data = body if body is None or isinstance(body, bytes | str) else aiohttp.JsonPayload(body)
        url = URL(self.base + path, encoded=True)
        async with self.session.request(method, url, data=data, allow_redirects=False, **options) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> Any:
        status, answer = await self.call("GET", path)
        assert status == 200, answer
        return answer

    async def post(self, path: str, body: Any) -> Any:
        status, answer = await self.call("POST", path, body)
        assert status == 200, answer
        return answer


@pytest.fixture
def make_api_settings() -> Callable[[list[str], list[str]], ApiSettings]:
    return api_settings


@pytest.fixture
async def node(make_world: Callable[..., Any], request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    """With the admin services on one address of each protocol; `node` marks carry limits of `mqtt`."""
    limits = getattr(request, "param", {})
    settings = Settings(api=api_settings(["tcp://127.0.0.1:0"], ["tcp://127.0.0.1:0"]))
    settings = replace(settings, mqtt=replace(settings.mqtt, **limits))
    node = Node(make_world(**limits), settings)
    await AdminPlugin(node).prepare()  # type: ignore[arg-type]
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
