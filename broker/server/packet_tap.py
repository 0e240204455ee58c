"""The packets of one connection, for traces and the log: both directions are decoded a second time."""

# not compiled: of traced connections only
from __future__ import annotations

from typing import Final, Protocol

from broker.codec.packets import Connect, Packet, Publish
from broker.codec.reader import PacketReader
from broker.errors import MqttError
from broker.server.logging import get_logger
from broker.session.connection import Connection

RECEIVED: Final = "received"
SENT: Final = "sent"


class PacketReceiver(Protocol):
    """Takes the packets of all taps: the traces of a node."""

    def may_ask_for(self, client_id: str, connection: Connection) -> bool:
        """Return whether packets of the client are asked for. `client_id` is "" while it is not known."""

    def show(
        self, direction: str, packet: Packet | MqttError, topic: bytes, client_id: str, connection: Connection
    ) -> None:
        """`topic` is b"" for all but PUBLISH."""


class TappedShell(Protocol):
    """The shell of one client's connection, as a tap uses it."""

    connection: Connection | None
    tap: PacketTap | None


class PacketTap:
    """Begins between two packets of each direction, at any time. It removes itself when no trace asks for its client."""

    __slots__ = ("_client_id", "_faulty", "_received", "_received_topics", "_sent", "_sent_topics", "_shell", "_traces")

    def __init__(
        self, traces: PacketReceiver, shell: TappedShell, connection: Connection, max_packet_size: int
    ) -> None:
        self._traces = traces
        self._shell = shell
        self._client_id = ""  # of a CONNECT that the connection has not handled yet
        self._faulty: set[str] = set()  # directions whose bytes are no packets any more
        self._received = PacketReader(connection.version, max_packet_size)
        self._sent = PacketReader(connection.version, max_packet_size)
        self._received_topics: dict[int, bytes] = dict(connection.topic_aliases or {})  # by alias
        sent_aliases = connection.aliases
        self._sent_topics = {} if sent_aliases is None else dict(enumerate(sent_aliases.topics(), 1))

    def received(self, data: bytes, connection: Connection) -> None:
        self._show(RECEIVED, self._received, self._received_topics, data, connection)

    def sent(self, data: bytes, connection: Connection) -> None:
        self._show(SENT, self._sent, self._sent_topics, data, connection)

    def _show(
        self, direction: str, reader: PacketReader, topics: dict[int, bytes], data: bytes, connection: Connection
    ) -> None:
        """Raises nothing: a fault here must not end the client's connection."""
        client_id = connection.client_id or self._client_id
        if not self._traces.may_ask_for(client_id, connection):
            self._shell.tap = None
            return
        if direction in self._faulty:
            return
        if connection.version:
            reader.version = connection.version
        try:
            while packets := reader.receive_data(data):
                data = b""  # the next call tells a fault behind these packets
                for packet in packets:
                    if isinstance(packet, Connect):
                        client_id = self._client_id = packet.client_id
                    self._traces.show(direction, packet, resolved_topic(packet, topics), client_id, connection)
        except MqttError as error:
            self._traces.show(direction, error, b"", client_id, connection)
            self._faulty.add(direction)
        except Exception as fault:
            get_logger("trace").error("fault in a trace", client_id=client_id, exc_info=fault)
            self._shell.tap = None


def resolved_topic(packet: Packet, topics: dict[int, bytes]) -> bytes:
    """The topic name of a PUBLISH, also written into a packet that has an alias only; b"" for other packets."""
    if not isinstance(packet, Publish):
        return b""
    if packet.topic_alias:
        if packet.topic:
            topics[packet.topic_alias] = packet.topic
        else:
            packet.topic = topics.get(packet.topic_alias, b"")
    return packet.topic
