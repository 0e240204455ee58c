"""Listeners: their addresses, TCP keep-alive, faults, and the end."""

from __future__ import annotations

import asyncio
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.codec.packets import Connect, PingReq
from broker.codec.writer import PINGRESP, encode_packet
from broker.config.addresses import parse_address
from broker.config.settings import Settings
from broker.config.settings_listeners import ListenerSettings
from broker.server.lifecycle import Server
from broker.server.listeners import PROBE_IDLE_SECONDS
from broker.server.protocol import ClientProtocol
from broker.server.start_error import StartError
from waiting import DEADLINE

CONNACK = b"\x20\x02\x00\x00"
Start = Callable[..., Awaitable[Server]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    servers = []

    async def start_server(*addresses: str, **keys: Any) -> Server:
        listeners = tuple(ListenerSettings(parse_address(address, 1883), **keys) for address in addresses)
        servers.append(Server(Settings(listeners=listeners)))
        await servers[-1].start()
        return servers[-1]

    yield start_server
    for server in servers:
        await server.stop()


async def exchange(sock: socket.socket, data: bytes, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    sock.setblocking(False)
    async with asyncio.timeout(DEADLINE):
        await loop.sock_sendall(sock, data)
        received = b""
        while len(received) < size and (more := await loop.sock_recv(sock, size)):
            received += more
    return received


async def test_the_kernel_probes_silent_clients(start: Start) -> None:
    server = await start("127.0.0.1:0", "127.0.0.1:0")
    assert len(set(server.listeners.addresses)) == 2
    for address in server.listeners.addresses:
        port = int(address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert await exchange(client, encode_packet(Connect(f"c{port}", 4), 4), 4) == CONNACK
            (protocol,) = server.protocols
            assert isinstance(protocol, ClientProtocol)
            assert protocol.transport is not None
            served = protocol.transport.get_extra_info("socket")
            assert served.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert served.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == PROBE_IDLE_SECONDS
            protocol.abort()
            assert await exchange(client, b"", 1) == b""


@pytest.mark.parametrize("mode", ["", "0600", "666"])
async def test_a_unix_socket(start: Start, tmp_path: Path, mode: str) -> None:
    """The file has the permissions of `socket_mode`, and goes with the listener."""
    path = tmp_path / "mqtt.sock"
    server = await start(f"unix://{path}", socket_mode=mode)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        assert await exchange(client, encode_packet(Connect("c", 4), 4), 4) == CONNACK
    if mode:
        assert stat.S_IMODE(path.stat().st_mode) == int(mode, 8)
    server.listeners.close()
    assert not path.exists()


async def test_the_file_of_a_dead_process_is_replaced(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    await start(f"unix://{path}")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        assert await exchange(client, encode_packet(Connect("c", 4), 4), 4) == CONNACK


async def test_the_file_of_a_living_process_stays(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(path))
        living.listen()
        with pytest.raises(StartError, match=r"^listeners\[0\]\.address: unix://.* is in use by another process"):
            await start(f"unix://{path}")
        assert path.is_socket()
    path.unlink()
    path.write_text("something else")
    with pytest.raises(StartError, match="exists already and is not a socket"):
        await start(f"unix://{path}")
    assert path.read_text() == "something else"


async def test_a_fault_names_the_key(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=rf"^listeners\[1\]\.address: 127\.0\.0\.1:{port} is in use"):
            await start("127.0.0.1:0", f"127.0.0.1:{port}")


async def test_open_connections_stay_when_the_listeners_close(start: Start) -> None:
    server = await start("127.0.0.1:0")
    port = int(server.listeners.addresses[0].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as client:
        assert await exchange(client, encode_packet(Connect("c", 4), 4), 4) == CONNACK
        server.listeners.close()
        assert await exchange(client, encode_packet(PingReq(), 4), 2) == PINGRESP
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
