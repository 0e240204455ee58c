"""The shell of layers with a socket pair and without a network: slices, holds, ends, and what a client is told."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.client import ClientProtocol as WebSocketPeer
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from broker.codec.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    Publish,
    SubAck,
    Subscribe,
    SubscribeFilter,
    Will,
)
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet
from broker.config.addresses import parse_address
from broker.config.settings import Settings
from broker.config.settings_listeners import ListenerSettings, WebsocketSettings
from broker.config.settings_mqtt import MqttSettings
from broker.server.host import Host
from broker.server.layered_protocol import LayeredProtocol
from broker.server.listener import Listener
from broker.server.websocket_layer import FRAMES_MAX

LISTENER = Listener(ListenerSettings(parse_address("127.0.0.1:1"), websocket=WebsocketSettings()), "listeners[0]", 0.0)
PEER = ("192.0.2.1", 40000)


class Wire(asyncio.Transport):
    """A transport whose output goes to a socket pair. `reads` is False while the shell has paused it."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = socket.socketpair()
        for end in (self.near, self.far):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**22)
        self.reads = True
        self.ends: list[str] = []

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"socket": self.near, "peername": PEER, "sockname": ("127.0.0.1", 1)}.get(name, default)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def is_closing(self) -> bool:
        return "close" in self.ends or "abort" in self.ends

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ends.append("write_eof")

    def close(self) -> None:
        self.ends.append("close")

    def abort(self) -> None:
        self.ends.append("abort")

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


class Client:
    """A WebSocket client on a wire."""

    def __init__(self, host: Host) -> None:
        self.wire = Wire()
        self.shell = LayeredProtocol(host, LISTENER)
        self.host = host
        self.shell.connection_made(self.wire)
        self.peer = WebSocketPeer(parse_uri("ws://localhost/"), subprotocols=[Subprotocol("mqtt")], max_size=None)
        self.frames: list[Frame] = []
        self.packets: list[Packet] = []
        self._reader = PacketReader(5)
        self.waiting: list[bytes] = []

    def take(self) -> bytes:
        return b"".join(self.peer.data_to_send())

    def encode(self, *packets: Packet) -> None:
        """Each packet in a frame of its own."""
        for packet in packets:
            self.peer.send_binary(encode_packet(packet, 5))

    def give(self, data: bytes) -> None:
        """Bytes arrive; while the shell does not read they wait in the kernel."""
        self.waiting.append(data)
        self.deliver()

    def deliver(self) -> None:
        while self.waiting and self.wire.reads:
            self.shell.data_received(self.waiting.pop(0))

    async def settle(self) -> None:
        """Turns of the loop until all input is handled."""
        for _ in range(1000):
            await asyncio.sleep(0)
            self.deliver()
            self.read()
            broker = self.host.broker
            if not (self.waiting or self.shell.has_more() or broker.slices.has_work() or broker.dirty):
                return
        raise AssertionError("the input is not handled")

    def read(self) -> None:
        while True:
            try:
                data = self.wire.far.recv(2**20)
            except BlockingIOError:
                return
            self.peer.receive_data(data)
            for event in self.peer.events_received():
                if isinstance(event, Frame):
                    self.frames.append(event)
                    if event.opcode is Opcode.BINARY:
                        self.packets += self._reader.receive_data(bytes(event.data))

    async def connect(self, client_id: str = "c", will: Will | None = None) -> None:
        self.peer.send_request(self.peer.connect())
        self.give(self.take())
        await self.settle()
        assert self.peer.state is State.OPEN
        self.encode(Connect(client_id, 5, will=will), Subscribe(1, [SubscribeFilter(b"t", 0)]))
        self.give(self.take())
        await self.settle()
        assert [type(packet) for packet in self.packets] == [ConnAck, SubAck]
        self.packets.clear()
        self.frames.clear()

    def end(self) -> None:
        """The connection is lost."""
        self.shell.connection_lost(None)
        self.wire.near.close()
        self.wire.far.close()


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    made = Host(Settings(mqtt=MqttSettings(max_packet_size=2**20)))
    yield made
    made.turns.stop()


@pytest.fixture
async def client(host: Host) -> AsyncIterator[Client]:
    made = Client(host)
    await made.connect()
    yield made
    made.end()
    assert host.protocols == set()


def payloads(packets: list[Packet]) -> list[bytes]:
    return [packet.payload for packet in packets if isinstance(packet, Publish)]


