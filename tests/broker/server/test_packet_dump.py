"""`log.dump_packet`: every packet of a connection as a line of the log, in both directions, with named fields."""

from __future__ import annotations

import asyncio
import io
import json
import socket
from dataclasses import replace
from typing import Any

import pytest

from broker.codec import packets
from broker.codec.packets import Connect, Packet, Subscribe, SubscribeFilter
from broker.codec.writer import encode_packet
from broker.config.addresses import parse_address
from broker.config.settings import LogSettings, Settings
from broker.config.settings_listeners import ListenerSettings
from broker.message import Message
from broker.server.lifecycle import Server
from broker.server.listener import Listener
from broker.server.logging import setup_logging
from broker.server.protocol import ClientProtocol
from broker.session.connection import Connection

DUMPING = Settings(log=LogSettings(level="debug", dump_packet=True, clients=False))


@pytest.fixture
def log() -> io.StringIO:
    stream = io.StringIO()
    setup_logging(DUMPING.log, stream)
    return stream


class Wire(asyncio.Transport):
    """A transport that takes everything at once. Unread bytes at the socket's other end count as written."""

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


async def test_output_of_later_rounds_is_logged(log: io.StringIO) -> None:
    """Retained messages come in later rounds than the SUBACK."""
    server = Server(DUMPING)
    server.observe_clients()
    protocol = ClientProtocol(server, Listener(ListenerSettings(parse_address("127.0.0.1:1883")), "listeners[0]", 0.0))
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
    assert [line.split("packet=")[1].split(" ")[0] for line in lines if " received " in line] == [
        "CONNECT",
        "SUBSCRIBE",
    ]
    sent = [line.split("packet=")[1].split(" ")[0] for line in lines if " sent " in line]
    assert sent == ["CONNACK", "SUBACK"] + ["PUBLISH"] * count
    wire.close()
    assert wire.written > count
    server.turns.stop()


async def test_the_fields_are_those_of_a_json_line(log: io.StringIO) -> None:
    setup_logging(LogSettings(level="debug", format="json"), log)
    server = Server(DUMPING)
    server.observe_clients()
    connection = Connection(server.broker, None, "a:1", "b:2", 0.0)
    packet = packets.Publish(b"t/\xc3\xa4", b"\xff", 1, packet_id=3)
    server.made_traces().show("received", packet, packet.topic, "c", connection)
    line = json.loads(log.getvalue())
    del line["time"]
    assert line == {
        "level": "debug",
        "part": "packet",
        "event": "received",
        "packet": "PUBLISH",
        "client_id": "c",
        "topic": "t/ä",
        "payload": "\\xff",
        "qos": 1,
        "retain": False,
        "dup": False,
        "packet_id": 3,
    }
    server.turns.stop()


@pytest.mark.parametrize(
    ("level", "wanted", "is_dumped"), [("debug", True, True), ("info", True, False), ("debug", False, False)]
)
async def test_packets_are_dumped_at_debug_only(level: str, wanted: bool, is_dumped: bool) -> None:
    """Also when the level changes while the node runs: then connections that dump stop it."""
    server = Server(Settings(log=LogSettings(level=level, dump_packet=wanted)))
    server.observe_clients()
    protocol = ClientProtocol(server, Listener(ListenerSettings(parse_address("127.0.0.1:1883")), "listeners[0]", 0.0))
    wire = Wire()
    protocol.connection_made(wire)
    assert (protocol.tap is not None) is is_dumped
    server.settings = replace(server.settings, log=LogSettings())
    server.observe_clients()
    protocol.data_received(encode_packet(Connect("c", 4), 4))
    assert protocol.tap is None
    server.turns.flush_now(server.now())
    wire.close()
    server.turns.stop()
