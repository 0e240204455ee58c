"""`log.dump_packet`: every packet of every client as a line of the log, with named fields.

Only the connections that dump have this shell, so the others pay nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.codec.reader import PacketReader
from broker.errors import MqttError
from broker.server.layered_protocol import LayeredProtocol
from broker.server.listener import Listener
from broker.server.logging import get_logger
from broker.server.packet_fields import packet_fields
from broker.server.socket_writer import SocketWriter
from broker.session.connection import Connection

if TYPE_CHECKING:
    from broker.server.host import Host


class PacketDump:
    """Decodes one direction of a connection a second time, for the log."""

    def __init__(self, direction: str, max_packet_size: int) -> None:
        self._direction = direction
        self._reader = PacketReader(0, max_packet_size)
        self._is_broken = False
        self._log = get_logger("packet")

    def dump(self, data: bytes, connection: Connection) -> None:
        if self._is_broken:
            return
        if connection.version:
            self._reader.version = connection.version
        try:
            for packet in self._reader.receive_data(data):
                fields = {"packet": type(packet).__name__.upper(), **packet_fields(packet)}
                fields.setdefault("client_id", connection.client_id)
                self._log.debug(self._direction, **fields)
        except MqttError as error:
            self._is_broken = True
            self._log.debug(f"{self._direction}: no MQTT", client_id=connection.client_id, error=error.text)


class DumpingProtocol(LayeredProtocol):
    """A LayeredProtocol, with any number of layers, that logs the packets in both directions."""

    __slots__ = ("_received", "_sent")

    def __init__(self, server: Host, listener: Listener) -> None:
        super().__init__(server, listener)
        max_packet_size = server.settings.mqtt.max_packet_size
        self._received = PacketDump("received", max_packet_size)
        self._sent = PacketDump("sent", max_packet_size)

    def receive_packets(self, data: bytes) -> None:
        if self.connection is not None and not self.connection.closed:
            self._received.dump(data, self.connection)
        super().receive_packets(data)

    def write(self, writer: SocketWriter, data: bytes) -> None:
        if self.connection is not None:
            self._sent.dump(data, self.connection)
        super().write(writer, data)
