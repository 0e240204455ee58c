"""TLS between a socket and the protocol of a connection, of either end: of nodes, of REST and of Kafka's protocol.

The protocol inside has a transport as without TLS. The layer is that of the listeners, and not the TLS of the event loop, which
does not tell of a handshake that fails (docs/decisions/0008-tls-is-a-layer.md).
"""

# compiled with mypyc
from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from mypy_extensions import mypyc_attr

from broker.server.layers import LayerError
from broker.server.socket_writer import WRITER, SocketWriter
from broker.server.tls_layer import TlsLayer

HANDSHAKE_SECONDS_MAX: Final = 5.0
LINGER_SECONDS_MAX: Final = 2.0  # for the other end to take why the handshake failed
FIRST_BYTE: Final = 0x16  # of a connection with TLS: the record of its first handshake message
NO_TLS: Final = "it speaks without TLS, and this is the port of TLS"
TOO_LATE: Final = f"TLS handshake: not completed within {HANDSHAKE_SECONDS_MAX:g} s"
CLOSED: Final = "TLS handshake: closed by the other end"


@mypyc_attr(native_class=False)
class TlsError(OSError):
    """A connection with TLS cannot be had, or broke."""


class TlsWriter(SocketWriter):
    """Writes what is inside TLS."""

    __slots__ = ("_layer",)

    def __init__(self, transport: asyncio.Transport, layer: TlsLayer) -> None:
        super().__init__(transport)
        self._layer = layer

    def write(self, data: bytes) -> None:
        encoded = self._layer.encode(data)
        if encoded:
            SocketWriter.write(self, encoded)

    def write_encoded(self, data: bytes) -> None:
        """Write what the layer itself has to say."""
        if data:
            SocketWriter.write(self, data)


