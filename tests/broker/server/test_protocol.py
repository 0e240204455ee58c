"""The shell of a client's connection: writing, closing, pausing, and faults that end one connection only."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from broker.codec.packets import Connect, Disconnect, Packet, PingReq, Subscribe, SubscribeFilter
from broker.codec.properties import REASON_STRING
from broker.codec.reader import PacketReader
from broker.codec.reason_codes import IMPLEMENTATION_SPECIFIC_ERROR, SERVER_SHUTTING_DOWN
from broker.codec.writer import encode_packet
from broker.config.addresses import parse_address
from broker.config.settings import Settings
from broker.config.settings_listeners import ListenerSettings
from broker.config.settings_mqtt import MqttSettings
from broker.message import Message
from broker.server.host import Host
from broker.server.listener import Listener
from broker.server.protocol import ClientProtocol
from broker.server.turns import CLOSES_MAX
from broker.session.connection import Connection

LISTENER = Listener(ListenerSettings(parse_address("127.0.0.1:1883")), "listeners[0]", 0.0)


class Wire(asyncio.Transport):
    """A transport with a socket, whose calls are recorded. `behind` is the size of its write buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.behind = 0
        self.socket, self.other_end = socket.socketpair()
        self.socket.setblocking(False)
        self.other_end.setblocking(False)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        address = ("127.0.0.1", 1)
        return {"socket": self.socket, "peername": address, "sockname": address}.get(name, default)

    def get_write_buffer_size(self) -> int:
        return self.behind

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """`behind` is set by the test."""

    def is_closing(self) -> bool:
        return "close" in self.calls or "abort" in self.calls

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: Any) -> None:
        self.calls.append("write")

    def write_eof(self) -> None:
        self.calls.append("write_eof")

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")

    def pause_reading(self) -> None:
        self.calls.append("pause_reading")

    def resume_reading(self) -> None:
        self.calls.append("resume_reading")

    def sent(self) -> list[Packet]:
        try:
            return PacketReader(5).receive_data(self.other_end.recv(65_536))
        except BlockingIOError:
            return []


class Node:
    """A host, and clients whose sockets are `Wire`s."""

    def __init__(self, **limits: Any) -> None:
        self.host = Host(Settings(mqtt=MqttSettings(**limits)))
        self.wires: list[Wire] = []

    def open(self) -> tuple[ClientProtocol, Wire]:
        protocol = ClientProtocol(self.host, LISTENER)
        wire = Wire()
        self.wires.append(wire)
        protocol.connection_made(wire)
        return protocol, wire

    def connect(self, client_id: str) -> tuple[ClientProtocol, Wire]:
        protocol, wire = self.open()
        self.send(protocol, Connect(client_id, 5))
        assert len(wire.sent()) == 1
        return protocol, wire

    def send(self, protocol: ClientProtocol, packet: Packet) -> None:
        protocol.data_received(encode_packet(packet, 5))
        self.flush()

    def flush(self) -> None:
        self.host.turns.flush_now(self.host.now())


@pytest.fixture
async def node() -> Any:
    made = Node(max_connections=2)
    yield made
    made.host.turns.stop()
    for protocol in list(made.host.protocols):
        assert isinstance(protocol, ClientProtocol)
        protocol.connection_lost(None)
    for wire in made.wires:
        wire.socket.close()
        wire.other_end.close()


async def test_a_client_above_max_connections_is_closed(node: Node) -> None:
    first, _ = node.open()
    node.open()
    refused, wire = node.open()
    assert wire.calls == ["abort"]
    refused.data_received(encode_packet(PingReq(), 5))
    first.connection_lost(None)
    _, wire = node.open()
    assert wire.calls == []


