"""The log at level debug: who comes and is refused, and with `dump_packet` every packet of a connection, both ways."""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from broker.codec.packets import Connect, Packet, Subscribe, SubscribeFilter
from broker.codec.writer import encode_packet
from broker.config.settings import LogSettings, MqttSettings, Settings
from broker.message import Message
from broker.server.client_log import LoggingProtocol
from broker.server.lifecycle import Server
from broker.server.logging import setup_logging
from broker.server.packet_dump import DumpingProtocol


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    former = structlog.get_config()
    stream = io.StringIO()
    setup_logging(LogSettings(level="debug", dump_packet=True), stream)
    yield stream
    setup_logging(LogSettings(), stream)
    structlog.configure(**former)


class Wire(asyncio.Transport):
    """A transport that takes everything at once; what the socket's other end has not read counts as written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0
        self.socket, self.other_end = socket.socketpair()
        self.socket.setblocking(False)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return self.socket
        return {"peername": ("::1", 40000, 0, 0), "sockname": ("::1", 1883, 0, 0)}.get(name, default)

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.written += len(self.other_end.recv(2**24))
        self.socket.close()
        self.other_end.close()

    def abort(self) -> None:
        """There is no socket."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def write(self, data: Any) -> None:
        self.written += len(data)


async def test_what_is_found_while_it_is_sent_is_logged_too(log: io.StringIO) -> None:
    """Retained messages that come in later rounds than their subscription's answer."""
    server = Server(Settings())
    protocol = DumpingProtocol(server)
    wire = Wire()
    count = 1000
    for number in range(count):
        server.broker.publish(Message(b"a/%d" % number, b"x", 0, True), server.now())

    def send(packet: Packet) -> None:
        protocol.data_received(encode_packet(packet, 4))
        server.turns.flush_now(server.now())

    protocol.connection_made(wire)
    send(Connect("c", 4))
    send(Subscribe(1, [SubscribeFilter(b"#")]))
    lines = log.getvalue().splitlines()
    assert [line.split("packet=")[1].split("(")[0].strip('"') for line in lines if " received " in line] == [
        "Connect",
        "Subscribe",
    ]
    sent = [line.split("packet=")[1].split("(")[0].strip('"') for line in lines if " sent " in line]
    assert sent == ["ConnAck", "SubAck"] + ["Publish"] * count
    wire.close()
    assert wire.written > count
    server.turns.stop()


async def test_who_is_refused_is_named(log: io.StringIO) -> None:
    server = Server(Settings(mqtt=MqttSettings(max_connections=1)))
    for wire in (Wire(), Wire()):
        LoggingProtocol(server).connection_made(wire)
        wire.socket.close()
        wire.other_end.close()
    (line,) = log.getvalue().splitlines()
    assert line.endswith("client: refused: max_connections addr=[::1]:40000")
    server.turns.stop()
