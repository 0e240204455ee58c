"""Who sends lone messages is acknowledged by the kernel when its message has left, neither before nor by a timer."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import termios
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import pytest

from broker.codec.packets import Publish
from broker.codec.writer import encode_packet
from broker.server.late_acks import CAN_DELAY
from broker.server.turns import ALONE_SECONDS

if TYPE_CHECKING:
    from broker.server.lifecycle import Server
    from broker.server.protocol import ClientProtocol
    from mqtt_client import Clients

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]

pytestmark = pytest.mark.skipif(not CAN_DELAY, reason="this system has no TCP_QUICKACK")

MESSAGE: Final = encode_packet(Publish(b"t", b"payload", 0, False, False, 0), 5)
LEARNED: Final = 3  # messages until one takes the short cut


class Sender:
    """A plain socket beside the client that owns it: what is sent leaves before the loop goes on."""

    def __init__(self, client: Any, server: Server) -> None:
        (found,) = (p for p in server.protocols if p.connection and p.connection.client_id == "publisher")
        self.protocol: ClientProtocol = found
        self._socket: socket.socket = client._writer.get_extra_info("socket")

    def send_alone(self) -> None:
        """So late that it counts as alone."""
        since = time.time()
        while time.time() - since < 2 * ALONE_SECONDS:
            pass
        assert self._socket.fileno() >= 0
        self._send(MESSAGE)

    def send_two(self) -> None:
        self._send(MESSAGE + MESSAGE)

    def _send(self, data: bytes) -> None:
        assert os.write(self._socket.fileno(), data) == len(data)

    def unacknowledged(self) -> int:
        """Bytes that the other end's kernel has not acknowledged."""
        (count,) = struct.unpack("i", fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, bytes(4)))
        return int(count)

    def waits(self) -> bool:
        """Whether the node's kernel does not acknowledge what is read at once."""
        assert self.protocol.transport is not None
        node = self.protocol.transport.get_extra_info("socket")
        return bool(node.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 0)


async def test_lone_messages_are_acknowledged_behind_their_way(start_server: StartServer, clients: Clients) -> None:
    server = await start_server({})
    port = int(server.listeners.addresses[0].rsplit(":", 1)[1])
    receiver = await clients.connect(port, "receiver")
    await receiver.subscribe("t")
    sender = Sender(await clients.connect(port, "publisher"), server)
    for _ in range(LEARNED):
        sender.send_alone()
        await receiver.message()
    for _ in range(20):
        assert sender.protocol.acks is not None
        assert sender.waits()
        sender.send_alone()
        assert sender.unacknowledged() > 0, "the node has not read it yet"
        await receiver.message()
        assert sender.unacknowledged() == 0, "it was told with the message, not by a timer after it"
    sender.send_two()
    await receiver.take(2)
    await receiver.ping()
    assert sender.protocol.acks is None
    assert sender.unacknowledged() == 0
    sender.send_alone()
    await receiver.message()
    assert sender.protocol.acks is not None


async def test_a_connection_that_ends_meanwhile_takes_nothing_with_it(
    start_server: StartServer, clients: Clients
) -> None:
    """The file descriptor is the transport's alone: nothing here closes it, or another one in its place."""
    server = await start_server({})
    port = int(server.listeners.addresses[0].rsplit(":", 1)[1])
    receiver = await clients.connect(port, "receiver")
    await receiver.subscribe("t")
    for _ in range(5):
        client = await clients.connect(port, "publisher")
        sender = Sender(client, server)
        for _ in range(LEARNED + 2):
            sender.send_alone()
            await receiver.message()
        assert sender.protocol.acks is not None
        client.abort()
        await client.wait_closed()
        await receiver.ping()
        while sender.protocol.transport is not None:
            await receiver.ping()
        assert sender.protocol.acks is None
