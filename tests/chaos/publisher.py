"""A QoS 1 publisher of several connections. It remembers which messages were acknowledged, and sends again what was not."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final

from broker.codec.packets import MQTT_5, MQTT_311, ConnAck, Connect, PubAck
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet, encode_publish
from messages import message_of

SEND_SECONDS: Final = 0.01  # between two looks at what may be sent
RECONNECT_SECONDS: Final = 0.1
ANSWER_SECONDS: Final = 10.0  # a node that acknowledges nothing for so long is left for another one
CONNECTION_SECONDS: Final = (
    10.0  # then a connection goes to the next node, so that a node that was away has publishers again
)
WINDOW: Final = 90  # messages on the way; below Receive Maximum of the nodes (100)
FAILURE_CODE: Final = 0x80


class Publisher:
    """Publishes numbered messages at a rate over connections to whichever node is up.

    is_paused     nothing new is published
    acknowledged  by number: 1 for an acknowledged message. Grows with what was published
    sent          by number: how often it was sent
    sent_again    how often a message was sent once more: its connection ended before the acknowledgement, or a node refused it
    """

    def __init__(self, ports: list[int], seed: int, rate: float, connections: int = 8) -> None:
        self.is_paused = False
        self.acknowledged = bytearray()
        self.sent: list[int] = []
        self.sent_again = 0
        self.connects = 0
        self.refused = 0
        self._ports = ports
        self._seed = seed
        self._rate = rate
        self._connections = connections
        self._tasks: list[asyncio.Task[None]] = []
        self._began_at = 0.0
        self._limit: int | None = None  # numbers below it are published; None: without end
        self._waiting = 0  # acknowledgements that are due

    @property
    def published(self) -> int:
        """Messages that were sent at least once."""
        return len(self.acknowledged)

    @property
    def acknowledged_count(self) -> int:
        return self.published - self._waiting

    def start(self) -> None:
        self._began_at = time.monotonic()
        self._tasks = [asyncio.create_task(self._keep_connected(index)) for index in range(self._connections)]

    async def finish(self, seconds: float) -> None:
        """Publish nothing new; return when everything is acknowledged. Raises TimeoutError after `seconds`."""
        self._limit = self.published
        async with asyncio.timeout(seconds):
            await asyncio.gather(*self._tasks)

    async def abort(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- shared by the connections

    def take_number(self) -> int | None:
        """The next message, None while the rate does not allow one."""
        number = self.published
        if self.is_paused or self._limit is not None or number >= (time.monotonic() - self._began_at) * self._rate:
            return None
        self.acknowledged.append(0)
        self.sent.append(1)
        self._waiting += 1
        return number

    def take_again(self, again: deque[int]) -> int:
        self.sent_again += 1
        number = again.popleft()
        self.sent[number] += 1
        return number

    def acknowledge(self, number: int) -> None:
        if not self.acknowledged[number]:
            self.acknowledged[number] = 1
            self._waiting -= 1

    @property
    def ends(self) -> bool:
        return self._limit is not None

    async def _keep_connected(self, index: int) -> None:
        """Publish over one connection after the other until all is acknowledged."""
        again: deque[int] = deque()
        version = MQTT_5 if index % 2 else MQTT_311
        attempt = index
        while not (self.ends and not again):
            port = self._ports[attempt % len(self._ports)]
            attempt += 1
            connection = Connection(self, self._seed, version, again)
            try:
                await connection.serve(port, f"chaos-{index}")
            except (OSError, TimeoutError, EOFError):
                await asyncio.sleep(RECONNECT_SECONDS)
            again = connection.not_acknowledged()


class Connection:
    """One connection and what was sent over it. `again` goes first."""

    def __init__(self, publisher: Publisher, seed: int, version: int, again: deque[int]) -> None:
        self._publisher = publisher
        self._seed = seed
        self._version = version
        self._again = again
        self._in_flight: dict[int, int] = {}  # packet identifier: number
        self._packet_id = 0
        self._answered_at = 0.0
        self._ends_at = time.monotonic() + CONNECTION_SECONDS

    def not_acknowledged(self) -> deque[int]:
        return deque([*self._in_flight.values(), *self._again])

    async def serve(self, port: int, client_id: str) -> None:
        """Publish until the connection ends, the node is silent for ANSWER_SECONDS, CONNECTION_SECONDS have passed, or all is
        acknowledged."""
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        packets = PacketReader(self._version)
        try:
            writer.write(encode_packet(Connect(client_id, self._version), self._version))
            async with asyncio.timeout(ANSWER_SECONDS):
                while not (found := packets.receive_data(await _some(reader))):
                    pass
            if not isinstance(found[0], ConnAck) or found[0].reason_code:
                raise ConnectionRefusedError(repr(found[0]))
            self._publisher.connects += 1
            self._answered_at = time.monotonic()
            reading = asyncio.create_task(self._read(reader, packets))
            try:
                while not (reading.done() or writer.is_closing()) and self._has_work():
                    writer.write(self._next_packets())
                    await asyncio.wait([reading], timeout=SEND_SECONDS)
                    if self._in_flight and time.monotonic() - self._answered_at > ANSWER_SECONDS:
                        raise TimeoutError
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
        finally:
            writer.transport.abort()

    def _has_work(self) -> bool:
        return bool(self._in_flight) or (
            time.monotonic() < self._ends_at and (bool(self._again) or not self._publisher.ends)
        )

    async def _read(self, reader: asyncio.StreamReader, packets: PacketReader) -> None:
        while True:
            for packet in packets.receive_data(await _some(reader)):
                if isinstance(packet, PubAck):
                    self._receive_puback(packet)

    def _receive_puback(self, packet: PubAck) -> None:
        self._answered_at = time.monotonic()
        number = self._in_flight.pop(packet.packet_id)
        if packet.reason_code < FAILURE_CODE:
            self._publisher.acknowledge(number)
        else:
            self._publisher.refused += 1
            self._again.append(number)

    def _next_packets(self) -> bytes:
        """PUBLISH packets as far as the window and the rate allow."""
        parts = []
        if time.monotonic() >= self._ends_at:
            return b""
        while len(self._in_flight) < WINDOW:
            number = self._publisher.take_again(self._again) if self._again else self._publisher.take_number()
            if number is None:
                break
            if not self._in_flight:
                self._answered_at = time.monotonic()
            packet_id = self._next_packet_id()
            self._in_flight[packet_id] = number
            message = message_of(self._seed, number)
            fields = (message.topic, message.payload, 1, False, False, packet_id, message.properties)
            parts.append(encode_publish(self._version, *fields))
        return b"".join(parts)

    def _next_packet_id(self) -> int:
        while True:
            self._packet_id = self._packet_id % 65535 + 1
            if self._packet_id not in self._in_flight:
                return self._packet_id


async def _some(reader: asyncio.StreamReader) -> bytes:
    data = await reader.read(65536)
    if not data:
        raise EOFError
    return data
