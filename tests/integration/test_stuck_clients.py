"""Clients that do not read: memory keeps its bounds, drops are counted, others and the stop are not delayed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import pytest

from broker.codec.packets import Publish
from broker.codec.writer import encode_packet
from stuck_clients import stuck_socket, subscriber

if TYPE_CHECKING:
    from broker.server.lifecycle import Server
    from mqtt_client import Clients, Watch
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
