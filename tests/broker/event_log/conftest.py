"""Logs in a folder of the test."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.event_log.settings import EventLogSettings
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
