"""The host: time, internal faults, the end of the process."""

from __future__ import annotations

import asyncio
import io
import time

import pytest

from broker.codec.packets import Connect, Will
from broker.codec.writer import encode_packet
from broker.config.settings import Settings
from broker.hooks import Tap
from broker.message import Message
from broker.publisher import Publisher
from broker.server.host import Host
from broker.session.connection import Connection


class Shell:
    """The shell of one connection. A transport is never needed."""

    transport: asyncio.Transport | None = None

    def __init__(self) -> None:
        self.aborts = 0

    def abort(self) -> None:
        self.aborts += 1


async def test_wall_time_runs_with_the_monotonic_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    host = Host(Settings())
    start = host.wall_time(0.0)
    monkeypatch.setattr(time, "time", lambda: 5.0)
    assert host.wall_time(60.0) == start + 60.0, "a change of the system's clock does not matter"
    assert abs(host.wall_time(host.now()) - 1_700_000_000.0) < 60.0


async def test_a_node_without_a_federation_has_no_other_nodes() -> None:
    host = Host(Settings())
    assert (host.members.node_name, host.members.others(), host.tags) == ("", [], {})


class BrokenTap(Tap):
    def is_essential(self) -> bool:
        return True

    def published(self, message: Message, publisher: Publisher | None, now: float) -> None:
        raise RuntimeError("second")


async def test_a_fault_in_closing_a_client_ends_its_socket(log: io.StringIO) -> None:
    host = Host(Settings())
    shells = [Shell(), Shell()]
    for shell in shells:
        connection = Connection(host.broker, shell, "", "", host.now())
        connect = Connect(f"c{len(host.broker.sessions)}", 5, will=Will(b"will", b""))
        connection.receive_data(encode_packet(connect, 5), host.now())
        host.internal_error(connection, RuntimeError("first"))
        assert connection.closed
        host.broker.add_tap(BrokenTap())
    assert [shell.aborts for shell in shells] == [0, 1]
    assert log.getvalue().count("RuntimeError: first") == 2
    assert log.getvalue().count("RuntimeError: second") == 1


async def test_the_first_reason_for_the_end_stays(log: io.StringIO) -> None:
    host = Host(Settings())
    host.stop_soon("the name is taken")
    host.stop_soon("something else")
    async with asyncio.timeout(30):
        await host.wait_stopped()
    assert host.stop_reason == "the name is taken"
