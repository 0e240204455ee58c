"""The shell of one client's connection: socket, reading, writing, close. It contains no rule of MQTT."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from mypy_extensions import mypyc_attr

from broker.config.addresses import socket_name_text
from broker.listener_facts import ListenerFacts
from broker.publisher import Publisher
from broker.server.socket_writer import SocketWriter
from broker.session.connection import Connection

if TYPE_CHECKING:
    from broker.server.host import Host


LINGER_SECONDS_MAX: Final = 2.0  # from the last byte that is written to the client's end of the connection


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientProtocol(asyncio.Protocol):
    """Shell of one `Connection`. It has no task, stream or queue, so an idle client takes little memory."""

    __slots__ = ("connection", "linger", "listener", "paused", "server", "transport", "turns", "writer")

    def __init__(self, server: Host, listener: ListenerFacts) -> None:
        self.server = server
        self.listener = listener
        self.turns = server.turns
        self.transport: asyncio.Transport | None = None
        self.writer: SocketWriter | None = None
        self.connection: Connection | None = None
        self.paused = False
        self.linger: asyncio.TimerHandle | None = None  # runs from the close until the client ends the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self.server
        self.transport = cast(asyncio.Transport, transport)
        if not server.admit(self):
            self.transport.abort()
            return
        self.transport.set_write_buffer_limits(high=server.settings.mqtt.write_buffer_high)
        self.connection = connection = Connection(
            server.broker,
            self,
            socket_name_text(transport.get_extra_info("peername")),
            socket_name_text(transport.get_extra_info("sockname")),
            server.now(),
        )
        connection.listener = self.listener
        self.writer = SocketWriter(self.transport)

    def data_received(self, data: bytes) -> None:
        connection = self.connection
        if connection is None or connection.closed:
            return
        turns = self.turns
        now = turns.now()
        try:
            connection.receive_data(data, now)
        except Exception as error:  # a fault of the broker ends this connection only
            self.server.internal_error(connection, error)
        turns.chunk_handled(len(data), now)

    def pause_writing(self) -> None:
        if self.connection is not None:
            self.connection.writable = False

    def resume_writing(self) -> None:
        server = self.server
        connection = self.connection
        if connection is None:
            return
        try:
            server.broker.connection_writable(connection, server.now())
        except Exception as error:
            server.internal_error(connection, error)
        server.flush_soon()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        server = self.server
        connection = self.connection
        self.connection = None
        self.transport = None
        self.writer = None
        server.forget(self)
        if self.linger is not None:
            self.linger.cancel()
            self.linger = None
        if connection is not None:
            server.broker.connection_lost(connection, server.now())
            server.flush_soon()

    def carry_out(self, connection: Connection) -> None:
        """Write the connection's output in one call; close the socket when the core has closed the connection."""
        transport = self.transport
        writer = self.writer
        data = connection.take_output()
        if transport is None or writer is None or self.linger is not None:
            return
        if data:
            self.write(writer, data)
        if connection.closed and not transport.is_closing():
            self._end(transport, len(data) > 0)

    def write(self, writer: SocketWriter, data: bytes) -> None:
        """Does nothing when the transport is closing."""
        writer.write(data)

    def _end(self, transport: asyncio.Transport, told: bool) -> None:
        """Close the socket. `told`: bytes were written last, which may give the client the reason."""
        if transport.get_write_buffer_size() > self.server.settings.mqtt.write_buffer_high:
            transport.abort()  # the client does not read, so the buffer would be kept for ever
            return
        if told and transport.can_write_eof():
            # Closing a socket with unread input resets the connection, and the client may lose the last bytes. So only
            # the direction to the client is closed. Further input is discarded until the client closes its own.
            transport.write_eof()
            if self.paused:
                self.paused = False
                transport.resume_reading()
        else:
            transport.close()
        self.linger = self.server.loop.call_later(LINGER_SECONDS_MAX, transport.abort)

    def abort(self) -> None:
        """Close the socket at once and discard its output."""
        if self.transport is not None:
            self.transport.abort()

    def set_reading(self, publisher: Publisher) -> None:
        """Pause reading while the connection is held."""
        transport = self.transport
        connection = self.connection
        if transport is None or connection is None or connection.closed or transport.is_closing():
            return
        if connection.held and not self.paused:
            self.paused = True
            transport.pause_reading()
        elif not connection.held:
            if self.paused:
                self.paused = False
                transport.resume_reading()
            connection.resume_receiving(self.server.now())
