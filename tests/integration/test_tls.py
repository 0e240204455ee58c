"""Listeners with TLS: clients, certificates of clients, new certificates, and clients that are refused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from broker.codec.packets import Connect, Publish
from broker.codec.writer import encode_packet
from broker.server.layered_protocol import LayeredProtocol
from certificates import Authority, Pair
from mqtt_client import MqttClient
from node_process import SOON
from repository import ROOT
from waiting import DEADLINE, eventually

if TYPE_CHECKING:
    from broker.server.lifecycle import Server
    from mosquitto_process import Mosquitto
    from mqtt_client import Clients, Watch
    from node_process import Node, Nodes

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]
    StartWatch = Callable[[Node], Awaitable[Watch]]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


def client_context(authority: Authority, pair: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.cacert)
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    return context


def tls_keys(authority: Authority, **keys: Any) -> dict[str, Any]:
    pair = authority.pair("localhost")
    return {"cert": pair.cert, "key": pair.key, **keys}


async def start(nodes: Nodes, tls: dict[str, Any], **keys: Any) -> tuple[Node, int]:
    """A node with a plain listener and one with TLS; (node, port of the latter)."""
    port = nodes.free_port()
    plain = {"address": f"127.0.0.1:{nodes.free_port()}"}
    node = await nodes.start({"listeners": [plain, {"address": f"127.0.0.1:{port}", "tls": tls, **keys}]})
    await node.logged("listeners started")
    return node, port


@pytest.mark.one_process(SOON)
@pytest.mark.parametrize("version", [3, 4, 5])
async def test_messages_between_listeners(nodes: Nodes, clients: Clients, authority: Authority, version: int) -> None:
    """In both directions, also larger ones than any buffer on the way."""
    node, port = await start(nodes, tls_keys(authority))
    tls = client_context(authority)
    secured = await clients.connect(port, "secured", version, tls=tls)
    plain = await clients.connect(node.port, "plain", version)
    for client in (secured, plain):
        await client.subscribe("t", qos=2)
    for sender in (secured, plain):
        for qos, size in ((0, 5), (1, 100_000), (2, 3_000_000)):
            payload = os.urandom(size)
            await sender.publish("t", payload, qos)
            for client in (secured, plain):
                assert (await client.message()).payload == payload
    await node.stop()
    for client in (secured, plain):
        await client.wait_closed()


async def test_mosquitto_clients_with_certificates(nodes: Nodes, mosquitto: Mosquitto, authority: Authority) -> None:
    _, port = await start(nodes, tls_keys(authority, cacert=authority.cacert, verify=True))
    device = authority.pair("device 7")
    files = ("--cafile", authority.cacert, "--cert", device.cert, "--key", device.key)
    for version in ("mqttv311", "mqttv5"):
        sub = await mosquitto.sub(port, "-t", "a/#", "-q", "1", *files, "--tls-version", "tlsv1.2", version=version)
        await mosquitto.pub(port, "-t", "a/b", "-m", version, "-q", "1", *files, version=version)
        assert (await sub.message())[:2] == ("a/b", version.encode())


async def refused(port: int, context: ssl.SSLContext) -> None:
    """The node ends the connection of a client with this context before an answer to CONNECT."""
    writer: asyncio.StreamWriter | None = None
    async with asyncio.timeout(DEADLINE):
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
            writer.write(encode_packet(Connect("refused", 4), 4))
            assert await reader.read(100) == b""
    if writer is not None:
        writer.transport.abort()


async def served_certificate(port: int, authority: Authority) -> bytes:
    async with asyncio.timeout(DEADLINE):
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client_context(authority), server_hostname="localhost"
        )
    certificate = writer.get_extra_info("ssl_object").getpeercert(True)
    writer.transport.abort()
    assert isinstance(certificate, bytes)
    return certificate


async def test_new_certificates_at_a_reload(nodes: Nodes, clients: Clients, authority: Authority) -> None:
    """Open connections stay. Files that cannot be used leave the old certificate in place."""
    keys = tls_keys(authority)
    node, port = await start(nodes, keys)
    open_before = await clients.connect(port, "before", tls=client_context(authority))
    first = await served_certificate(port, authority)
    authority.pair("localhost")
    await node.reload()
    second = await served_certificate(port, authority)
    assert second != first
    shutil.copy(keys["cert"], keys["key"])
    await node.reload()
    await node.logged("TLS files not read again, the former certificates stay")
    await node.logged(f"{keys['cert']} and {keys['key']} are not PEM files")
    assert await served_certificate(port, authority) == second
    await open_before.ping()


async def test_handshakes_that_never_end(nodes: Nodes, watch: StartWatch, authority: Authority) -> None:
    """A client that sends nothing, and clients that send a byte now and then, are cut off at the deadline."""
    node, port = await start(nodes, tls_keys(authority), handshake_timeout="500ms")
    others = await watch(node)
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> None:
        for byte in data:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.05)
        assert await reader.read(100) in (b"", b"\x15\x03\x03\x00\x02\x02\x32")
        writer.close()

    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*(drip(*pair, hello[: 4 * number]) for number, pair in enumerate(slow)))
    await node.logged("handshake not completed within handshake_timeout")
    await others.check()


async def test_handshakes_count_as_connections(start_server: StartServer, authority: Authority) -> None:
    """A flood of connects that say nothing takes no more than max_connections."""
    server = await start_server(
        {
            "mqtt": {"max_connections": 5},
            "listeners": [{"address": "127.0.0.1:0", "tls": tls_keys(authority), "handshake_timeout": "1h"}],
        }
    )
    port = int(server.listeners.addresses[0].rpartition(":")[2])
    flood = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
    await eventually(lambda: server.broker.counters.connections_refused == 25, "all others are refused")
    assert len(server.protocols) == 5
    assert all(isinstance(protocol, LayeredProtocol) for protocol in server.protocols)
    for _, writer in flood:
        writer.transport.abort()
    await eventually(lambda: not server.protocols, "all are forgotten")
    assert server.broker.counters.handshakes_failed == 0, "they went by themselves"


async def test_a_client_that_does_not_read(start_server: StartServer, authority: Authority) -> None:
    """What waits for it in TLS is bounded by the write buffer, and others get everything."""
    server = await start_server({"listeners": [{"address": "127.0.0.1:0", "tls": tls_keys(authority)}]})
    port = int(server.listeners.addresses[0].rpartition(":")[2])
    tls = client_context(authority)
    stuck = socket.socket()
    stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    loop = asyncio.get_running_loop()
    stuck.setblocking(False)
    await loop.sock_connect(stuck, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=stuck, ssl=tls, server_hostname="localhost", limit=1024)
    writer.write(encode_packet(Connect("stuck", 4), 4))
    assert await reader.readexactly(4) == b"\x20\x02\x00\x00"
    writer.write(b"\x82\x06\x00\x01\x00\x01t\x00")
    assert await reader.readexactly(5) == b"\x90\x03\x00\x01\x00"
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    good = await MqttClient.connect(port, "good", tls=tls)
    await good.subscribe("t")
    publisher = await MqttClient.connect(port, "publisher", tls=tls)
    count = 200
    for _ in range(count):
        publisher.send(Publish(b"t", bytes(100_000)))
        await publisher.ping()
    assert len(await good.take(count)) == count
    session = server.broker.sessions["stuck"]
    assert session.connection is not None
    assert not session.connection.writable
    waiting = max(
        protocol.transport.get_write_buffer_size() for protocol in server.protocols if protocol.transport is not None
    )
    assert waiting < 2 * server.settings.mqtt.write_buffer_high
    for client in (good, publisher):
        await client.close()
    writer.transport.abort()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing")
async def test_the_authority_of_the_documentation(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    """docs/listeners.md: its commands make files that a node and a client take."""
    lines = (ROOT / "docs" / "listeners.md").read_text(encoding="utf-8").splitlines()
    commands = [line.strip() for line in lines if line.startswith(("    openssl ", "    printf "))]
    assert len(commands) == 9
    await asyncio.to_thread(
        subprocess.run, ["sh", "-e", "-c", "\n".join(commands)], cwd=tmp_path, check=True, capture_output=True
    )
    files = {
        name: str(tmp_path / name) for name in ("ca.pem", "server.pem", "server.key", "device7.pem", "device7.key")
    }
    tls = {"cert": files["server.pem"], "key": files["server.key"], "cacert": files["ca.pem"], "verify": True}
    _, port = await start(nodes, tls)
    context = ssl.create_default_context(cafile=files["ca.pem"])
    context.load_cert_chain(files["device7.pem"], files["device7.key"])
    client = await clients.connect(port, "device", tls=context)
    await client.ping()


async def test_a_file_of_the_go_broker(nodes: Nodes, clients: Clients, authority: Authority) -> None:
    """Its listeners with TLS and WebSocket start unchanged."""
    ports = [nodes.free_port() for _ in range(3)]
    pair = authority.pair("localhost")
    text = f"""
listeners:
  - address: "127.0.0.1:{ports[0]}"

  - address: "127.0.0.1:{ports[1]}"
    tls:
      cacert: "{authority.cacert}"
      cert: "{pair.cert}"
      key: "{pair.key}"
  - address: "127.0.0.1:{ports[2]}"
    # websocket setting
    websocket:
      path: "/"
plugin_order:
  # Uncomment auth to enable authentication.
  # - auth
  - admin
log:
  level: info
  format: text
"""
    node = nodes.make({"listeners": [{"address": f"127.0.0.1:{ports[0]}"}]})
    node.spawn(text)
    await eventually(node.serves, "the node serves clients")
    await node.logged("listeners started")
    await node.logged("clients without a certificate are let in")
    client = await clients.connect(ports[1], "go", tls=client_context(authority))
    await client.ping()
    async with connect(f"ws://127.0.0.1:{ports[2]}/any", subprotocols=[Subprotocol("mqtt")], proxy=None) as websocket:
        await websocket.send(encode_packet(Connect("web", 4), 4))
        assert await websocket.recv() == b"\x20\x02\x00\x00"
