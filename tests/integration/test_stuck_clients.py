"""Clients that do not read: memory keeps its bounds, drops are counted, others and the stop are not delayed."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import pytest

from broker.codec.packets import Publish
from broker.codec.writer import encode_packet
from stuck_clients import stuck_socket, subscriber
from waiting import DEADLINE

if TYPE_CHECKING:
    from broker.server.lifecycle import Server
    from mqtt_client import Clients, MqttClient, Watch
    from node_process import Node, Nodes

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]
    StartWatch = Callable[[Node], Awaitable[Watch]]

MIB: Final = 2**20
SHUTTING_DOWN: Final = 0x8B


@pytest.mark.parametrize("qos", [0, 1])
async def test_client_that_never_reads(nodes: Nodes, clients: Clients, watch: StartWatch, qos: int) -> None:
    """Five stuck subscribers and 200 MB for each of them: the node's memory stays bounded, and others get all."""
    node = await nodes.start({"mqtt": {"max_queued_bytes": "4MiB"}})
    others = await watch(node)
    stuck = [stuck_socket(node.port, subscriber(f"stuck-{number}", b"flood", qos)) for number in range(5)]
    good = await clients.connect(node.port, "good")
    await good.subscribe("flood", qos=qos)
    publisher = await clients.connect(node.port, "publisher")
    await others.check()
    before = node.resident_bytes()
    packet = encode_packet(Publish(b"flood", bytes(100_000), qos, False, False, 1 if qos else 0), 5)
    highest = before
    for _ in range(200):
        publisher.send_bytes(packet * 10)
        await publisher.drain()
        await good.take(10)
        highest = max(highest, node.resident_bytes())
    await others.check()
    grown = (highest - before) / MIB
    assert grown < 5 * (4 + 1) + 50, f"{grown:.0f} MiB more"
    for one in stuck:
        one.close()
    await others.check()


async def test_a_slow_client_gets_messages_within_the_bounds(nodes: Nodes, clients: Clients) -> None:
    """A client stops reading, 600 messages are published (queue: 1000), it reads again: it gets all in order."""
    node = await nodes.start({"mqtt": {"write_buffer_high": "4KiB"}})
    slow = stuck_socket(node.port, subscriber("slow", b"slow", 0))
    try:
        publisher = await clients.connect(node.port, "publisher")
        await until_subscribed(publisher, slow)
        for number in range(600):
            await publisher.publish("slow", b"%d" % number + bytes(10_000))
        received = await asyncio.to_thread(read_publishes, slow, 600)
    finally:
        slow.close()
    assert [payload.rstrip(b"\0") for payload in received] == [b"%d" % number for number in range(600)]


async def until_subscribed(publisher: MqttClient, stuck: socket.socket) -> None:
    """Read CONNACK and SUBACK, and nothing after them."""
    stuck.settimeout(DEADLINE)
    for _ in range(2):
        head = await asyncio.to_thread(receive_exactly, stuck, 2)
        await asyncio.to_thread(receive_exactly, stuck, head[1])
    await publisher.ping()


def receive_exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = source.recv(size - len(data))
        assert part, "closed"
        data += part
    return data


def read_publishes(source: socket.socket, count: int) -> list[bytes]:
    """The payloads of the next QoS 0 messages (MQTT 5, no properties)."""
    payloads = []
    for _ in range(count):
        assert receive_exactly(source, 1) == b"\x30"
        size = shift = 0
        while True:
            byte = receive_exactly(source, 1)[0]
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        body = receive_exactly(source, size)
        topic_size = int.from_bytes(body[:2], "big")
        payloads.append(body[2 + topic_size + 1 :])
    return payloads


# --- stop


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
async def test_stop_with_stuck_clients(nodes: Nodes, clients: Clients, signal_number: signal.Signals) -> None:
    node = await nodes.start()
    told = await clients.connect(node.port, "told")
    old = await clients.connect(node.port, "old", 4)
    silent = await clients.open(node.port)
    stuck = [stuck_socket(node.port, subscriber(f"stuck-{number}", b"flood", 0)) for number in range(5)]
    publisher = await clients.connect(node.port, "publisher")
    for _ in range(20):
        await publisher.publish("flood", bytes(MIB))
    await node.stop(signal_number)
    await asyncio.gather(told.wait_closed(), old.wait_closed(), silent.wait_closed())
    assert told.disconnect is not None
    assert told.disconnect.reason_code == SHUTTING_DOWN
    for one in stuck:
        one.close()
