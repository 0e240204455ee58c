"""A small MQTT client on the product's own codec."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

from broker.codec.packets import (
    MQTT_5,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscribeFilter,
    UnsubAck,
    Unsubscribe,
    Will,
)
from broker.codec.reader import PacketReader
from broker.codec.reason_codes import UNSPECIFIED_ERROR
from broker.codec.writer import encode_packet
from waiting import DEADLINE

CLOSE_SECONDS: Final = 5.0  # for a peer that stands still

AnyPacket = TypeVar("AnyPacket", bound=Packet)


async def opened(port: int | Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to a port of 127.0.0.1, or to a Unix socket."""
    if isinstance(port, Path):
        return await asyncio.open_unix_connection(port)
    return await asyncio.open_connection("127.0.0.1", port)


class MqttClient:
    """An MQTT client. It acknowledges messages when they come, unless `acknowledges` is False."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self.version = version
        self.acknowledges = True
        self.messages: asyncio.Queue[Publish] = asyncio.Queue()
        self.answers: asyncio.Queue[Packet] = asyncio.Queue()
        self.connack: ConnAck | None = None
        self.disconnect: Disconnect | None = None  # what the server sent
        self.closed = asyncio.Event()
        self._reader = reader
        self._writer = writer
        self._packets = PacketReader(version)
        self._packet_id = 0
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, port: int | Path, version: int = MQTT_5, tls: ssl.SSLContext | None = None, header: bytes = b""
    ) -> MqttClient:
        """A connection without CONNECT; `header` is sent first, in front of TLS."""
        async with asyncio.timeout(DEADLINE):
            reader, writer = await opened(port)
            writer.write(header)
            if tls is not None:
                await writer.start_tls(tls, server_hostname="localhost")
        client = cls(reader, writer, version)
        client._reading = asyncio.create_task(client._read())
        return client

    @classmethod
    async def connect(
        cls,
        port: int | Path,
        client_id: str = "",
        version: int = MQTT_5,
        clean_start: bool = True,
        keep_alive: int = 0,
        will: Will | None = None,
        properties: Properties | None = None,
        reason_code: int = 0,
        tls: ssl.SSLContext | None = None,
        header: bytes = b"",
        acknowledges: bool = True,
    ) -> MqttClient:
        client = await cls.open(port, version, tls, header)
        client.acknowledges = acknowledges
        client.send(Connect(client_id, version, clean_start, keep_alive, None, None, will, properties or {}))
        client.connack = await client.answer(ConnAck)
        assert client.connack.reason_code == reason_code, client.connack
        return client

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(65536):
                for packet in self._packets.receive_data(data):
                    self._received(packet)
        except ConnectionError:
            pass
        finally:
            self.closed.set()
            self._writer.close()

    def _received(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self.messages.put_nowait(packet)
            if self.acknowledges and packet.qos:
                self.send(PubAck(packet.packet_id) if packet.qos == 1 else PubRec(packet.packet_id))
        elif isinstance(packet, PubRel):
            self.send(PubComp(packet.packet_id))
        elif isinstance(packet, Disconnect):
            self.disconnect = packet
        else:
            self.answers.put_nowait(packet)

    def send(self, *packets: Packet) -> None:
        self.send_bytes(b"".join([encode_packet(packet, self.version) for packet in packets]))

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        async with asyncio.timeout(DEADLINE):
            await self._writer.drain()

    async def answer(self, kind: type[AnyPacket]) -> AnyPacket:
        """The next packet other than PUBLISH, which must be of this kind."""
        async with asyncio.timeout(DEADLINE):
            packet = await self.answers.get()
        assert isinstance(packet, kind), packet
        return packet

    async def message(self, seconds: float = DEADLINE) -> Publish:
        async with asyncio.timeout(seconds):
            return await self.messages.get()

    async def take(self, count: int, seconds: float = DEADLINE) -> list[Publish]:
        """The next `count` messages."""
        taken: list[Publish] = []
        async with asyncio.timeout(seconds):
            while len(taken) < count:
                taken.append(await self.messages.get())
        return taken

    async def subscribe(self, *topic_filters: str, qos: int = 0) -> list[int]:
        """Subscribe. Returns the reason codes."""
        packet_id = self._next_packet_id()
        filters = [SubscribeFilter(text.encode(), qos) for text in topic_filters]
        self.send(Subscribe(packet_id, filters))
        suback = await self.answer(SubAck)
        assert suback.packet_id == packet_id
        return suback.reason_codes

    async def unsubscribe(self, *topic_filters: str) -> None:
        packet_id = self._next_packet_id()
        self.send(Unsubscribe(packet_id, [text.encode() for text in topic_filters]))
        await self.answer(UnsubAck)

    async def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> None:
        """Publish. Returns when the server has acknowledged; with QoS 0 when it has answered a PINGREQ after it."""
        packet_id = self._next_packet_id() if qos else 0
        self.send(Publish(topic.encode(), payload, qos, retain, False, packet_id))
        if qos == 0:
            await self.ping()
        elif qos == 1:
            await self.answer(PubAck)
        else:
            await self.answer(PubRec)
            self.send(PubRel(packet_id))
            await self.answer(PubComp)

    async def publish_all(self, messages: Iterable[tuple[str, bytes, int]]) -> None:
        """Publish (topic, payload, QoS) in one write. Returns when all of QoS 1 and 2 are acknowledged; they are not more than
        the Receive Maximum of the server."""
        waiting = 0
        packets: list[Packet] = []
        for topic, payload, qos in messages:
            packet_id = self._next_packet_id() if qos else 0
            packets.append(Publish(topic.encode(), payload, qos, False, False, packet_id))
            waiting += qos > 0
        self.send(*packets)
        async with asyncio.timeout(DEADLINE):
            while waiting:
                answer = await self.answers.get()
                if isinstance(answer, PubRec):
                    self.send(PubRel(answer.packet_id))
                else:
                    assert isinstance(answer, PubAck | PubComp), answer
                    assert answer.reason_code < UNSPECIFIED_ERROR, answer
                    waiting -= 1

    async def ping(self) -> None:
        self.send(PingReq())
        await self.answer(PingResp)

    async def wait_closed(self, seconds: float = DEADLINE) -> None:
        async with asyncio.timeout(seconds):
            await self.closed.wait()

    def abort(self) -> None:
        """Close the socket without DISCONNECT."""
        self._writer.transport.abort()

    async def close(self, goodbye: bool = True) -> None:
        if goodbye and not self._writer.is_closing() and self.connack is not None:
            self.send(Disconnect())
        self._writer.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._writer.wait_closed()

    def _next_packet_id(self) -> int:
        self._packet_id = self._packet_id % 65535 + 1
        return self._packet_id


class Clients:
    """Opens MQTT clients, and closes them with the test."""

    def __init__(self) -> None:
        self._all: list[MqttClient] = []

    async def open(self, port: int | Path, version: int = MQTT_5, **options: Any) -> MqttClient:
        client = await MqttClient.open(port, version, **options)
        self._all.append(client)
        return client

    async def connect(self, port: int | Path, client_id: str = "", version: int = MQTT_5, **options: Any) -> MqttClient:
        client = await MqttClient.connect(port, client_id, version, **options)
        self._all.append(client)
        return client

    async def close(self) -> None:
        await asyncio.gather(*(client.close() for client in self._all))


class Watch:
    """A pair of clients of one node that checks whether others are served."""

    def __init__(self, subscriber: MqttClient, publisher: MqttClient) -> None:
        self._subscriber = subscriber
        self._publisher = publisher
        self._count = 0

    async def check(self, seconds: float = DEADLINE) -> None:
        """One message at each QoS must arrive, each within `seconds`."""
        for qos in (0, 1, 2):
            self._count += 1
            payload = b"%d" % self._count
            await self._publisher.publish("watch/topic", payload, qos)
            message = await self._subscriber.message(seconds)
            assert message.payload == payload
        assert not self._subscriber.closed.is_set()


async def reached(publisher: MqttClient, topic: str, *subscribers: MqttClient) -> None:
    """Wait until messages of the topic reach each of the subscribers; take all messages that were sent for that."""
    number = 0
    for subscriber in subscribers:
        for _ in range(300):
            number += 1
            await publisher.publish(topic, b"probe %d" % number, 1)
            with contextlib.suppress(TimeoutError):
                await subscriber.message(0.1)
                break
        else:
            raise AssertionError(f"{topic} does not reach a subscriber")
    await publisher.publish(topic, b"probes over", 1)
    for subscriber in subscribers:
        while (await subscriber.message()).payload != b"probes over":
            pass
