"""The memory of a node under clients that send, or take, more than they should."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from auth_plugin import connack_of, passwd
from broker.codec.packets import ConnAck, Connect, PubAck, Publish
from broker.codec.properties import SESSION_EXPIRY_INTERVAL, USER_PROPERTY
from broker.codec.writer import encode_packet
from broker.hooks import ConnectDecider, ConnectRequest
from broker.server.protocol import PAIR_BYTES
from broker.server.tls_layer import HELLO_BYTES
from certificates import Authority
from stuck_clients import stuck_socket, subscriber
from waiting import DEADLINE, eventually

if TYPE_CHECKING:
    from broker.server.lifecycle import Server
    from mqtt_client import Clients
    from node_process import Node, Nodes

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]

MIB: Final = 2**20
QUOTA_EXCEEDED: Final = 0x97
HALF: Final = encode_packet(Connect("big", 5, properties={USER_PROPERTY: [("k", "v" * 60_000)] * 8}), 5)[:-1000]

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is measured by /proc")


async def start_with_accounts(nodes: Nodes, tmp_path: Path) -> Node:
    file = str(tmp_path / "accounts.yml")
    assert passwd("-c", "-b", file, "alice", "right").returncode == 0
    return await nodes.start({"plugin_order": ["auth"], "plugins": {"auth": {"password_file": file}}})


@pytest.mark.one_process("measures the memory of the process, which is the supervisor where a node has workers")
async def test_half_a_connect_of_many_clients(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    """400 connections, 190 MB in all: the node keeps 64 MiB of them, closes the oldest, and gives the memory back."""
    node = await start_with_accounts(nodes, tmp_path)
    before = node.resident_bytes()
    writers: list[asyncio.StreamWriter] = []
    try:
        for _ in range(400):
            with contextlib.suppress(ConnectionError):  # the node closes some while they still write
                _, writer = await asyncio.open_connection("127.0.0.1", node.port)
                writers.append(writer)
                writer.write(HALF)
                await asyncio.wait_for(writer.drain(), DEADLINE)
        await eventually(lambda: node.log().count("max_unaccepted_bytes") >= 100, "most connections are closed")
        grown = (node.resident_bytes() - before) / MIB
        assert 40 < grown < 64 + 40, f"{grown:.0f} MiB more"
        assert (await connack_of(await clients.open(node.port), "alice", b"right")).reason_code == 0
    finally:
        for writer in writers:
            writer.transport.abort()
    await eventually(lambda: node.resident_bytes() < before + 24 * MIB, "the memory is given back", 2 * DEADLINE)


@pytest.mark.parametrize("version", [4, 5])
async def test_input_counts_until_connect_is_accepted(
    start_server: StartServer, clients: Clients, version: int
) -> None:
    server = await start_server({})
    client = await clients.open(int(server.listener_addresses()[0].rsplit(":", 1)[1]), version)
    packet = encode_packet(Connect("c", version), version)
    client.send_bytes(packet[:9])
    await eventually(lambda: server.unaccepted.bytes == 9, "half a CONNECT is counted")
    client.send_bytes(packet[9:])
    await client.answer(ConnAck)
    assert (server.unaccepted.bytes, len(server.unaccepted)) == (0, 0)
    await client.ping()
    assert len(server.unaccepted) == 0


class Undecided(ConnectDecider):
    """Decides nothing until the test does."""

    def __init__(self) -> None:
        self.requests: list[ConnectRequest] = []

    def decide(self, request: ConnectRequest, now: float) -> None:
        self.requests.append(request)


async def test_a_connect_that_waits_counts_as_what_it_has_become(start_server: StartServer, clients: Clients) -> None:
    """A User Property of 5 bytes takes a hundred as an object."""
    server = await start_server({})
    decider = Undecided()
    server.broker.add_connect_decider(decider)
    client = await clients.open(int(server.listener_addresses()[0].rsplit(":", 1)[1]))
    client.send(Connect("c", 5, properties={USER_PROPERTY: [("", "")] * 1_000}))
    await eventually(lambda: decider.requests, "the decider is asked")
    assert server.unaccepted.bytes > 1_000 * PAIR_BYTES
    decider.requests[0].accept()
    server.flush_soon()
    await client.answer(ConnAck)
    assert server.unaccepted.bytes == 0


async def test_the_state_of_tls_counts(start_server: StartServer, clients: Clients, tmp_path: Path) -> None:
    """The bytes are few, and OpenSSL's state for them is not. All of it goes with the connection, and with CONNECT."""
    authority = Authority(tmp_path / "certificates")
    pair = authority.pair("localhost")
    tls = {"cert": pair.cert, "key": pair.key}
    server = await start_server({"listeners": [{"address": "127.0.0.1:0", "tls": tls}]})
    port = int(server.listener_addresses()[0].rsplit(":", 1)[1])
    half = await clients.open(port)
    half.send_bytes(b"\x16\x03\x01\x02\x00\x01")
    await eventually(lambda: server.unaccepted.bytes == HELLO_BYTES + 6, "the handshake is counted")
    half.abort()
    await eventually(lambda: server.unaccepted.bytes == 0, "the end of the connection is counted")
    context = ssl.create_default_context(cafile=authority.cacert)
    await clients.connect(port, "c", tls=context)
    assert (server.unaccepted.bytes, len(server.unaccepted)) == (0, 0)


