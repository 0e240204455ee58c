"""The shell of one client's connection: socket, reading, writing, close. It contains no rule of MQTT."""

# compiled with mypyc
from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from broker.codec.properties import USER_PROPERTY
from broker.config.addresses import socket_name_text
from broker.hooks import ConnectRequest
from broker.publisher import Publisher
from broker.server.listener import Listener
from broker.server.socket_writer import SocketWriter, writer_of
from broker.session.connection import Connection
from broker.session.rate_limit import RateLimit

if TYPE_CHECKING:
    from broker.server.host import Host
    from broker.server.traces import PacketTap


PAIR_BYTES: Final = 256  # memory of a User Property of few bytes
LINGER_SECONDS_MAX: Final = 2.0  # from the last byte that is written to the client's end of the connection


class ClientProtocol(asyncio.Protocol):
    """Shell of one `Connection`. It has no task, stream or queue, so an idle client takes little memory.

    counted_address  by which the listener's limits count the connection; "" for none
    ended            is called behind the end of the connection; None for nobody
    is_accepted      CONNECT is accepted; what came in before that is unaccepted_bytes
    tap              shows the packets to traces; None for none
    """

    __slots__ = (
        "connection",
        "counted_address",
        "ended",
        "is_accepted",
        "linger",
        "listener",
        "paused",
        "server",
        "tap",
        "transport",
        "turns",
        "unaccepted_bytes",
        "writer",
    )

    def __init__(self, server: Host, listener: Listener) -> None:
        self.server = server
        self.listener = listener
        self.counted_address = ""
        self.ended: Callable[[], None] | None = None
        self.turns = server.turns
        self.transport: asyncio.Transport | None = None
        self.writer: SocketWriter | None = None
        self.connection: Connection | None = None
        self.paused = False
        self.is_accepted = False
        self.unaccepted_bytes = 0
        self.tap: PacketTap | None = None
        self.linger: asyncio.TimerHandle | None = None  # runs from the close until the client ends the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if not self.server.admit(self):
            self.transport.abort()
            return
        self.transport.set_write_buffer_limits(high=self.server.settings.mqtt.write_buffer_high)
        self.writer = writer_of(self.transport)
        self.begin(transport.get_extra_info("peername"))

    def begin(self, peer: object) -> None:
        """The connection is let in. `peer` is the name of its other end."""
        if self.listener.facts.is_node or self.admit_address(peer):
            self.open_connection(peer, "")

    def admit_address(self, client: object) -> bool:
        """Close the connection, unless the limits for the client's address let it in."""
        if self.server.admit_address(self, client):
            return True
        self.abort()
        return False

    def open_connection(self, client: object, certificate_name: str) -> None:
        """The bytes that come from now on are MQTT of a client with this address."""
        server = self.server
        transport = self.transport
        assert transport is not None
        now = server.turns.now()
        connection = Connection(
            server.broker,
            self,
            socket_name_text(client),
            socket_name_text(transport.get_extra_info("sockname")),
            now,
        )
        facts = self.listener.facts
        connection.listener = facts
        connection.certificate_name = certificate_name
        if facts.message_rate or facts.byte_rate:
            connection.rate_limit = RateLimit(server.broker, connection, facts.message_rate, facts.byte_rate, now)
        self.connection = connection
        if server.traces is not None:
            server.traces.follow(self)

    def data_received(self, data: bytes) -> None:
        connection = self.connection
        if connection is None or connection.closed:
            return
        if not self.is_accepted and not self.count_unaccepted(len(data)):
            return
        turns = self.turns
        now = turns.now()
        if self.tap is not None:
            self.tap.received(data, connection)
        try:
            connection.receive_data(data, now)
        except Exception as error:  # a fault of the broker ends this connection only
            self.server.internal_error(connection, error)
        if not self.is_accepted:
            if connection.session is not None:
                self.accepted()
            elif connection.answer is not None:
                self.server.count_unaccepted(self, self.unaccepted_state())
        turns.chunk_handled(len(data), now)

    def count_unaccepted(self, size: int) -> bool:
        """Count input before CONNECT is accepted. False when the connection is closed because all such input is too much."""
        self.unaccepted_bytes += size
        return self.server.count_unaccepted(self, self.unaccepted_state())

    def unaccepted_state(self) -> int:
        """Memory of the connection before CONNECT is accepted: its input, and what a CONNECT that waits has become."""
        answer = None if self.connection is None else self.connection.answer
        if not isinstance(answer, ConnectRequest):
            return self.unaccepted_bytes
        pairs = answer.connect.properties.get(USER_PROPERTY)
        return self.unaccepted_bytes + (len(pairs) * PAIR_BYTES if isinstance(pairs, list) else 0)

    def accepted(self) -> None:
        self.is_accepted = True
        self.server.unaccepted.forget(self)

    def pause_writing(self) -> None:
        if self.connection is not None:
            self.connection.writable = False

    def resume_writing(self) -> None:
        server = self.server
        connection = self.connection
        if connection is None:
            return
        try:
            server.broker.connection_writable(connection, server.turns.now())
        except Exception as error:
            server.internal_error(connection, error)
        server.flush_soon()

    def eof_received(self) -> bool:
        """The client has closed its end. True: the transport stays open until a later turn closes it."""
        if self.transport is None or self.turns.may_close(self.transport):
            return False
        self.pause_writing()  # messages for the client wait in its queue
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        server = self.server
        connection = self.connection
        self.connection = None
        self.tap = None
        self.transport = None
        self.writer = None
        server.forget(self)
        if self.linger is not None:
            self.linger.cancel()
            self.linger = None
        if connection is not None:
            server.broker.connection_lost(connection, server.turns.now())
            server.flush_soon()
        if self.ended is not None:
            self.ended()

    def carry_out(self, connection: Connection) -> None:
        """Write the connection's output in one call; close the socket when the core has closed the connection."""
        transport = self.transport
        writer = self.writer
        data = connection.take_output()
        if transport is None or writer is None or self.linger is not None:
            return
        if data:
            if self.tap is not None:
                self.tap.sent(data, connection)
            self.write(writer, data)
        if connection.closed and not transport.is_closing():
            self.end(transport, len(data) > 0)

    def write(self, writer: SocketWriter, data: bytes) -> None:
        """Does nothing when the transport is closing."""
        writer.write(data)

    def end(self, transport: asyncio.Transport, told: bool) -> None:
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
        elif self.turns.may_close(transport):
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
            if not self.is_accepted and connection.session is not None:
                self.accepted()
