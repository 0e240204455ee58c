"""MQTT clients of a simulated node, in the node's process: no network is between them."""

from __future__ import annotations

from collections import deque
from typing import Final

from broker.broker import Broker
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
    Subscribe,
    SubscribeFilter,
    Unsubscribe,
)
from broker.codec.properties import RECEIVE_MAXIMUM, SESSION_EXPIRY_INTERVAL
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet
from broker.session.connection import Connection

PROTOCOL_VERSION: Final = 5
FAILURE_CODE: Final = 0x80  # reason codes from here on say that something was not done [MQTT5 2.4]


class ClientEnd:
    """A client's end of its connection to the broker.

    takes  False: the output stays in the broker, as with a connection that is full
    """

    def __init__(self, version: int = PROTOCOL_VERSION) -> None:
        self.takes = True
        self.version = version

    def open(self, broker: Broker, connect: Connect, now: float) -> None:
        """Open a connection, again to the broker of a new process of the node."""
        self._broker = broker
        self._connection = Connection(broker, self, "simulated", "simulated", now)
        self._packets = PacketReader(self.version)
        self._is_welcome = False
        self._unread: deque[bytes] = deque()  # what the broker does not read while it holds this client
        self.send(connect, now)

    def set_taking(self, takes: bool, now: float) -> None:
        self.takes = takes
        if takes:
            self._broker.connection_writable(self._connection, now)
        else:
            self._connection.writable = False

    def take(self, now: float) -> bool:
        """Read what is there, and handle it; whether there was anything."""
        data = self._connection.take_output() if self.takes else b""
        for packet in self._packets.receive_data(data):
            if not self._is_welcome:
                assert isinstance(packet, ConnAck), f"{packet} is the first packet [MQTT-3.2.0-1]"
                self._is_welcome = True
            self.handle_packet(packet, now)
        return bool(data)

    def handle_packet(self, packet: Packet, now: float) -> None:
        raise AssertionError("a subclass implements this")

    def send(self, packet: Packet, now: float) -> None:
        data = encode_packet(packet, self.version)
        if self._connection.held or self._unread:
            self._unread.append(data)
        else:
            self._connection.receive_data(data, now)

    @property
    def is_closed(self) -> bool:
        """Return whether the broker has ended the connection."""
        return self._connection.closed

    @property
    def is_held(self) -> bool:
        """Return whether the broker reads nothing of the client now."""
        return bool(self._connection.held or self._unread)

    def set_reading(self, now: float) -> None:
        """The broker may have begun to hold this client, or has let it go."""
        if not self._connection.held:
            self._connection.resume_receiving(now)
        while self._unread and not self._connection.held:
            self._connection.receive_data(self._unread.popleft(), now)


class Client(ClientEnd):
    """`received` are the (topic, payload) that came, `acknowledged` the packet identifiers of the messages that the broker has
    taken; `refused` is how many it has not. `expiry`: seconds that its session outlives a connection."""

    def __init__(self, broker: Broker, client_id: str, now: float, receive_maximum: int = 0, expiry: int = 0) -> None:
        super().__init__()
        self.received: list[tuple[bytes, bytes]] = []
        self.acknowledged: set[int] = set()
        self.refused = 0
        self._client_id = client_id
        self._next_packet_id = 0
        self._properties: Properties = {RECEIVE_MAXIMUM: receive_maximum} if receive_maximum else {}
        if expiry:
            self._properties[SESSION_EXPIRY_INTERVAL] = expiry
        self.connect(broker, now)

    def connect(self, broker: Broker, now: float) -> None:
        """Connect to a broker, again to that of a new process of the node. What is known of a session stays."""
        connect = Connect(
            client_id=self._client_id,
            protocol_version=self.version,
            clean_start=SESSION_EXPIRY_INTERVAL not in self._properties,
            keep_alive=0,
            properties=self._properties,
        )
        self.open(broker, connect, now)

    def subscribe(self, topic_filter: str, now: float, qos: int = 1) -> None:
        self.send(Subscribe(self._packet_id(), [SubscribeFilter(topic_filter.encode(), qos)], {}), now)

    def unsubscribe(self, topic_filter: str, now: float) -> None:
        self.send(Unsubscribe(self._packet_id(), [topic_filter.encode()], {}), now)

    def publish(self, topic: str, payload: bytes, now: float, qos: int = 1, retain: bool = False) -> int:
        """Returns the packet identifier, 0 with QoS 0."""
        packet_id = self._packet_id() if qos else 0
        self.send(Publish(topic.encode(), payload, qos, retain, packet_id=packet_id), now)
        return packet_id

    def handle_packet(self, packet: Packet, now: float) -> None:
        """Acknowledge it."""
        if isinstance(packet, Publish):
            self.received.append((packet.topic, packet.payload))
            if packet.qos:
                self._handle(packet, now)
        elif isinstance(packet, PubAck | PubRec | PubComp) and packet.reason_code >= FAILURE_CODE:
            self.refused += 1
        elif isinstance(packet, PubRec):
            self.send(PubRel(packet.packet_id), now)
        elif isinstance(packet, PubAck | PubComp):
            self.acknowledged.add(packet.packet_id)

    def _handle(self, packet: Publish, now: float) -> None:
        """A message with QoS 1 came."""
        self.send(PubAck(packet.packet_id), now)

    def _packet_id(self) -> int:
        self._next_packet_id = self._next_packet_id % 65_535 + 1
        return self._next_packet_id

    def disconnect(self, now: float) -> None:
        self.send(Disconnect(), now)
