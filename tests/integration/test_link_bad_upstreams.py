"""Upstreams that are no good: another protocol, silence, a flood. What goes wrong stays with its link."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import pytest

from broker.codec.packets import ConnAck, Connect, Publish, Subscribe, SubscribeFilter
from broker.codec.writer import encode_packet
from scripted_upstream import ScriptedUpstream
from waiting import eventually

if TYPE_CHECKING:
    from mqtt_client import Clients, MqttClient, Watch
    from node_process import Node, Nodes

    StartWatch = Callable[[Node], Awaitable[Watch]]

MIB: Final = 2**20
FLOOD_SECONDS: Final = 2.0


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    made = ScriptedUpstream()
    await made.start()
    yield made
    await made.stop()


def config(uris: dict[str, str], domain: str = "berlin", max_hops: int = 1) -> dict[str, Any]:
    """Upstreams by name, each with a policy for the topics below its name."""
    links = {
        "domain": domain,
        "upstreams": {name: {"uri": uri, "reconnect-delay": 0.3, "max-hops": max_hops} for name, uri in uris.items()},
        "policies": {name: {"pattern": f"{name}/#", "definition": {"federation-upstream": name}} for name in uris},
    }
    return {"plugin_order": ["links"], "plugins": {"links": links}}


def lines_of(node: Node, upstream: str, text: str) -> list[str]:
    """Lines of the log with this text that are about the link."""
    return [line for line in node.log().splitlines() if text in line and f"upstream={upstream} " in line]


async def reader_of(node: Node, clients: Clients, *topic_filters: str) -> MqttClient:
    reader = await clients.connect(node.port, "reader")
    await reader.subscribe(*topic_filters, qos=1)
    return reader


def stuck_subscriber(port: int) -> socket.socket:
    """A client that never reads; its kernel buffer is small."""
    stuck = socket.socket()
    stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stuck.connect(("127.0.0.1", port))
    packets = Connect("stuck", 5, True), Subscribe(1, [SubscribeFilter(b"flood/#", 1)])
    stuck.sendall(b"".join(encode_packet(packet, 5) for packet in packets))
    return stuck


ANSWERS: Final[dict[str, tuple[bytes | None, str]]] = {
    "http": (b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 500, "it speaks HTTP"),
    "amqp": (b"AMQP\x00\x00\x09\x01", "it speaks AMQP"),
    "tls": (b"\x15\x03\x01\x00\x02\x02\x46", "it speaks TLS: its URI begins with mqtts://"),
    "noise": (bytes(range(255, 0, -1)), "the upstream breaks the protocol: the answer to CONNECT is no CONNACK"),
    "endless": (b"\x20\xff\xff\xff\x7f" + bytes(5000), "a packet of 268435460 bytes, at most"),
    "password": (encode_packet(ConnAck(False, 0x86), 5), "user name and password of `uri`"),
    "silent": (b"", "no CONNACK for 0."),
    "closed": (None, "the upstream closed the connection before CONNACK"),
}


async def test_other_protocols_and_silence_are_errors_that_say_so(
    nodes: Nodes, clients: Clients, upstream: ScriptedUpstream
) -> None:
    servers = []
    writers = []
    uris = {"good": f"mqtt://127.0.0.1:{upstream.port}"}
    for name, (answer, _) in ANSWERS.items():

        async def serve(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes | None = answer
        ) -> None:
            writers.append(writer)
            with contextlib.suppress(ConnectionError):
                await reader.read(1000)
                if answer is None:
                    writer.close()
                else:
                    writer.write(answer)
                    await reader.read()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        servers.append(server)
        uris[name] = f"mqtt://user:sesame@127.0.0.1:{server.sockets[0].getsockname()[1]}?connection_timeout=500"
    node = await nodes.start({**config(uris), "mqtt": {"max_packet_size": "1MiB"}})
    reader = await reader_of(node, clients, *(f"{name}/a" for name in uris))
    for name, (_, error) in ANSWERS.items():
        await eventually(lambda n=name, e=error: lines_of(node, n, e), f"the error of the link {name}")
    await eventually(lambda: upstream.filters == [b"good/a"], "the good link subscribes")
    upstream.send(Publish(b"good/a", b"goes on"))
    assert (await reader.message()).payload == b"goes on"
    assert "b'" not in node.log()
    assert "sesame" not in node.log()
    for server in servers:
        server.close()
    for writer in writers:
        writer.close()


@pytest.mark.parametrize("qos", [0, 1])
async def test_an_endless_flood_is_bounded_and_others_are_served(
    nodes: Nodes, clients: Clients, watch: StartWatch, upstream: ScriptedUpstream, qos: int
) -> None:
    """A subscriber that reads nothing, and one that reads all; the upstream waits for no acknowledgement."""
    uris = {"flood": f"mqtt://127.0.0.1:{upstream.port}"}
    node = await nodes.start({**config(uris), "mqtt": {"max_queued_bytes": "4MiB"}})
    others = await watch(node)
    slow = await asyncio.to_thread(stuck_subscriber, node.port)
    reader = await reader_of(node, clients, "flood/a")
    await eventually(lambda: upstream.filters, "the link subscribes")
    before = node.resident_bytes()
    batch = [Publish(b"flood/a", bytes(1000), qos, packet_id=number if qos else 0) for number in range(1, 101)]
    highest = before
    count = 0

    async def flood() -> None:
        nonlocal count
        while True:
            upstream.send(*batch)
            await upstream.drain()
            count += len(batch)
            while not reader.messages.empty():
                reader.messages.get_nowait()

    flooding = asyncio.create_task(flood())
    until = asyncio.get_running_loop().time() + FLOOD_SECONDS
    while asyncio.get_running_loop().time() < until:
        await others.check()
        highest = max(highest, node.resident_bytes())
    assert not flooding.done()
    flooding.cancel()
    await asyncio.gather(flooding, return_exceptions=True)
    slow.close()
    assert count > 0
    assert highest - before < 64 * MIB, (highest - before) / MIB
    assert "link error" not in node.log()
