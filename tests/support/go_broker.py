"""A Go broker (DrmagicE/gmqtt) as a process. The environment variable GMQTT_BINARY names its program, which is not part of
this project."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from typing import TYPE_CHECKING, Any, Final

from broker.codec.packets import PubAck, Publish
from mqtt_client import MqttClient, reached
from node_process import Node
from waiting import eventually

if TYPE_CHECKING:
    from mqtt_client import Clients
    from node_process import Nodes

VARIABLE: Final = "GMQTT_BINARY"
BINARY: Final = os.environ.get(VARIABLE, "")
MISSING: Final = "" if BINARY else f"{VARIABLE} names no Go broker to test with (docs/operations.md)"
STOP_SECONDS_MAX: Final = 15.0  # it leaves the federation first
WINDOW: Final = 50  # unacknowledged messages of a publisher; the Go broker takes 100
QUIET_SECONDS: Final = 1.0  # without a further message


class GoBroker(Node):
    def program(self) -> list[str]:
        found = shutil.which(BINARY)
        assert found is not None, f"{VARIABLE} is {BINARY!r}, which is no program"
        return [found]

    def says_serving(self, position: int) -> bool:
        return "gmqtt server started" in self.log()[position:]

    async def stop(self, signal_number: int = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(signal_number)
        code = await self.wait_ended(STOP_SECONDS_MAX)
        assert code == 0, f"{self.name} ended with {code}"


def make(nodes: Nodes, kind: type[Node], name: str, join: list[Node] | None = None, **federation: str) -> Node:
    overrides: dict[str, Any] = {
        "mqtt": {"max_queued_messages": 100_000, "max_inflight": 1000},
        "plugins": {"federation": {"node_name": name, **federation}},
    }
    return nodes.make_federated(join, overrides, kind)


async def linked(clients: Clients, *nodes: Node) -> None:
    """Wait until messages pass from each node to each other one."""
    subscribers = {node.name: await clients.connect(node.port, f"linked-{node.name}") for node in nodes}
    for node in nodes:
        await subscribers[node.name].subscribe(f"linked/{node.name}", qos=1)
    for source in nodes:
        publisher = await clients.connect(source.port, f"link-{source.name}")
        for node in nodes:
            await reached(publisher, f"linked/{node.name}", subscribers[node.name])
        await publisher.close()
    for subscriber in subscribers.values():
        await subscriber.close()


async def publish_many(publisher: MqttClient, topic: str, first: int, count: int, qos: int = 1) -> None:
    """Publish messages with their numbers as payloads, QoS 0 or 1. Returns when all are acknowledged."""
    waiting = 0
    for number in range(first, first + count):
        publisher.send(Publish(topic.encode(), b"%d" % number, qos, packet_id=number % 60_000 + 1 if qos else 0))
        waiting += qos
        if waiting == WINDOW:
            await publisher.answer(PubAck)
            waiting -= 1
        if number % 500 == 0:
            await publisher.drain()
    for _ in range(waiting):
        await publisher.answer(PubAck)
    await publisher.ping()


async def rest_of(client: MqttClient) -> list[bytes]:
    """The payloads of all messages until QUIET_SECONDS pass without one."""
    found: list[bytes] = []
    with contextlib.suppress(TimeoutError):
        while True:
            found.append((await client.message(QUIET_SECONDS)).payload)
    return found


async def retained(clients: Clients, node: Node, topic_filter: str) -> dict[bytes, bytes]:
    """The retained messages that a new subscriber gets. Messages without payload, which the Go broker sends, are omitted."""
    client = await clients.connect(node.port, "retained")
    await client.subscribe(topic_filter, qos=1)
    found: dict[bytes, bytes] = {}
    with contextlib.suppress(TimeoutError):
        while True:
            message = await client.message(0.3)
            found[message.topic] = message.payload
    await client.close()
    return {topic: payload for topic, payload in found.items() if payload}


async def becomes(clients: Clients, nodes: tuple[Node, ...], expected: dict[bytes, bytes]) -> None:
    for node in nodes:

        async def is_so(node: Node = node) -> bool:
            return await retained(clients, node, "kept/#") == expected

        await eventually(is_so, f"{node.name} keeps {expected}")
