"""Bad input to one node: it gets a clear error or a counted drop, and other clients are served."""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import pytest

from broker.codec.packets import ConnAck, Connect, Publish, SubAck, Subscribe, SubscribeFilter
from broker.codec.writer import encode_packet
from node_process import LANE_WORKERS
from waiting import eventually

if TYPE_CHECKING:
    from mqtt_client import Clients, MqttClient, Watch
    from node_process import Node, Nodes

    StartWatch = Callable[[Node], Awaitable[Watch]]

MIB: Final = 2**20
PACKET_TOO_LARGE: Final = 0x95
PROTOCOL_ERROR: Final = 0x82
QUOTA_EXCEEDED: Final = 0x97


def connect_packet(client_id: str, version: int = 5) -> bytes:
    return encode_packet(Connect(client_id, version, True), version)


async def dropped(writer: asyncio.StreamWriter) -> None:
    """Close the connection without DISCONNECT."""
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


# --- packets


@pytest.mark.parametrize("following", [0, 3 * MIB])
async def test_packet_above_the_limit(nodes: Nodes, clients: Clients, watch: StartWatch, following: int) -> None:
    """A client that is still sending it reads the reason for the close."""
    node = await nodes.start({"mqtt": {"max_packet_size": "1MiB"}})
    others = await watch(node)
    for version in (5, 4):
        client = await clients.connect(node.port, "", version)
        packet = encode_packet(Publish(b"a", bytes(4 * MIB)), version)
        client.send_bytes(packet[: 10 + following])
        await client.wait_closed()
        if version == 5:
            assert client.disconnect is not None
            assert client.disconnect.reason_code == PACKET_TOO_LARGE
    allowed = await clients.connect(node.port)
    await allowed.publish("a", bytes(MIB - 100), 1)
    await others.check()


async def test_two_connects(nodes: Nodes, clients: Clients, watch: StartWatch) -> None:
    node = await nodes.start()
    others = await watch(node)
    client = await clients.connect(node.port, "twice")
    client.send(Connect("twice", 5, True))
    await client.wait_closed()
    assert client.disconnect is not None
    assert client.disconnect.reason_code == PROTOCOL_ERROR
    both = await clients.open(node.port)
    both.send_bytes(connect_packet("twice") * 2)
    await both.answer(ConnAck)
    await both.wait_closed()
    await others.check()


async def test_first_packet_is_no_connect(nodes: Nodes, clients: Clients, watch: StartWatch) -> None:
    node = await nodes.start()
    others = await watch(node)
    for data in (
        b"\xc0\x00",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 9,
    ):
        client = await clients.open(node.port)
        client.send_bytes(data)
        await client.wait_closed()
        assert client.connack is None
    await others.check()


async def test_random_bytes(nodes: Nodes, clients: Clients, watch: StartWatch) -> None:
    """Thousands of connections with noise, and with noise behind a good CONNECT."""
    node = await nodes.start({"mqtt": {"connect_timeout": "1s"}})
    others = await watch(node)
    rng = random.Random(20260101)

    async def noise(count: int) -> None:
        for _ in range(count):
            data = bytearray(rng.randbytes(rng.randrange(1, 300)))
            kind = rng.randrange(4)
            if kind == 1:
                data[:0] = connect_packet(f"noise-{rng.randrange(50)}", rng.choice((3, 4, 5)))
            elif kind == 2:  # random bytes with a correct Remaining Length
                data = data[:125]
                data[:0] = connect_packet("") + bytes((rng.randrange(256), len(data)))
            elif kind == 3:  # a good packet with some bytes changed
                data = bytearray(
                    connect_packet("") + encode_packet(Publish(b"watch/x", bytes(9), 1, True, False, 7), 5)
                )
                for _ in range(3):
                    data[rng.randrange(len(data))] = rng.randrange(256)
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            with contextlib.suppress(OSError):
                writer.write(data)
                await writer.drain()
                if rng.random() < 0.5:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.005):
                            await reader.read(1000)
            await dropped(writer)

    async def keep_checking() -> None:
        while True:
            await others.check()

    checking = asyncio.create_task(keep_checking())
    await asyncio.gather(*(noise(300) for _ in range(10)))
    assert not checking.done(), checking
    checking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await checking
    fresh = await watch_again(clients, node)
    await fresh.ping()
    assert "fault in handling a client" not in node.log()
    assert "Traceback" not in node.log()


async def watch_again(clients: Clients, node: Node) -> MqttClient:
    client = await clients.connect(node.port)
    await client.subscribe("fresh", qos=1)
    await client.publish("fresh", b"x", 1)
    assert (await client.message()).payload == b"x"
    return client


# --- subscriptions and connections


async def test_100_000_subscriptions(nodes: Nodes, clients: Clients, watch: StartWatch) -> None:
    node = await nodes.start()
    others = await watch(node)
    client = await clients.connect(node.port)
    codes: list[int] = []
    for start in range(0, 100_000, 2000):
        filters = [SubscribeFilter(b"many/%d/+" % number, 1) for number in range(start, start + 2000)]
        client.send(Subscribe(1 + start // 2000, filters))
        await others.check(5.0)
        codes += (await client.answer(SubAck)).reason_codes
    assert codes == [1] * 10_000 + [QUOTA_EXCEEDED] * 90_000
    await client.publish("many/9999/x", b"within", 1)
    assert (await client.message()).payload == b"within"
    await client.close()
    await others.check()


async def test_clients_do_not_take_every_file(nodes: Nodes, clients: Clients, watch: StartWatch) -> None:
    """Clients are refused before they use the files that are reserved for other nodes and the API."""
    first = nodes.make_federated()
    first.file_limit = 120
    await first.start()
    await first.logged("this process may open 120 files, which is enough for 58 clients")
    others = await watch(first)
    flood = [await asyncio.open_connection("127.0.0.1", first.port) for _ in range(200)]
    closing = [asyncio.ensure_future(closes(reader)) for reader, _ in flood]
    refused = 200 - (58 * LANE_WORKERS - 2)  # each process may open so many files
    await eventually(lambda: sum(task.done() for task in closing) >= refused, "refused clients")
    await others.check()
    assert sum(task.done() for task in closing) == refused
    for task in closing:
        task.cancel()
    second = await nodes.make_federated([first]).start()  # its streams come in, and the API answers
    await nodes.all_alive([first, second])
    await others.check()
    for _, writer in flood:
        await dropped(writer)
    await served_again(clients, first)


async def closes(reader: asyncio.StreamReader) -> None:
    """The node closes the connection."""
    with contextlib.suppress(ConnectionError):
        assert await reader.read(1) == b""


async def test_out_of_file_descriptors(nodes: Nodes, clients: Clients, watch: StartWatch) -> None:
    """The limit falls while the node runs. Connected clients are served; others connect once there is room."""
    node = await nodes.start()
    others = await watch(node)
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (60, 60))
    flood = [await asyncio.open_connection("127.0.0.1", node.port) for _ in range(200)]
    await others.check()
    for _, writer in flood:
        await dropped(writer)

    await served_again(clients, node)
    await others.check()


async def served_again(clients: Clients, node: Node) -> None:
    """Wait until a new client can connect."""

    async def is_served() -> bool:
        with contextlib.suppress(AssertionError, TimeoutError, OSError):
            async with asyncio.timeout(2):
                await (await clients.connect(node.port)).ping()
                return True
        return False

    await eventually(is_served, "there is room and new clients are served")