class TlsTransport(asyncio.Transport):
    """The transport of the protocol inside."""

    def __init__(
        self, connection: TlsConnection, socket: asyncio.Transport, writer: TlsWriter, layer: TlsLayer
    ) -> None:
        super().__init__()
        self._connection = connection
        self._socket = socket
        self._writer = writer
        self._layer = layer
        self._is_closed = False  # nothing more is written
        self.is_paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == WRITER:
            return self._writer
        session = self._layer.session
        if name == "ssl_object":
            return session
        if name == "sslcontext":
            return session.context
        if name == "peercert":
            return session.getpeercert()
        return self._socket.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._connection.inside = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        inside = self._connection.inside
        assert inside is not None
        return inside

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closed:
            self._writer.write(bytes(data))

    def forget(self) -> None:
        """The connection is lost: the file descriptor may belong to another socket."""
        self._is_closed = True

    def _say_end(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._writer.write_encoded(self._layer.close())

    def is_closing(self) -> bool:
        return self._socket.is_closing()

    def can_write_eof(self) -> bool:
        return self._socket.can_write_eof()

    def write_eof(self) -> None:
        self._say_end()
        self._socket.write_eof()

    def close(self) -> None:
        self._say_end()
        self._socket.close()

    def abort(self) -> None:
        self._is_closed = True
        self._socket.abort()

    def is_reading(self) -> bool:
        return not self.is_paused

    def pause_reading(self) -> None:
        self.is_paused = True
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self.is_paused = False
        self._socket.resume_reading()
        self._connection.reading_resumed()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()


@mypyc_attr(allow_interpreted_subclasses=True)
class TlsUser:
    """Whoever a connection with TLS is for."""

    def made(self, transport: TlsTransport) -> bool:
        """The socket is there. False refuses the connection."""
        return True

    def opened(self, transport: TlsTransport) -> asyncio.Protocol | None:
        """The handshake is done. Return the protocol inside, whose `connection_made` was called; None refuses the
        connection."""
        raise AssertionError("a subclass implements this")

    def failed(self, transport: TlsTransport, reason: str) -> None:
        """The handshake failed."""

    def broke(self, reason: str) -> str:
        """TLS failed after the handshake: the other end may have refused the certificate of this node only then. Return the
        text for the protocol inside."""
        return reason

    def lost(self, transport: TlsTransport) -> None:
        """The socket is closed, whatever came before."""


class TlsConnection(asyncio.Protocol):
    """A socket with TLS.

    inside  the protocol inside; None before the handshake is done, and after the end
    """

    def __init__(self, layer: TlsLayer, user: TlsUser) -> None:
        self.inside: asyncio.Protocol | None = None
        self._layer = layer
        self._user = user
        self._has_begun = False
        self._is_over = False  # further input is discarded
        self._stays_open: bool | None = None  # what the protocol inside has answered to the end of the input
        self._loop = asyncio.get_running_loop()
        self._socket: asyncio.Transport | None = None
        self._writer: TlsWriter | None = None
        self._transport: TlsTransport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        socket = self._socket = cast(asyncio.Transport, transport)
        self._writer = TlsWriter(socket, self._layer)
        self._transport = TlsTransport(self, socket, self._writer, self._layer)
        if not self._user.made(self._transport):
            self._is_over = True
            socket.abort()
            return
        self._timer = self._loop.call_later(HANDSHAKE_SECONDS_MAX, self._late)
        if not self._layer.is_server:
            self._layer.begin()
            self._answer()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        layer = self._layer
        if not self._has_begun and data:
            self._has_begun = True
            if data[0] != FIRST_BYTE and layer.is_server:
                self._fail(NO_TLS)
                return
        try:
            data = layer.receive_data(data)
        except LayerError as error:
            self._answer()
            self._fail(str(error))
            return
        self._answer()
        if not layer.is_open:
            return
        if self.inside is None and not self._open():
            return
        if data and self.inside is not None:
            self.inside.data_received(data)
        if layer.has_more:
            self.reading_resumed()
        elif layer.is_ended:
            self._end()

    def _end(self) -> None:
        """The other end has closed TLS. It may wait for the same of this end before it closes its socket."""
        transport = self._transport
        if transport is not None and not transport.is_closing() and not self.eof_received():
            transport.close()

    def _open(self) -> bool:
        assert self._transport is not None
        self._stop_timer()
        self.inside = self._user.opened(self._transport)
        if self.inside is None:
            self._is_over = True
            self._transport.close()
            return False
        return True

    def _answer(self) -> None:
        """Write the layer's own output."""
        if self._writer is not None and self._socket is not None and not self._socket.is_closing():
            self._writer.write_encoded(self._layer.take_output())

    def reading_resumed(self) -> None:
        """Decode the next part of the input that waits, in a later turn."""
        if self._layer.has_more:
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._transport is not None and not self._transport.is_paused and self._layer.has_more:
            self.data_received(b"")

    # --- the end

    def _late(self) -> None:
        self._timer = None
        self._fail(TOO_LATE)

    def _fail(self, reason: str) -> None:
        """The handshake fails, or the stream of records breaks."""
        self._is_over = True
        self._stop_timer()
        inside, self.inside = self.inside, None
        socket = self._socket
        if socket is not None and not socket.is_closing():
            if inside is None and socket.can_write_eof():
                # Closing a socket with unread input resets the connection, and the other end may lose the reason.
                socket.write_eof()
                self._timer = self._loop.call_later(LINGER_SECONDS_MAX, socket.abort)
            else:
                socket.abort()
        transport = self._transport
        if transport is None:
            return
        transport.forget()
        if inside is not None:
            inside.connection_lost(TlsError(self._user.broke(reason)))
        else:
            self._user.failed(transport, reason)

    def abort(self) -> None:
        """Give the connection up."""
        self._is_over = True
        self._stop_timer()
        if self._socket is not None:
            self._socket.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def eof_received(self) -> bool:
        if self.inside is not None and self._stays_open is None:  # the end of TLS and that of the socket are one to it
            self._stays_open = bool(self.inside.eof_received())
        return bool(self._stays_open)

    def pause_writing(self) -> None:
        if self.inside is not None:
            self.inside.pause_writing()

    def resume_writing(self) -> None:
        if self.inside is not None:
            self.inside.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._socket = None
        self._writer = None
        transport, self._transport = self._transport, None
        inside, self.inside = self.inside, None
        if transport is None:
            return
        transport.forget()
        if inside is not None:
            inside.connection_lost(exc)
        elif not self._is_over:
            self._is_over = True
            self._user.failed(transport, f"TLS handshake: {exc}" if exc else CLOSED)
        self._user.lost(transport)
