"""SocketWriter: the bytes in their order, however much the socket takes, and faults of the socket."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest

from broker.server.socket_writer import SocketWriter
from waiting import DEADLINE


class Sender(asyncio.Protocol):
    def __init__(self) -> None:
        self.made = asyncio.get_running_loop().create_future()
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made.set_result(cast(asyncio.Transport, transport))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


Pair = tuple[Sender, asyncio.Transport, socket.socket]
MakePair = Callable[[int], Awaitable[Pair]]


@pytest.fixture
async def pair() -> AsyncIterator[MakePair]:
    """Makes a protocol, its transport, and the socket of the other end."""
    made: list[Pair] = []

    async def make(buffer_size: int) -> Pair:
        made.append(await _pair(buffer_size))
        return made[-1]

    yield make
    for sender, transport, other_end in made:
        transport.abort()  # uvloop's loop would wait for it for ever
        other_end.close()
        async with asyncio.timeout(DEADLINE):
            await sender.lost


async def _pair(buffer_size: int) -> Pair:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_size)
        loop = asyncio.get_running_loop()
        transport, sender = await loop.create_connection(Sender, "127.0.0.1", server.getsockname()[1])
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_size)
        other_end, _ = server.accept()
    other_end.setblocking(False)
    return sender, transport, other_end


class Counting(asyncio.Transport):
    """A transport whose writes are counted."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self.writes = 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def write(self, data: Any) -> None:
        self.writes += 1
        self._transport.write(data)


async def test_the_transport_is_not_used_while_the_socket_takes_all(pair: MakePair) -> None:
    _, transport, other_end = await pair(65_536)
    counting = Counting(transport)
    writer = SocketWriter(counting)
    for number in range(100):
        writer.write(b"%d," % number)
    expected = b"".join(b"%d," % number for number in range(100))
    received = b""
    while len(received) < len(expected):
        received += other_end.recv(65_536)  # raises unless the bytes are there, because the loop has not run
    assert received == expected
    assert counting.writes == 0


@pytest.mark.parametrize("seed", range(8))
async def test_a_slow_reader_gets_everything_in_order(pair: MakePair, seed: int) -> None:
    rng = random.Random(seed)
    _, transport, other_end = await pair(4096)
    counting = Counting(transport)
    writer = SocketWriter(counting)
    sent = bytearray()
    received = bytearray()
    for number in range(2_000):
        data = bytes((number % 251,)) * rng.choice((1, 10, 100, 1000, 30_000 if number % 50 == 0 else 10))
        writer.write(data)
        sent += data
        while rng.random() < 0.6:
            try:
                received += other_end.recv(rng.choice((100, 5_000, 100_000)))
            except BlockingIOError:
                break
        if rng.random() < 0.3:
            await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(DEADLINE):
        while len(received) < len(sent):
            received += await loop.sock_recv(other_end, 100_000)
    is_same = received == sent
    assert is_same
    before = counting.writes
    assert before > 0, "the socket was full at times"
    assert transport.get_write_buffer_size() == 0, "all of it was read"
    writer.write(b"once more")
    assert counting.writes == before
    assert await loop.sock_recv(other_end, 100) == b"once more"


async def test_the_protocol_is_told_of_a_broken_socket(pair: MakePair) -> None:
    sender, transport, other_end = await pair(65_536)
    writer = SocketWriter(transport)
    other_end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close by a reset
    other_end.close()
    writer.write(b"x")
    writer.write(b"y")
    async with asyncio.timeout(DEADLINE):
        await sender.lost
    assert transport.is_closing()


async def test_a_write_after_the_close_does_nothing(pair: MakePair) -> None:
    sender, transport, other_end = await pair(65_536)
    writer = SocketWriter(transport)
    writer.write(b"last")
    transport.close()
    writer.write(b"")
    async with asyncio.timeout(DEADLINE):
        assert await sender.lost is None
    other_end.setblocking(True)
    assert other_end.recv(100) == b"last"
    assert other_end.recv(100) == b""
