"""Clients of a running node that a task accepts or refuses, while their sockets are open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from broker.codec.packets import ConnAck, Connect, Publish
from broker.codec.reason_codes import BAD_USER_NAME_OR_PASSWORD, SERVER_BUSY, SERVER_UNAVAILABLE
from broker.codec.writer import encode_packet
from broker.hooks import ConnectDecider, ConnectRequest
from waiting import eventually

if TYPE_CHECKING:
    from broker.server.lifecycle import Server
    from mqtt_client import Clients

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]

WAITING_MAX: Final = 3
MIB: Final = 2**20


def port_of(server: Server) -> int:
    return int(server.listeners.addresses[0].rpartition(":")[2])


class TaskDecider(ConnectDecider):
    """A task checks passwords, one after the other; each check awaits `verdicts`, as one in a thread would be awaited. At most
    WAITING_MAX requests wait."""

    def __init__(self, server: Server) -> None:
        self.checking: asyncio.Queue[str] = asyncio.Queue()  # client ids whose check has begun
        self.verdicts: asyncio.Queue[bool] = asyncio.Queue()
        self._server = server
        self._waiting: asyncio.Queue[ConnectRequest] = asyncio.Queue(WAITING_MAX)
        self._task = asyncio.create_task(self._check_all())
        server.broker.add_connect_decider(self)

    def decide(self, request: ConnectRequest, now: float) -> None:
        if self._waiting.full():
            request.refuse(SERVER_BUSY, "too many clients wait")
        else:
            self._waiting.put_nowait(request)

    async def _check_all(self) -> None:
        while True:
            request = await self._waiting.get()
            if not request.is_open():
                continue
            self.checking.put_nowait(request.client_id)
            if await self.verdicts.get():
                request.accept()
            else:
                request.refuse(BAD_USER_NAME_OR_PASSWORD, "wrong password")
            self._server.flush_soon()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def test_a_task_decides_while_clients_wait(start_server: StartServer, clients: Clients) -> None:
    """The first client sends 8 MiB behind its CONNECT. The node takes a bounded part of it; after the answer all messages
    arrive, in order. The second client is refused, the last one is one too many."""
    server = await start_server({})
    port = port_of(server)
    watcher = await clients.connect(port, "watcher")
    await watcher.subscribe("t")
    decider = TaskDecider(server)
    try:
        first = await clients.open(port)
        count = 8 * MIB // 65_536
        first.send_bytes(encode_packet(Connect("first", 5), 5))
        first.send(*(Publish(b"t", b"%d " % number + bytes(65_000)) for number in range(count)))
        assert await decider.checking.get() == "first"
        connection = next(iter(server.broker.connecting))
        others = [await clients.open(port) for _ in range(WAITING_MAX + 1)]
        for number, client in enumerate(others):
            client.send(Connect(f"other-{number}", 5))
            if number == WAITING_MAX:
                assert (await client.answer(ConnAck)).reason_code == SERVER_BUSY
            else:
                await eventually(lambda at=number + 2: len(server.broker.connecting) == at, "CONNECT is read")
        assert connection.received_bytes < MIB
        assert watcher.messages.empty()
        decider.verdicts.put_nowait(True)
        assert (await first.answer(ConnAck)).reason_code == 0
        payloads = [message.payload.split(b" ")[0] for message in await watcher.take(count)]
        assert payloads == [b"%d" % number for number in range(count)]
        decider.verdicts.put_nowait(False)
        assert (await others[0].answer(ConnAck)).reason_code == BAD_USER_NAME_OR_PASSWORD
        await others[0].wait_closed()
    finally:
        await decider.close()


async def test_a_client_that_left_is_no_obstacle(start_server: StartServer, clients: Clients) -> None:
    """Its socket is not read while it waits, so the node learns of the end after the answer."""
    server = await start_server({})
    decider = TaskDecider(server)
    try:
        gone = await clients.open(port_of(server))
        gone.send(Connect("c", 5))
        assert await decider.checking.get() == "c"
        gone.abort()
        decider.verdicts.put_nowait(True)
        await eventually(lambda: not server.protocols, "the node has closed the socket")
        assert (server.broker.sessions, server.broker.connecting) == ({}, {})
        again = await clients.open(port_of(server))
        again.send(Connect("c", 5))
        decider.verdicts.put_nowait(True)
        assert (await again.answer(ConnAck)).reason_code == 0
    finally:
        await decider.close()


async def test_the_stop_refuses_a_client_that_waits(start_server: StartServer, clients: Clients) -> None:
    server = await start_server({})
    decider = TaskDecider(server)
    try:
        client = await clients.open(port_of(server))
        client.send(Connect("c", 5))
        assert await decider.checking.get() == "c"
        await server.stop()
        assert (await client.answer(ConnAck)).reason_code == SERVER_UNAVAILABLE
        await client.wait_closed()
        decider.verdicts.put_nowait(True)
        await eventually(decider.verdicts.empty, "the late answer is given")
        assert server.broker.sessions == {}
    finally:
        await decider.close()
