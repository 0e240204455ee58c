"""Limits of listeners, each with its own: connections, connect rates, messages and bytes of a client; and PROXY headers."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from broker.codec.packets import Connect
from broker.codec.writer import encode_packet
from broker.hooks import ClientObserver
from broker.server.layered_protocol import LayeredProtocol
from broker.server.protocol import ClientProtocol
from broker.server.proxy_header import SIGNATURE
from broker.session.connection import Connection
from broker.session.session import Session
from certificates import Authority
from waiting import DEADLINE, eventually

if TYPE_CHECKING:
    from broker.server.lifecycle import Server
    from mqtt_client import Clients, Watch
    from node_process import Node

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]
    StartWatch = Callable[[Node], Awaitable[Watch]]

CONNACK: Final = b"\x20\x02\x00\x00"


def ports(server: Server) -> list[int]:
    return [int(address.rpartition(":")[2]) for address in server.listeners.addresses]


async def is_served(port: int, header: bytes = b"", client_id: str = "") -> bool:
    """Whether a new client gets a CONNACK. It leaves at once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(header + encode_packet(Connect(client_id, 4), 4))
    async with asyncio.timeout(DEADLINE):
        try:
            answer = await reader.read(4)
        except ConnectionError:
            answer = b""
    writer.transport.abort()
    assert answer in (b"", CONNACK)
    return answer == CONNACK


async def test_each_listener_has_its_own_number_of_connections(start_server: StartServer) -> None:
    server = await start_server(
        {
            "listeners": [
                {"address": "127.0.0.1:0", "max_connections": 2},
                {"address": "127.0.0.1:0", "max_connections_per_address": 3},
                {"address": "127.0.0.1:0"},
            ]
        }
    )
    in_all, by_address, free = ports(server)
    held = [await asyncio.open_connection("127.0.0.1", port) for port in (in_all, in_all, by_address, by_address)]
    await eventually(lambda: len(server.protocols) == 4, "all are connected")
    assert not await is_served(in_all)
    assert await is_served(by_address)
    assert await is_served(free)
    await eventually(lambda: len(server.protocols) == 4, "the others have left")
    held.append(await asyncio.open_connection("127.0.0.1", by_address))
    await eventually(lambda: len(server.protocols) == 5, "one more of the address")
    assert not await is_served(by_address)
    assert server.broker.counters.connections_refused == 2
    for _, writer in held:
        writer.transport.abort()
    await eventually(lambda: not server.protocols, "all have left")
    assert await is_served(in_all)
    assert await is_served(by_address)


@pytest.mark.parametrize("key", ["max_connections", "max_connections_per_address"])
async def test_limits_of_a_reload_count_the_connections_that_are_open(start_server: StartServer, key: str) -> None:
    """They stay, also above the new limit; the next one is refused."""
    server = await start_server({"listeners": [{"address": "127.0.0.1:0"}]})
    (port,) = ports(server)
    held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
    await eventually(lambda: len(server.protocols) == 3, "all are connected")

    async def reload(limit: int) -> None:
        (listener,) = server.settings.listeners
        keys: dict[str, Any] = {key: limit}
        listeners = (replace(listener, **keys),)
        assert await server.reload(replace(server.settings, listeners=listeners)) == []

    for limit, is_let_in in ((2, False), (3, False), (4, True), (2, False), (0, True)):
        await reload(limit)
        assert await is_served(port) is is_let_in
        await eventually(lambda: len(server.protocols) == 3, "those that were open stay")
    await reload(3)
    held.pop()[1].transport.abort()
    await eventually(lambda: len(server.protocols) == 2, "one has left")
    assert await is_served(port)
    for _, writer in held:
        writer.transport.abort()


def binary_header(host: str, port: int) -> bytes:
    body = socket.inet_aton(host) + socket.inet_aton("192.0.2.2") + struct.pack("!HH", port, 1883)
    return SIGNATURE + b"\x21\x11" + struct.pack("!H", len(body)) + body


