"""One client's socket: hands bytes to its connection core and does what the core says. It holds no rule of MQTT."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from mypy_extensions import mypyc_attr

from broker.config.addresses import socket_name_text
from broker.server.late_acks import CAN_DELAY, LateAcks
from broker.server.socket_writer import SocketWriter
from broker.session.alone import DirectOutput, note_alone, receive_alone
from broker.session.connection import Connection
from broker.session.publisher import Publisher

if TYPE_CHECKING:
    from broker.server.lifecycle import Server


LINGER_SECONDS_MAX: Final = 2.0  # from our last byte to the client's end of the connection


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientProtocol(asyncio.Protocol):
    """Shell of one `Connection`. No task, no stream, no queue a client: an idle one costs what these slots cost."""

    __slots__ = ("acks", "connection", "linger", "paused", "server", "transport", "turns", "writer")

    def __init__(self, server: Server) -> None:
        self.server = server
        self.turns = server.turns
        self.transport: asyncio.Transport | None = None
        self.writer: DirectOutput | None = None
        self.connection: Connection | None = None
        self.paused = False
        self.acks: LateAcks | None = None  # while the kernel acknowledges what this client sends when it is told to
        self.linger: asyncio.TimerHandle | None = None  # runs while the client has yet to end a closed connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self.server
        self.transport = cast(asyncio.Transport, transport)
        if not server.admit(self):
            self.transport.abort()
            return
        self.transport.set_write_buffer_limits(high=server.settings.mqtt.write_buffer_high)
        self.connection = server.broker.open_connection(
            self,
            socket_name_text(transport.get_extra_info("peername")),
            socket_name_text(transport.get_extra_info("sockname")),
            server.now(),
        )
        self.writer = self.connection.direct = self.make_writer(self.transport)

    def make_writer(self, transport: asyncio.Transport) -> DirectOutput:
        """What all output goes through."""
        return SocketWriter(transport)

    def data_received(self, data: bytes) -> None:
        turns = self.turns
        connection = self.connection
        if connection is None or connection.closed:
            return
        alone = turns.is_alone(len(data))
        try:
            if alone and receive_alone(connection, data):
                self._message_left(data, connection)
                return
            now = turns.now()
            connection.receive_data(data, now)
        except Exception as error:  # our fault: this client pays with its connection, nobody else notices
            now = turns.now()
            self.server.internal_error(connection, error)
        if alone:
            turns.flush_now(now)
        else:
            turns.flush_soon()
        if self.acks is not None:
            self.server.loop.call_soon(self._end_late_acks)

    def _message_left(self, data: bytes, connection: Connection) -> None:
        """What has time until the message is on its way."""
        turns = self.turns
        now = turns.now()
        if not note_alone(connection, data, now):
            turns.flush_now(now)
        if self.acks is not None:
            self.acks.ask()
        elif CAN_DELAY and self.transport is not None:
            self.acks = LateAcks(self.transport)

    def _end_late_acks(self) -> None:
        """It sends more than lone messages: the kernel knows best when to acknowledge."""
        if self.acks is not None:
            self.acks.end()
            self.acks = None

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
        self.acks = None
        server.forget(self)
        if self.linger is not None:
            self.linger.cancel()
            self.linger = None
        if connection is not None:
            connection.direct = None
            server.broker.connection_lost(connection, server.now())
            server.flush_soon()

    def carry_out(self, connection: Connection) -> None:
        """Write the output of this turn in one call; close when the core says so."""
        transport = self.transport
        writer = self.writer
        data = connection.take_output()
        if transport is None or writer is None or self.linger is not None:
            return
        if data:
            writer.write(data)  # no harm when the transport is about to close
        if connection.closed and not transport.is_closing():
            self._end(transport, len(data) > 0)

    def _end(self, transport: asyncio.Transport, told: bool) -> None:
        """The core has closed the connection. `told`: the last bytes may say why, the client should get to read them."""
        if transport.get_write_buffer_size() > self.server.settings.mqtt.write_buffer_high:
            transport.abort()  # it does not read what we send: waiting for it would keep the buffer for ever
            return
        if told and transport.can_write_eof():
            # A socket that is closed while input is waiting resets the connection, and the client loses what we said
            # last. So only our direction ends here; what still comes in is thrown away until the client ends its own.
            transport.write_eof()
            if self.paused:
                self.paused = False
                transport.resume_reading()
        else:
            transport.close()
        self.linger = self.server.loop.call_later(LINGER_SECONDS_MAX, transport.abort)

    def abort(self) -> None:
        """End the socket at once, whatever is still to be written."""
        if self.transport is not None:
            self.transport.abort()

    def set_reading(self, publisher: Publisher) -> None:
        """Pause or resume reading as the core's `held` says."""
        transport = self.transport
        connection = self.connection
        if transport is None or connection is None or connection.closed or transport.is_closing():
            return
        if connection.held and not self.paused:
            self.paused = True
            transport.pause_reading()
        elif not connection.held and self.paused:
            self.paused = False
            transport.resume_reading()
            connection.resume_receiving(self.server.now())
