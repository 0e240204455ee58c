"""The event stream between two nodes under faults: nothing is lost, doubled or out of order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING

import pytest

from mqtt_client import reached
from node_process import PATIENT
from waiting import DEADLINE

if TYPE_CHECKING:
    from mqtt_client import Clients, MqttClient
    from node_process import Node, Nodes


async def stream(
    publisher: MqttClient,
    subscriber: MqttClient,
    count: int,
    fault: Callable[[asyncio.Event], Coroutine[None, None, None]],
) -> None:
    """Messages at QoS 1, the fault after a third of them; all arrive, in order, once.

    The fault is given an event, which is set when the last message was published."""

    received: list[int] = []
    published = asyncio.Event()

    async def receive() -> None:
        while len(received) < count:
            received.append(int((await subscriber.message(60)).payload))

    receiving = asyncio.create_task(receive())
    breaking: asyncio.Task[None] | None = None
    try:
        for number in range(count):
            await publisher.publish("stream", b"%d" % number, 1)
            if number == count // 3:
                breaking = asyncio.create_task(fault(published))
        published.set()
        assert breaking is not None
        await breaking
        before = -1
        while not receiving.done() and before < len(received):  # as long as any come
            before = len(received)
            await asyncio.wait((receiving,), timeout=5)
        missing = sorted(set(range(count)) - set(received))
        assert not missing, f"{len(missing)} are missing: {missing[:20]}"
        assert received == list(range(count))
        await publisher.publish("stream", b"over", 1)
        assert (await subscriber.message()).payload == b"over", "nothing came twice"
    finally:
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)


@pytest.mark.slow
async def test_stream_over_a_stopped_node(nodes: Nodes, clients: Clients) -> None:
    """The subscriber's node is stopped until all is published. The backlog then comes faster than the subscriber reads; the
    stream is held, and the queue of 1000 does not overflow."""
    node1, node2 = await nodes.federation(2, PATIENT)
    subscriber = await clients.connect(node2.port)
    await subscriber.subscribe("stream", qos=1)
    publisher = await clients.connect(node1.port)
    await reached(publisher, "stream", subscriber)

    async def stand_still(published: asyncio.Event) -> None:
        os.kill(node2.pid, signal.SIGSTOP)
        await asyncio.wait_for(published.wait(), DEADLINE)
        os.kill(node2.pid, signal.SIGCONT)

    await stream(publisher, subscriber, 2000, stand_still)


class Proxy:
    """A TCP proxy whose connections can be cut."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.connected = asyncio.Event()

    async def start(self, port: int) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.connected.set()
        self._writers.add(writer)
        try:
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(target_writer)
        for source, sink in ((reader, target_writer), (target_reader, writer)):
            task = asyncio.create_task(self._copy(source, sink))
            self._tasks.add(task)

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        sink.close()

    async def cut(self) -> None:
        """End every connection at once."""
        writers, self._writers = self._writers, set()
        for writer in writers:
            writer.transport.abort()
        for writer in writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def proxied(nodes: Nodes) -> AsyncIterator[tuple[Node, Node, Proxy]]:
    """Two nodes; what node 1 sends to node 2 goes through the proxy."""
    node1 = nodes.make_federated(overrides=PATIENT)
    port = nodes.free_port()
    overrides = {"plugins": {"federation": {"advertise_fed_addr": f"127.0.0.1:{port}"}}}
    node2 = nodes.make_federated([node1], PATIENT | overrides)
    proxy = Proxy(int(node2.config["plugins"]["federation"]["fed_addr"].rsplit(":", 1)[1]))
    await proxy.start(port)
    await node1.start()
    await node2.start()
    await nodes.all_alive([node1, node2])
    yield node1, node2, proxy
    await proxy.close()


async def test_stream_over_a_cut_connection(proxied: tuple[Node, Node, Proxy], clients: Clients) -> None:
    node1, node2, proxy = proxied
    subscriber = await clients.connect(node2.port)
    await subscriber.subscribe("stream", qos=1)
    publisher = await clients.connect(node1.port)
    await reached(publisher, "stream", subscriber)
    before = proxy.connections

    async def cut(_published: asyncio.Event) -> None:
        for _ in range(3):
            proxy.connected.clear()
            await proxy.cut()
            async with asyncio.timeout(DEADLINE):
                await proxy.connected.wait()

    await stream(publisher, subscriber, 2000, cut)
    assert proxy.connections >= before + 3