async def test_many_small_frames_take_several_turns(client: Client) -> None:
    """And the client is not read meanwhile. Nothing is lost, and the order is kept."""
    count = 5 * FRAMES_MAX
    client.encode(*[Publish(b"t", b"%d" % number) for number in range(count)], PingReq())
    client.give(client.take())
    assert client.shell.has_more()
    turns = 0
    while not client.packets or not isinstance(client.packets[-1], PingResp):
        await asyncio.sleep(0)
        client.deliver()
        client.read()
        turns += 1
        assert turns < 200
    assert payloads(client.packets) == [b"%d" % number for number in range(count)]
    assert turns >= 5


@pytest.mark.parametrize("seed", range(8))
async def test_random_chunks_and_pauses(client: Client, host: Host, seed: int) -> None:
    """Frames cut anywhere, while the publisher is paused and released at random."""
    rng = random.Random(seed)
    connection = client.shell.connection
    assert connection is not None
    count = 2_000
    for number in range(count):
        data = encode_packet(Publish(b"t", b"%d" % number), 5)
        cut = rng.randrange(len(data) + 1)
        client.peer.send_binary(data[:cut])
        client.peer.send_binary(data[cut:])
    stream = client.take()
    pauses = 0
    while stream:
        size = rng.choice([1, 10, 1000, 30_000])
        client.give(stream[:size])
        stream = stream[size:]
        if pauses and rng.random() < 0.5:
            host.broker.release(connection)
            pauses -= 1
        elif rng.random() < 0.3:
            host.broker.pause(connection)
            pauses += 1
        host.flush_soon()
        if rng.random() < 0.3:
            await asyncio.sleep(0)
            client.read()
    for _ in range(pauses):
        host.broker.release(connection)
    host.flush_soon()
    await client.settle()
    await client.settle()
    assert payloads(client.packets) == [b"%d" % number for number in range(count)]


async def test_output_of_a_turn_is_one_frame(client: Client) -> None:
    client.peer.send_binary(b"".join(encode_packet(Publish(b"t", b"%d" % number), 5) for number in range(100)))
    client.give(client.take())
    await client.settle()
    assert len(payloads(client.packets)) == 100
    assert [frame.opcode for frame in client.frames] == [Opcode.BINARY]


async def test_the_close_of_the_client_ends_the_connection(client: Client, host: Host) -> None:
    client.encode(Publish(b"t", b"last"))
    client.peer.send_close(1000)
    client.give(client.take())
    await client.settle()
    assert client.frames[-1].opcode is Opcode.CLOSE
    assert client.wire.ends in (["close"], ["write_eof"])
    assert host.broker.sessions == {}
    assert host.broker.counters.protocol_errors == 0


@pytest.mark.parametrize("count", [0, 3_000], ids=["held", "more than a slice"])
async def test_what_came_before_the_close_is_handled_first(client: Client, host: Host, count: int) -> None:
    """Also while the connection is held, and when its packets are more than a slice. DISCONNECT discards the will."""
    leaving = Client(host)
    await leaving.connect("leaving", Will(b"t", b"will"))
    connection = leaving.shell.connection
    assert connection is not None
    sent = [b"%d" % number for number in range(count)]
    packets = [packet for payload in sent for packet in (Publish(b"t", payload), PingReq())]
    leaving.peer.send_binary(b"".join(encode_packet(packet, 5) for packet in [*packets, Publish(b"t", b"last")]))
    leaving.encode(Disconnect())
    leaving.peer.send_close(1000)
    if not count:
        host.broker.pause(connection)
    leaving.give(leaving.take())
    await leaving.settle()
    if not count:
        assert not connection.closed
        host.broker.release(connection)
        host.flush_soon()
        await leaving.settle()
    await client.settle()
    assert payloads(client.packets) == [*sent, b"last"]
    assert list(host.broker.sessions) == ["c"]
    assert host.broker.counters.protocol_errors == 0
    assert leaving.wire.ends in (["close"], ["write_eof"])
    leaving.end()


async def test_a_fault_of_mqtt_is_told_in_a_frame(client: Client, host: Host) -> None:
    client.encode(Connect("again", 5))
    client.give(client.take())
    await client.settle()
    (disconnect,) = client.packets
    assert isinstance(disconnect, Disconnect)
    assert disconnect.reason_code == 0x82
    assert client.frames[-1].opcode is Opcode.CLOSE
    assert client.wire.ends == ["write_eof"]


async def test_a_fault_of_websocket_is_counted_once(client: Client, host: Host) -> None:
    client.peer.send_text(b"text")
    client.give(client.take())
    client.give(b"more")
    await client.settle()
    assert client.frames[-1].opcode is Opcode.CLOSE
    assert host.broker.counters.protocol_errors == 1
    assert host.broker.sessions == {}
    client.give(b"still more")
    assert host.broker.counters.protocol_errors == 1
