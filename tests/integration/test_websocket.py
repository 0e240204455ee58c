"""MQTT over WebSocket with the client of the library websockets, and with raw bytes."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol
from websockets.uri import parse_uri

from broker.codec.packets import (
    ConnAck,
    Connect,
    Packet,
    PingReq,
    Publish,
    SubAck,
    Subscribe,
    SubscribeFilter,
)
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet
from certificates import Authority
from waiting import DEADLINE, eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from broker.server.lifecycle import Server
    from mqtt_client import Clients, Watch
    from node_process import Node, Nodes

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]
    StartWatch = Callable[[Node], Awaitable[Watch]]

MIB: Final = 2**20
MQTT: Final = [Subprotocol("mqtt")]


class WebSocketClient:
    """An MQTT client on a WebSocket connection."""

    def __init__(self, connection: ClientConnection, version: int) -> None:
        self.connection = connection
        self.version = version
        self._reader = PacketReader(version)
        self._packets: list[Packet] = []

    async def send(self, *packets: Packet) -> None:
        await self.connection.send(b"".join(encode_packet(packet, self.version) for packet in packets))

    async def receive(self) -> Packet:
        async with asyncio.timeout(DEADLINE):
            while not self._packets:
                data = await self.connection.recv()
                assert isinstance(data, bytes)
                self._packets = self._reader.receive_data(data)
        return self._packets.pop(0)

    async def log_in(self, client_id: str) -> None:
        await self.send(Connect(client_id, self.version))
        answer = await self.receive()
        assert isinstance(answer, ConnAck)
        assert answer.reason_code == 0

    async def subscribe(self, topic_filter: bytes) -> None:
        await self.send(Subscribe(1, [SubscribeFilter(topic_filter, 1)]))
        assert isinstance(await self.receive(), SubAck)


@asynccontextmanager
async def websocket(port: int, path: str = "/mqtt", **options: Any) -> AsyncIterator[ClientConnection]:
    scheme = "wss" if "ssl" in options else "ws"
    options.setdefault("subprotocols", MQTT)
    async with connect(
        f"{scheme}://localhost:{port}{path}", host="127.0.0.1", compression=None, proxy=None, max_size=None, **options
    ) as connection:
        yield connection


async def start(nodes: Nodes, overrides: dict[str, Any] | None = None, **keys: Any) -> tuple[Node, int]:
    """A node with a plain listener and one for WebSocket; (node, port of the latter)."""
    port = nodes.free_port()
    listeners = [
        {"address": f"127.0.0.1:{nodes.free_port()}"},
        {"address": f"127.0.0.1:{port}", "websocket": {"path": "/mqtt"}, **keys},
    ]
    node = await nodes.start({"listeners": listeners, **(overrides or {})})
    await node.logged("listeners started")
    return node, port


@pytest.mark.parametrize("is_secure", [False, True])
@pytest.mark.parametrize("version", [4, 5])
async def test_messages_between_websocket_and_tcp(
    nodes: Nodes, clients: Clients, tmp_path: Path, is_secure: bool, version: int
) -> None:
    keys: dict[str, Any] = {}
    options: dict[str, Any] = {}
    if is_secure:
        authority = Authority(tmp_path / "certificates")
        pair = authority.pair("localhost")
        keys = {"tls": {"cert": pair.cert, "key": pair.key}}
        options = {"ssl": ssl.create_default_context(cafile=authority.cacert)}
    node, port = await start(nodes, **keys)
    plain = await clients.connect(node.port, "plain", version)
    await plain.subscribe("t", qos=1)
    async with websocket(port, **options) as connection:
        assert connection.subprotocol == "mqtt"
        client = WebSocketClient(connection, version)
        await client.log_in("web")
        await client.subscribe(b"t")
        for size in (5, 100_000, 3 * MIB):
            payload = os.urandom(size)
            await client.send(Publish(b"t", payload))
            assert (await plain.message()).payload == payload
            received = await client.receive()
            assert isinstance(received, Publish)
            assert received.payload == payload
            await plain.publish("t", payload)
            received = await client.receive()
            assert isinstance(received, Publish)
            assert received.payload == payload
            await plain.message()


@pytest.mark.parametrize(
    ("path", "options", "status"),
    [
        ("/other", {}, 404),
        ("/mqtt", {"subprotocols": None}, 400),
        ("/mqtt", {"subprotocols": [Subprotocol("soap")]}, 400),
        ("/mqtt", {"origin": Origin("https://evil.example")}, 403),
    ],
)
async def test_handshakes_that_are_refused(
    nodes: Nodes, watch: StartWatch, path: str, options: dict[str, Any], status: int
) -> None:
    node, port = await start(nodes, websocket={"path": "/mqtt", "allowed_origins": ["https://good.example"]})
    others = await watch(node)
    with pytest.raises(InvalidStatus) as error:
        async with websocket(port, path, **options):
            pass
    assert error.value.response.status_code == status
    await node.logged('reason="WebSocket: ')
    async with websocket(port, origin=Origin("https://good.example")) as connection:
        await WebSocketClient(connection, 5).log_in("good")
    await others.check()


def conversation() -> bytes:
    """Handshake, CONNECT, SUBSCRIBE and PUBLISH as bytes of one client; the packets are split over frames."""
    protocol = ClientProtocol(parse_uri("ws://localhost/mqtt"), subprotocols=MQTT)
    protocol.send_request(protocol.connect())
    request = b"".join(protocol.data_to_send())
    protocol.state = protocol.state.__class__(1)
    packets = b"".join(
        encode_packet(packet, 4)
        for packet in (
            Connect("split", 4),
            Subscribe(1, [SubscribeFilter(b"t", 0)]),
            Publish(b"t", b"hello"),
            PingReq(),
        )
    )
    for start_at in range(0, len(packets), 7):
        protocol.send_binary(packets[start_at : start_at + 7])
    return request + b"".join(protocol.data_to_send())


ANSWERS: Final = b"\x20\x02\x00\x00\x90\x03\x00\x01\x00" + encode_packet(Publish(b"t", b"hello"), 4) + b"\xd0\x00"


async def answered(port: int, chunks: list[bytes]) -> bytes:
    """The content of the frames that come back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = ClientProtocol(parse_uri("ws://localhost/mqtt"), subprotocols=MQTT)
    client.state = client.state.__class__(1)
    content = b""
    async with asyncio.timeout(DEADLINE):
        for chunk in chunks:
            writer.write(chunk)
            await writer.drain()
            await asyncio.sleep(0)
        await reader.readuntil(b"\r\n\r\n")
        client = ClientProtocol(parse_uri("ws://localhost/mqtt"), state=client.state)
        while len(content) < len(ANSWERS):
            client.receive_data(await reader.read(1000))
            content += b"".join(bytes(event.data) for event in client.events_received())  # type: ignore[union-attr]
    writer.transport.abort()
    return content


