"""`log.dump_packet`: every packet of every client as a line of the log. For debugging; nothing of it is on the path of a
node that does not dump."""

from __future__ import annotations

import asyncio

from broker.codec.reader import PacketReader
from broker.errors import MqttError
from broker.server.client_log import LoggingProtocol
from broker.server.logging import get_logger
from broker.server.socket_writer import SocketWriter
from broker.session.connection import Connection


class PacketDump:
    """Reads one direction of a connection a second time, for the log alone."""

    def __init__(self, direction: str, max_packet_size: int) -> None:
        self._direction = direction
        self._reader = PacketReader(0, max_packet_size)
        self._broken = False
        self._log = get_logger("packet")

    def dump(self, data: bytes, connection: Connection) -> None:
        if self._broken:
            return
        if connection.version:
            self._reader.version = connection.version
        try:
            for packet in self._reader.receive_data(data):
                self._log.debug(self._direction, client_id=connection.client_id, packet=repr(packet))
        except MqttError as error:
            self._broken = True
            self._log.debug(f"{self._direction}: no MQTT", client_id=connection.client_id, error=error.text)


class DumpingProtocol(LoggingProtocol):
    """A protocol that also logs what passes."""

    __slots__ = ("_received", "_sent")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._received = PacketDump("received", self.server.settings.mqtt.max_packet_size)
        self._sent = PacketDump("sent", self.server.settings.mqtt.max_packet_size)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        connection = self.connection
        if connection is None or connection.closed:
            return
        self._received.dump(data, connection)
        super().data_received(data)

    def write(self, writer: SocketWriter, data: bytes) -> None:
        if self.connection is not None:
            self._sent.dump(data, self.connection)
        super().write(writer, data)
