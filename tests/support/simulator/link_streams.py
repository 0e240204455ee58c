"""Both ends of the MQTT connection of a link on the simulated network: the shells around the same cores as those of asyncio."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Final

from broker.broker import Broker
from broker.codec.packets import MQTT_5, Publish
from broker.codec.reader import PacketReader
from broker.errors import MqttError
from broker.listener_facts import ListenerFacts
from broker.publisher import Publisher
from broker.session.connection import Connection
from federation.links.link import Link
from simulator.network import Stream
from simulator.process import Machine

MQTT_PORT: Final = 1883
NODE_PORT: Final = 1884  # for the other nodes of the cluster
NODES: Final = ListenerFacts("nodes", "simulated", is_node=True)


class ListenerEnd:
    """The upstream's end: a connection of a client, as a listener has them. `repeated` counts messages that a link that pushes
    has sent again."""

    def __init__(self, broker: Broker, stream: Stream, now: float) -> None:
        self.stream = stream
        self.repeated = 0
        self._packets = PacketReader(MQTT_5)
        self._broker = broker
        self._unread: deque[bytes] = deque()  # what is not read while the broker holds the client
        self._connection = Connection(broker, self, f"{stream.remote[0]}:{stream.remote[1]}", "simulated", now)
        if stream.port == NODE_PORT:
            self._connection.listener = NODES

    def received(self, data: bytes, now: float) -> None:
        if self._connection.closed:
            return
        for packet in self._packets.receive_data(data):
            self.repeated += isinstance(packet, Publish) and packet.dup
        if self._connection.held or self._unread:
            self._unread.append(data)
        else:
            self._connection.receive_data(data, now)

    def closed(self, now: float) -> None:
        if not self._connection.closed:
            self._broker.connection_lost(self._connection, now)

    def carry_out(self, connection: Connection) -> None:
        self.stream.write(connection.take_output())
        if connection.closed:
            self.stream.close()

    def set_reading(self, publisher: Publisher) -> None:
        now = self._broker.now
        if not self._connection.held and not self._connection.closed:
            self._connection.resume_receiving(now)
        while self._unread and not self._connection.held and not self._connection.closed:
            self._connection.receive_data(self._unread.popleft(), now)


class UpstreamEnd:
    """The link's end. `stream` is None while the link wants no connection. `repeated` counts messages that the upstream has
    sent again, after a connection that broke before their acknowledgement came."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.stream: Stream | None = None
        self.repeated = 0
        self._packets = PacketReader(MQTT_5)
        self._attempt = -1
        self._unread: list[bytes] = []

    # --- what the link asks

    def follow(self, host: Machine) -> bool:
        """Open and close what the link asks for; whether there was anything."""
        link = self.link
        moved = False
        if self.stream is not None:
            self.stream.write(link.take_output(self._attempt))
        if self.stream is not None and self._attempt != link.attempt:
            self.stream.close()
            self.stream = None
            moved = True
        if link.wants_connection and self.stream is None:
            uri = link.address
            self._attempt = link.attempt
            self._unread.clear()
            self._packets = PacketReader(MQTT_5)
            self.stream = host.open_stream((uri.host, uri.port))
            moved = True
        return moved

    def read(self, now: float) -> bool:
        """Give the link what waited while the broker held it; whether there was anything."""
        if self.link.holds_upstream() or not self._unread:
            return False
        data = b"".join(self._unread)
        self._unread.clear()
        self.link.receive_data(self._attempt, data, now)
        return True

    # --- what the network tells

    def opened(self, now: float) -> None:
        self.link.connected(self._attempt, now)

    def received(self, data: bytes, now: float) -> None:
        with suppress(MqttError):  # of MQTT 3.1.1, after connections that ended without an answer, nothing is counted
            for packet in self._packets.receive_data(data):
                self.repeated += isinstance(packet, Publish) and packet.dup
        if self.link.holds_upstream() or self._unread:
            self._unread.append(data)
        else:
            self.link.receive_data(self._attempt, data, now)

    def closed(self, error: str, now: float) -> None:
        self.stream = None
        self.link.connection_lost(self._attempt, error or "the upstream closed the connection", now)
