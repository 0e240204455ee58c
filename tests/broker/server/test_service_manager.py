"""The messages to systemd, taken by a socket in its place."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.server.service_manager import ServiceManager
from waiting import DEADLINE


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    path = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        sock.setblocking(False)
        yield sock


async def message(systemd: socket.socket) -> str:
    return (await asyncio.wait_for(asyncio.get_running_loop().sock_recv(systemd, 4096), DEADLINE)).decode()


async def test_a_start_a_reload_and_a_stop_are_told(systemd: socket.socket) -> None:
    manager = ServiceManager(asyncio.get_running_loop())
    manager.ready()
    assert await message(systemd) == "READY=1"
    manager.reloading()
    first, second = (await message(systemd)).split("\n")
    assert first == "RELOADING=1"
    name, value = second.split("=")
    assert (name, value.isdecimal()) == ("MONOTONIC_USEC", True)
    manager.ready()
    assert await message(systemd) == "READY=1"
    manager.stopping()
    assert await message(systemd) == "STOPPING=1"


async def test_the_watchdog_is_told_again_and_again(systemd: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    manager = ServiceManager(asyncio.get_running_loop())
    manager.ready()
    assert [await message(systemd) for _ in range(4)] == ["READY=1", *["WATCHDOG=1"] * 3]
    manager.stopping()
    while (last := await message(systemd)) == "WATCHDOG=1":
        pass
    assert last == "STOPPING=1"


async def test_the_watchdog_of_another_process_is_not_told(
    systemd: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid() + 1))
    manager = ServiceManager(asyncio.get_running_loop())
    manager.ready()
    manager.stopping()
    assert [await message(systemd) for _ in range(2)] == ["READY=1", "STOPPING=1"]


async def test_an_abstract_address_is_used_and_a_missing_receiver_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"gmqttd-test-{os.getpid()}"
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    manager = ServiceManager(asyncio.get_running_loop())
    manager.ready()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{name}")
        sock.setblocking(False)
        manager.stopping()
        assert await message(sock) == "STOPPING=1"


async def test_nothing_is_sent_without_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    ServiceManager(asyncio.get_running_loop()).ready()
