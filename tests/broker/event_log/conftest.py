"""Logs in a folder of the test."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from api_calls import Rest, api_settings
from broker.api.server import ApiServer
from broker.event_log.pb import event_log_pb2 as pb
from broker.event_log.service import EventLogService
from broker.event_log.settings import EventLogSettings
from broker.hooks import Members, OtherNode
from broker.server.logging import get_logger
from event_log_reader import AppendingLog, Clock, MakeLog


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def make_log(tmp_path: Path, clock: Clock) -> AsyncIterator[MakeLog]:
    """Start a log in the test's folder, with settings by name. Logs that a test leaves running are stopped."""
    logs: list[AppendingLog] = []

    async def make(node: str = "n1", files: Any = None, **settings: Any) -> AppendingLog:
        wanted = dataclasses.replace(EventLogSettings(dir=str(tmp_path / "log")), **settings)
        made = AppendingLog(wanted, node, files, clock)
        logs.append(made)
        await made.start()
        return made

    yield make
    for log in logs:
        await log.stop()


class OtherNodes(Members):
    def others(self) -> list[OtherNode]:
        return [
            OtherNode("b", "ALIVE", {"log_addr": "192.0.2.1:8084", "fed_addr": "192.0.2.1:8901"}),
            OtherNode("go", "FAILED", {"fed_addr": "192.0.2.2:8901"}),
        ]


@pytest.fixture
async def log(make_log: MakeLog) -> AppendingLog:
    return await make_log("a")


@pytest.fixture
async def service(log: AppendingLog) -> EventLogService:
    return EventLogService(log, OtherNodes("a"))


@pytest.fixture
async def api(service: EventLogService) -> AsyncIterator[ApiServer]:
    api = ApiServer(api_settings(["127.0.0.1:0"], ["127.0.0.1:0"]), {}, get_logger("api"))
    api.register(pb.DESCRIPTOR.services_by_name["EventLog"], service)
    await api.start()
    yield api
    await api.stop()


@pytest.fixture
async def rest(api: ApiServer) -> AsyncIterator[Rest]:
    async with aiohttp.ClientSession() as session:
        yield Rest(session, f"http://{api.http_addresses[0]}")