async def test_the_oldest_handshake_is_closed(start_server: StartServer, clients: Clients) -> None:
    """Of WebSocket connections, in the middle of their request: the first two end, since three take more than the bound."""
    listener = {"address": "127.0.0.1:0", "websocket": {}}
    server = await start_server({"listeners": [listener], "mqtt": {"max_unaccepted_bytes": "1MiB"}})
    port = int(server.listener_addresses()[0].rsplit(":", 1)[1])
    lines = b"".join(b"X-%d: %s\r\n" % (number, bytes([120]) * 8_000) for number in range(60))
    opened = [await clients.open(port) for _ in range(4)]
    for count, client in enumerate(opened):
        client.send_bytes(b"GET / HTTP/1.1\r\n" + lines)
        expected = min(count + 1, 2) * (len(lines) + 16)
        await eventually(lambda total=expected: server.unaccepted.bytes == total, "the input is counted")
    await opened[0].wait_closed()
    await opened[1].wait_closed()
    assert not opened[2].closed.is_set()
    assert not opened[3].closed.is_set()
    assert server.refused_input()["unaccepted_closed"] == 2
    assert server.unaccepted.bytes <= 2**20


@pytest.mark.one_process("measures the memory of the process, which is the supervisor where a node has workers")
@pytest.mark.parametrize("qos", [0, 1])
async def test_slow_readers_of_a_node_with_max_memory(nodes: Nodes, clients: Clients, qos: int) -> None:
    """1.2 GB for 60 clients that do not read: the node has at most a quarter more than max_memory, and what comes in between
    two measurements. It says that it is not ready, and serves again when they have gone."""
    limit = 160
    api = {"http": [{"address": f"tcp://127.0.0.1:{nodes.free_port()}"}]}
    node = await nodes.start({"mqtt": {"max_memory": f"{limit}MiB", "write_buffer_high": "4KiB"}, "api": api})
    known = await clients.connect(node.port, "known", properties={SESSION_EXPIRY_INTERVAL: 600})
    slow = [stuck_socket(node.port, subscriber(f"slow{number}", b"t/%d" % number, qos)) for number in range(60)]
    highest = 0.0
    refused = 0
    try:
        for number in range(60_000):
            topic = b"t/%d" % (number % 60)
            known.send(Publish(topic, bytes(20_000), qos, packet_id=number % 50 + 1 if qos else 0))
            if number % 50 == 49:
                await known.drain()
                for _ in range(50 if qos else 0):
                    refused += (await known.answer(PubAck)).reason_code == QUOTA_EXCEEDED
                highest = max(highest, node.resident_bytes() / MIB)
                if refused or (not qos and number % 100 == 99 and (await node.rest("GET", "/readyz"))[0] == 503):
                    break
        for number in range(50):  # a flood above the limit
            known.send(Publish(b"t/%d" % number, bytes(20_000)))
        await known.ping()
        status, answer = await node.rest("GET", "/readyz")
        assert (status, "max_memory" in str(answer)) == (503, True)
        new = await clients.open(node.port)
        new.send(Connect("new", 5))
        assert (await new.answer(ConnAck)).reason_code == QUOTA_EXCEEDED
        highest = max(highest, node.resident_bytes() / MIB)
        assert limit < highest < 1.25 * limit + 150, f"{highest:.0f} MiB"
    finally:
        for one in slow:
            one.close()

    async def is_ready() -> bool:
        return bool((await node.rest("GET", "/readyz"))[0] == 200)

    await eventually(is_ready, "the memory is free again")
    await clients.connect(node.port, "new")
    await known.publish("t", b"x", qos=1)
