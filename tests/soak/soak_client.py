"""One MQTT client of a soak, over TCP, TLS or WebSocket: it keeps no messages, and acknowledges what comes."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Final, Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from broker.codec import properties as props
from broker.codec.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscribeFilter,
)
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet
from waiting import DEADLINE

READ_BYTES: Final = 65_536


class Way(Protocol):
    """How bytes go to the node and come from it; no bytes are the end."""

    async def send(self, data: bytes) -> None: ...
    async def receive(self) -> bytes: ...
    def cut(self) -> None: ...
    async def close(self) -> None: ...


class StreamWay:
    """TCP, or TLS on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        if self._writer.is_closing():
            raise ConnectionError("the connection is closed")  # uvloop has an error of its own for it
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self) -> bytes:
        return await self._reader.read(READ_BYTES)

    def cut(self) -> None:
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class WebSocketWay:
    """Binary frames of one packet or more."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, data: bytes) -> None:
        try:
            await self._connection.send(data)
        except ConnectionClosed as error:
            raise ConnectionError(str(error)) from None

    async def receive(self) -> bytes:
        try:
            data = await self._connection.recv()
        except ConnectionClosed:
            return b""
        assert isinstance(data, bytes)
        return data

    def cut(self) -> None:
        self._connection.transport.abort()

    async def close(self) -> None:
        await self._connection.close()


async def open_way(transport: str, port: int, tls: ssl.SSLContext) -> Way:
    """A connection by `tcp`, `tls` or `ws`."""
    async with asyncio.timeout(DEADLINE):
        if transport == "ws":
            uri = f"ws://127.0.0.1:{port}/mqtt"
            return WebSocketWay(
                await connect(uri, subprotocols=[Subprotocol("mqtt")], compression=None, proxy=None, open_timeout=None)
            )
        if transport == "tls":
            return StreamWay(*await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname="localhost"))
        return StreamWay(*await asyncio.open_connection("127.0.0.1", port))


class SoakClient:
    """received      messages that came
    acknowledged  own messages of QoS 1 and 2 whose exchange has ended
    """

    def __init__(self, way: Way, version: int) -> None:
        self.received = 0
        self.acknowledged = 0
        self.ended = asyncio.Event()
        self._way = way
        self._version = version
        self._reader = PacketReader(version)
        self._silent = False
        self._packet_id = 0
        self._waiting: dict[int, asyncio.Future[Packet]] = {}  # for answers by packet id; CONNACK has 0
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            while data := await self._way.receive():
                answers = b"".join([self._take(packet) for packet in self._reader.receive_data(data)])
                if answers and not self._silent:
                    await self._way.send(answers)
        except OSError:
            pass
        finally:
            self.ended.set()
            for waiter in self._waiting.values():
                if not waiter.done():
                    waiter.set_exception(ConnectionError("the node has closed the connection"))

    def _take(self, packet: Packet) -> bytes:
        """The bytes to answer with."""
        answer: Packet | None = None
        if isinstance(packet, Publish):
            self.received += not packet.dup
            if packet.qos:
                answer = PubAck(packet.packet_id) if packet.qos == 1 else PubRec(packet.packet_id)
        elif isinstance(packet, PubRel):
            answer = PubComp(packet.packet_id)
        elif isinstance(packet, PubRec):
            answer = PubRel(packet.packet_id)
        elif isinstance(packet, ConnAck):
            self._answered(0, packet)
        elif isinstance(packet, (SubAck, PubAck, PubComp)):
            self._answered(packet.packet_id, packet)
        return b"" if answer is None else encode_packet(answer, self._version)

    def _answered(self, packet_id: int, packet: Packet) -> None:
        waiter = self._waiting.pop(packet_id, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(packet)

    async def _ask(self, packet_id: int, packet: Packet) -> Packet:
        if self.ended.is_set():
            raise ConnectionError("the connection has ended")
        waiter: asyncio.Future[Packet] = asyncio.get_running_loop().create_future()
        self._waiting[packet_id] = waiter
        try:
            await self._way.send(encode_packet(packet, self._version))
            async with asyncio.timeout(DEADLINE):
                return await waiter
        finally:
            self._waiting.pop(packet_id, None)
            waiter.cancel()

    def _next_packet_id(self) -> int:
        self._packet_id = self._packet_id % 65_535 + 1
        return self._packet_id

    async def connect(self, client_id: str, clean_start: bool, keep_alive: int, expiry: int) -> None:
        chosen: Properties = {props.SESSION_EXPIRY_INTERVAL: expiry} if self._version == 5 and expiry else {}
        answer = await self._ask(0, Connect(client_id, self._version, clean_start, keep_alive, properties=chosen))
        assert isinstance(answer, ConnAck)
        assert answer.reason_code == 0, answer

    async def subscribe(self, filters: list[SubscribeFilter]) -> None:
        packet_id = self._next_packet_id()
        answer = await self._ask(packet_id, Subscribe(packet_id, filters))
        assert isinstance(answer, SubAck)
        assert max(answer.reason_codes) < 0x80, answer

    async def publish(self, topic: bytes, payload: bytes, qos: int) -> None:
        """Returns when the exchange has ended."""
        if qos == 0:
            await self._way.send(encode_packet(Publish(topic, payload), self._version))
            return
        packet_id = self._next_packet_id()
        await self._ask(packet_id, Publish(topic, payload, qos, packet_id=packet_id))
        self.acknowledged += 1

    async def disconnect(self) -> None:
        await self._way.send(encode_packet(Disconnect(), self._version))
        await self.wait_ended()

    def fall_silent(self) -> None:
        """Answer nothing any more."""
        self._silent = True

    async def wait_ended(self) -> None:
        """The node closes the connection."""
        async with asyncio.timeout(DEADLINE):
            await self.ended.wait()

    def cut(self) -> None:
        self._way.cut()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._way.close()