async def test_bytes_split_everywhere(nodes: Nodes) -> None:
    """At each byte in two chunks, all in one, and byte by byte."""
    _, port = await start(nodes)
    data = conversation()
    assert await answered(port, [data]) == ANSWERS
    assert await answered(port, [data[index : index + 1] for index in range(len(data))]) == ANSWERS
    for cut in range(1, len(data)):
        assert await answered(port, [data[:cut], data[cut:]]) == ANSWERS


async def test_a_text_frame(nodes: Nodes, clients: Clients, watch: StartWatch) -> None:
    """[MQTT-6.0.0-1]: the connection ends with 1003."""
    node, port = await start(nodes)
    others = await watch(node)
    async with websocket(port) as connection:
        client = WebSocketClient(connection, 5)
        await client.log_in("text")
        await connection.send("not binary")
        with pytest.raises(ConnectionClosed) as closed:
            await connection.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1003
    await node.logged("a text frame")
    await others.check()


async def test_a_client_that_pings_and_does_not_read(start_server: StartServer) -> None:
    """The answers to its pings are bounded: the connection is cut off."""
    server = await start_server({"listeners": [{"address": "127.0.0.1:0", "websocket": {"path": "/mqtt"}}]})
    port = int(server.listeners.addresses[0].rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    protocol = ClientProtocol(parse_uri("ws://localhost/mqtt"), subprotocols=MQTT)
    protocol.send_request(protocol.connect())
    writer.write(b"".join(protocol.data_to_send()))
    protocol.state = protocol.state.__class__(1)
    protocol.send_binary(encode_packet(Connect("pings", 4), 4))
    writer.write(b"".join(protocol.data_to_send()))
    protocol.send_ping(bytes(125))
    pings = b"".join(protocol.data_to_send()) * 1000

    async def ping_for_ever() -> None:
        while True:
            writer.write(pings)
            await writer.drain()

    async with asyncio.timeout(DEADLINE):
        await eventually(lambda: len(server.protocols) == 1, "the client is connected")
        with pytest.raises(ConnectionError):
            await ping_for_ever()
    await eventually(lambda: not server.protocols, "the client is cut off")
    writer.transport.abort()