@pytest.mark.parametrize(
    ("behind", "has_reason", "calls"),
    [
        (0, True, ["write_eof"]),  # the client can read the reason, then ends the connection
        (0, False, ["close"]),
        (10**9, True, ["abort"]),  # the client does not read
    ],
)
async def test_the_close_of_the_socket_depends_on_output_and_reason(
    node: Node, behind: int, has_reason: bool, calls: list[str]
) -> None:
    protocol, wire = node.connect("c")
    connection = protocol.connection
    assert connection is not None
    wire.behind = behind
    code = SERVER_SHUTTING_DOWN if has_reason else -1
    node.host.broker.close_connection(connection, code, "stop", node.host.now())
    node.flush()
    assert [call for call in wire.calls if call != "write"] == calls
    assert wire.sent() == [Disconnect(SERVER_SHUTTING_DOWN, {REASON_STRING: "stop"})] * has_reason
    before = list(wire.calls)
    node.send(protocol, PingReq())
    assert wire.sent() == []
    assert wire.calls == before, "input after the close is discarded"


async def test_reading_stops_while_the_connection_is_held(node: Node) -> None:
    protocol, wire = node.connect("c")
    connection = protocol.connection
    assert connection is not None
    for _ in range(2):
        node.host.broker.hold(connection)
    node.flush()
    assert wire.calls == ["pause_reading"]
    node.host.broker.release(connection)
    node.flush()
    assert wire.calls == ["pause_reading"], "one reason to hold it is left"
    node.host.broker.release(connection)
    node.flush()
    assert wire.calls == ["pause_reading", "resume_reading"]


async def test_a_full_transport(node: Node) -> None:
    protocol, _ = node.connect("c")
    connection = protocol.connection
    assert connection is not None
    protocol.pause_writing()
    assert not connection.can_write()
    protocol.resume_writing()
    assert connection.can_write()


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """PINGREQ of the client "broken" is a fault."""
    receive_data = Connection.receive_data

    def fail(connection: Connection, data: bytes, now: float) -> None:
        if connection.client_id == "broken" and data == encode_packet(PingReq(), 5):
            raise RuntimeError("a fault")
        receive_data(connection, data, now)

    monkeypatch.setattr(Connection, "receive_data", fail)


@pytest.mark.interpreted  # a method of a compiled class is replaced
@pytest.mark.usefixtures("broken")
async def test_a_fault_ends_one_connection(node: Node) -> None:
    protocol, wire = node.connect("broken")
    other, other_wire = node.connect("other")
    node.send(protocol, PingReq())
    (disconnect,) = wire.sent()
    assert isinstance(disconnect, Disconnect)
    assert disconnect.reason_code == IMPLEMENTATION_SPECIFIC_ERROR
    assert wire.calls == ["write_eof"]
    node.send(other, PingReq())
    assert len(other_wire.sent()) == 1


def close_others(node: Node) -> None:
    """So many clients have gone in this turn that further ones are closed later."""
    for _ in range(CLOSES_MAX):
        assert node.host.turns.may_close(asyncio.Transport())


async def test_a_client_that_has_gone_is_closed_at_once(node: Node) -> None:
    protocol, _ = node.connect("c")
    assert not protocol.eof_received(), "the transport closes itself"


async def test_clients_that_go_at_once_are_closed_in_several_turns(node: Node) -> None:
    protocol, wire = node.connect("c")
    node.send(protocol, Subscribe(1, [SubscribeFilter(b"t", 0)]))
    close_others(node)
    assert protocol.eof_received(), "the transport does not close itself"
    broker = node.host.broker
    broker.publish(Message(b"t", b"x", 0, False), node.host.now())
    assert broker.sessions["c"].queue_length() == 1
    assert wire.calls == []
    await asyncio.sleep(0)
    assert wire.calls == ["close"]


async def test_a_client_comes_back_before_its_former_socket_is_closed(node: Node) -> None:
    former, former_wire = node.connect("c")
    close_others(node)
    assert former.eof_received()
    present, present_wire = node.connect("c")
    await asyncio.sleep(0)
    assert former_wire.calls[-1] == "close"
    former.connection_lost(None)
    session = node.host.broker.sessions["c"]
    assert session.connection is present.connection
    node.send(present, PingReq())
    assert len(present_wire.sent()) == 1
    assert present_wire.calls == []


async def test_a_lost_connection_is_forgotten(node: Node) -> None:
    protocol, _ = node.connect("c")
    protocol.connection_lost(ConnectionResetError())
    assert node.host.protocols == set()
    assert node.host.broker.sessions == {}
    protocol.resume_writing()
    protocol.abort()
