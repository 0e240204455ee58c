"""A node with definitions and the API on free ports of loopback, without a broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from api_calls import api_settings
from broker.api.guard import ApiGuard
from broker.api.server import ApiServer
from broker.hooks import Members
from broker.server.logging import get_logger
from federation.definitions.api.services import register
from federation.definitions.entry import Key
from federation.definitions.resolution import Resolution
from federation.definitions.shell.service import DefinitionsService


class Host:
    """The part of broker.server.host.Host that definitions need. `resolutions` are those that the service told, `faults` what a
    plugin has raised."""

    def __init__(self, members: Members, guard: ApiGuard | None = None) -> None:
        self.members = members
        self.api = ApiServer(api_settings(["tcp://127.0.0.1:0"], ["tcp://127.0.0.1:0"]), {}, get_logger("api"), guard)
        self.resolutions: list[Resolution] = []
        self.faults: list[Exception] = []
        self.skew = 0.0  # seconds that the clock is ahead

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def plugin_error(self, error: Exception) -> None:
        self.faults.append(error)

    def wall_time(self, monotonic: float) -> float:
        return monotonic - self.now() + time.time() + self.skew


@asynccontextmanager
async def definitions_node(
    folder: Path | str = "", declared: dict[Key, object] | None = None, guard: ApiGuard | None = None
) -> AsyncIterator[tuple[DefinitionsService, Any]]:
    """(the service, its host)"""
    host = Host(Members("n1"), guard)
    server: Any = host
    service = DefinitionsService(server, declared or {}, str(folder), host.resolutions.append)
    await service.prepare()
    register(host.api, service)
    await host.api.start()
    try:
        yield service, host
    finally:
        await service.stop()
        await host.api.stop()