HEADERS: Final = [b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 1883\r\n", binary_header("192.0.2.1", 40000)]


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("is_secure", [False, True])
async def test_the_address_behind_a_proxy(
    start_server: StartServer, clients: Clients, tmp_path: Path, header: bytes, is_secure: bool
) -> None:
    """In the log, for the limits and for authentication; with TLS the header stands in front of it."""
    listener: dict[str, Any] = {
        "address": "127.0.0.1:0",
        "proxy_protocol": {"from": ["127.0.0.0/8"]},
        "max_connections_per_address": 1,
    }
    tls = None
    if is_secure:
        authority = Authority(tmp_path / "certificates")
        pair = authority.pair("localhost")
        listener["tls"] = {"cert": pair.cert, "key": pair.key}
        tls = ssl.create_default_context(cafile=authority.cacert)
    server = await start_server({"listeners": [listener]})
    (port,) = ports(server)
    client = await clients.connect(port, "c", tls=tls, header=header)
    connection = server.broker.sessions["c"].connection
    assert connection is not None
    assert connection.remote_addr == "192.0.2.1:40000"
    assert connection.listener.transport == ("tls" if is_secure else "tcp")
    await client.ping()
    if not is_secure:
        assert not await is_served(port, header)
    other = b"PROXY TCP4 192.0.2.9 192.0.2.2 40000 1883\r\n"
    second = await clients.connect(port, "second", tls=tls, header=other)
    await second.ping()


class Refusals(ClientObserver):
    """Keeps the reasons for which connections are refused."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def client_refused(self, client_id: str, addr: str, username: str, reason: str) -> None:
        self.reasons.append(reason)


async def test_connections_of_proxies_without_a_header(start_server: StartServer) -> None:
    """No header within the deadline, another protocol, and a connection from elsewhere."""
    proxy = {"address": "127.0.0.1:0", "proxy_protocol": {"from": ["127.0.0.1"]}, "handshake_timeout": "300ms"}
    elsewhere = {"address": "127.0.0.1:0", "proxy_protocol": {"from": ["192.0.2.0/24"]}}
    server = await start_server({"listeners": [proxy, elsewhere]})
    refusals = Refusals()
    server.broker.add_observer(refusals)
    first, second = ports(server)
    assert not await is_served(first)
    assert not await is_served(second, HEADERS[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", first)
    writer.write(HEADERS[0][:20])
    async with asyncio.timeout(DEADLINE):
        assert await reader.read() == b""
    writer.close()
    assert refusals.reasons == [
        "no PROXY header, which this address has to send first",
        "not in the networks of proxy_protocol.from",
        "handshake not completed within handshake_timeout",
    ]
    assert server.broker.counters.connections_refused == 3
    assert server.broker.counters.handshakes_failed == 2


async def come_and_go(server: Server, context: ssl.SSLContext) -> None:
    """Five clients of each of three ports, of which one says what is right, and one more by TLS."""
    before = server.broker.counters.handshakes_failed
    writers = []
    for port in ports(server):
        for data in (b"", b"\x16\x03", b"GET / HTTP/1.1\r\n", b"PROXY TCP4 ", HEADERS[0] + b"\x10"):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            writers.append(writer)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", ports(server)[0], ssl=context, server_hostname="localhost"
    )
    writer.write(encode_packet(Connect("c", 4), 4))
    assert await reader.readexactly(4) == CONNACK
    writers.append(writer)
    failed = 6 + before
    await eventually(lambda: server.broker.counters.handshakes_failed == failed, "those who are wrong are told")
    for writer in writers:
        writer.transport.abort()


async def test_nothing_stays_of_closed_connections(start_server: StartServer, tmp_path: Path) -> None:
    """Of clients that break off in any handshake, that were told of a fault, and that were served. Connections and sessions are
    freed without a garbage collection, which would have to look at all clients."""
    authority = Authority(tmp_path / "certificates")
    pair = authority.pair("localhost")
    tls = {"cert": pair.cert, "key": pair.key}
    server = await start_server(
        {
            "listeners": [
                {"address": "127.0.0.1:0", "tls": tls, "max_connections": 100, "max_connections_per_address": 100},
                {"address": "127.0.0.1:0", "websocket": {"path": "/"}},
                {"address": "127.0.0.1:0", "proxy_protocol": {"from": ["127.0.0.1"]}},
            ]
        }
    )

    def found(*kinds: type) -> int:
        return sum(isinstance(each, kinds) for each in gc.get_objects())

    gc.collect()
    freed_at_once = (ClientProtocol, Connection, Session)
    freed = (LayeredProtocol, ssl.SSLObject)
    before = found(*freed_at_once), found(*freed)  # what other tests have left
    gc.disable()
    try:
        for _ in range(3):
            await come_and_go(server, ssl.create_default_context(cafile=authority.cacert))
            await eventually(lambda: not server.protocols, "all are forgotten")
        await eventually(lambda: found(*freed_at_once) <= before[0], "they are freed")
    finally:
        gc.enable()

    def are_gone() -> bool:
        gc.collect()
        return found(*freed) <= before[1]

    await eventually(are_gone, "nothing refers to them")
