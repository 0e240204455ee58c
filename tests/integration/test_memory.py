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
from broker.codec.packets import ConnAck, Connect
from broker.codec.properties import USER_PROPERTY
from broker.codec.writer import encode_packet
from broker.server.tls_layer import HELLO_BYTES
from certificates import Authority
from waiting import DEADLINE, eventually

if TYPE_CHECKING:
    from broker.server.lifecycle import Server
    from mqtt_client import Clients
    from node_process import Node, Nodes

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]

MIB: Final = 2**20
HALF: Final = encode_packet(Connect("big", 5, properties={USER_PROPERTY: [("k", "v" * 60_000)] * 8}), 5)[:-1000]

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is measured by /proc")


async def start_with_accounts(nodes: Nodes, tmp_path: Path) -> Node:
    file = str(tmp_path / "accounts.yml")
    assert passwd("-c", "-b", file, "alice", "right").returncode == 0
    return await nodes.start({"plugin_order": ["auth"], "plugins": {"auth": {"password_file": file}}})


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


async def test_what_tls_takes_counts(start_server: StartServer, clients: Clients, tmp_path: Path) -> None:
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
