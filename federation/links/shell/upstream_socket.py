"""The socket of one link. It contains no rule of MQTT: the link says when it is to be open."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final, cast

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from broker.server.tls_context import KeyPairFault, file_fault, load_key_pair, ssl_reason
from federation.definitions.upstream import TlsOptions
from federation.definitions.uri import LinkUri
from federation.links.link import Link
from federation.shell.dialer import Dialer

if TYPE_CHECKING:
    from broker.server.host import Host


class TlsFault(Exception):
    """A file cannot be used. The text names its key."""


def client_context(options: TlsOptions) -> ssl.SSLContext:
    """A context with the files as they are now. Raises TlsFault."""
    for key in ("cacertfile", "certfile", "keyfile"):
        fault = file_fault(getattr(options, key))
        if fault:
            raise TlsFault(f"tls.{key}: {fault}")
    try:
        context = ssl.create_default_context(cafile=options.cacertfile or None)
    except ssl.SSLError:
        raise TlsFault(f"tls.cacertfile: {options.cacertfile} is not a PEM file of certificates") from None
    if not options.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.certfile:
        try:
            load_key_pair(context, options.certfile, options.keyfile)
        except KeyPairFault as error:
            raise TlsFault(f"tls.{error.part}file: {error}") from None
    return context


SUBPROTOCOLS: Final = (Subprotocol("mqtt"),)  # [MQTT-6.0.0-4]
FAULT_CHARS_MAX: Final = 200  # of a text that may quote the other side


class WebSocketClient:
    """is_open  the handshake is done; MQTT may be sent
    fault    why the connection is over: the other side closes it, breaks the protocol, or refuses the handshake; "" before
    """

    def __init__(self, host: str, port: int, path: str, is_secure: bool, frame_bytes_max: int) -> None:
        where, _, query = path.partition("?")
        uri = WebSocketURI(is_secure, host, port, where, query)
        # A message may be endless: each frame is taken as it comes.
        self._protocol = ClientProtocol(uri, subprotocols=SUBPROTOCOLS, max_size=(None, frame_bytes_max))
        self._protocol.send_request(self._protocol.connect())
        self.is_open = False
        self.fault = ""

    def take_output(self) -> bytes:
        """The handshake, and answers of the protocol itself."""
        return b"".join(self._protocol.data_to_send())

    def encode(self, data: bytes) -> bytes:
        """MQTT as a frame."""
        if self._protocol.state is not State.OPEN or not data:
            return b""
        self._protocol.send_binary(data)
        return self.take_output()

    def close(self) -> bytes:
        """The end, for the other side."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(1000)
        return self.take_output()

    def receive_data(self, data: bytes) -> bytes:
        """The MQTT in what came, up to a `fault`."""
        self._protocol.receive_data(data)
        return self._take_events()

    def receive_end(self) -> None:
        """The other side has closed the connection. Where it refused the handshake, that is a `fault`."""
        self._protocol.receive_eof()
        self._take_events()

    def _take_events(self) -> bytes:
        protocol = self._protocol
        parts: list[bytes] = []
        for event in protocol.events_received():
            if isinstance(event, Response):
                self.is_open = protocol.handshake_exc is None
            elif isinstance(event, Frame) and not self.fault:
                if event.opcode in (Opcode.BINARY, Opcode.CONT):
                    parts.append(bytes(event.data))
                elif event.opcode is Opcode.TEXT:
                    self.fault = "WebSocket: a text frame, MQTT needs binary ones [MQTT-6.0.0-1]"
                elif event.opcode is Opcode.CLOSE:
                    self.fault = "WebSocket: closed by the upstream"
        error = protocol.handshake_exc or protocol.parser_exc
        if error is not None and not self.fault:
            self.fault = f"WebSocket: {str(error)[:FAULT_CHARS_MAX]}"
        return b"".join(parts)


WRITE_BYTES_HIGH: Final = 1_048_576  # unsent: the broker gives the link no more messages meanwhile
INTERNAL_ERROR: Final = "internal error"
CLOSED: Final = "the upstream closed the connection"
CLOSED_IN_HANDSHAKE: Final = (
    "TLS: the upstream closed the connection in the handshake; "
    "the URI of a port without TLS begins with mqtt:// or ws://"
)
UNKNOWN_AUTHORITY: Final = (18, 19, 20, 21)
"""Results of OpenSSL's verification (X509_V_ERR): self-signed, or an issuer that is not among the known ones."""
LINGER_SECONDS_MAX: Final = 2.0  # from the last byte to the upstream's end of the connection


class UpstreamProtocol(asyncio.Protocol):
    """One connection, that of one attempt of the link."""

    def __init__(self, socket: UpstreamSocket, attempt: int, websocket: WebSocketClient | None) -> None:
        self.attempt = attempt
        self.transport: asyncio.Transport | None = None
        self.websocket = websocket
        self._socket = socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH)
        if self.websocket is None:
            self._socket.opened(self)
        else:
            self.transport.write(self.websocket.take_output())

    def data_received(self, data: bytes) -> None:
        websocket = self.websocket
        if websocket is not None:
            was_open = websocket.is_open
            data = websocket.receive_data(data)
            self.write_raw(websocket.take_output())
            if websocket.is_open and not was_open:
                self._socket.opened(self)
        if data:
            self._socket.received(self, data)
        if websocket is not None and websocket.fault:
            self._socket.lost(self, websocket.fault)

    def write(self, data: bytes) -> None:
        """MQTT for the upstream."""
        self.write_raw(data if self.websocket is None else self.websocket.encode(data))

    def write_raw(self, data: bytes) -> None:
        if data and self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def pause_writing(self) -> None:
        self._socket.writing_paused(self, True)

    def resume_writing(self) -> None:
        self._socket.writing_paused(self, False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        reason = CLOSED if exc is None else _text_of(exc)
        if exc is None and self.websocket is not None and not self.websocket.is_open:
            self.websocket.receive_end()
            reason = self.websocket.fault or reason
        self._socket.lost(self, reason, isinstance(exc, ssl.SSLError))

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the socket when its output is written, at the latest after LINGER_SECONDS_MAX."""
        transport = self.transport
        if transport is not None:
            if self.websocket is not None:
                self.write_raw(self.websocket.close())
            transport.close()
            loop.call_later(LINGER_SECONDS_MAX, transport.abort)


class UpstreamSocket:
    """`carry_out` follows each turn in which the link has effects. `dialer` is that of a node with TLS."""

    def __init__(self, link: Link, host: Host, dialer: Dialer | None = None) -> None:
        self.link = link
        self._host = host
        self._dialer = dialer
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._task_attempt = -1
        self._protocol: UpstreamProtocol | None = None
        self._is_paused = False

    # --- what the link asks ---

    def carry_out(self) -> None:
        """Open and close what the link asks for, write, and pause or resume reading."""
        link = self.link
        protocol = self._protocol
        if protocol is not None and protocol.attempt != link.attempt:
            self._write()
            self._protocol = None
            protocol.close(self._loop)
        if self._task is not None and self._task_attempt != link.attempt:
            self._task.cancel()
            self._task = None
        if link.wants_connection and self._protocol is None and self._task is None:
            self._task_attempt = link.attempt
            self._is_paused = False
            self._task = self._loop.create_task(self._connect(link.attempt, link.address))
        self._write()
        self._pause_or_resume()

    def _write(self) -> None:
        protocol = self._protocol
        if protocol is not None:
            data = self.link.take_output(protocol.attempt)
            if data:
                protocol.write(data)

    def _pause_or_resume(self) -> None:
        protocol = self._protocol
        if protocol is None or protocol.transport is None or protocol.transport.is_closing():
            return
        is_held = self.link.holds_upstream()
        if is_held and not self._is_paused:
            protocol.transport.pause_reading()
        elif not is_held and self._is_paused:
            protocol.transport.resume_reading()
        self._is_paused = is_held

    async def stop(self) -> None:
        """Close the socket at once."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._write()
        protocol, self._protocol = self._protocol, None
        if protocol is not None and protocol.transport is not None:
            protocol.transport.close()

    # --- connecting ---

    async def _connect(self, attempt: int, uri: LinkUri) -> None:
        reason = ""
        context = None
        try:
            if self.link.plan.is_node and uri.is_secure:
                assert self._dialer is not None
                name = self.link.plan.upstream.name
                await self._dialer.connect(name, uri.host_port, lambda: self._made(attempt, None))
                return
            server_name = None
            if uri.is_secure:
                options = self.link.plan.upstream.tls_of(uri)
                context = await asyncio.to_thread(client_context, options)
                server_name = options.server_name or uri.host
            websocket = None
            if uri.is_websocket:
                websocket = WebSocketClient(
                    uri.host, uri.port, uri.path, uri.is_secure, self._host.broker.max_packet_size
                )
            await self._loop.create_connection(
                lambda: self._made(attempt, websocket), uri.host, uri.port, ssl=context, server_hostname=server_name
            )
        except TlsFault as fault:
            reason = str(fault)
        except (ConnectionResetError, ConnectionAbortedError) as error:
            reason = _text_of(error) if context is None else CLOSED_IN_HANDSHAKE
        except OSError as error:  # ssl.SSLError is one
            reason = _text_of(error)
        except ValueError as error:  # of a name that no certificate can have
            reason = f"TLS: {uri.host}, or tls.server-name-indication, is no name of a server: {error}"
        except Exception as error:
            self._host.plugin_error(error)
            reason = INTERNAL_ERROR
        if reason and attempt == self.link.attempt:
            self._task = None
            self.link.connection_lost(attempt, reason, self._host.now())
            self._host.flush_soon()

    def _made(self, attempt: int, websocket: WebSocketClient | None) -> UpstreamProtocol:
        protocol = UpstreamProtocol(self, attempt, websocket)
        if attempt == self.link.attempt:
            self._protocol = protocol
        return protocol

    # --- what the connection reports ---

    def opened(self, protocol: UpstreamProtocol) -> None:
        if protocol is not self._protocol:
            protocol.close(self._loop)
            return
        self._task = None
        self.link.connected(protocol.attempt, self._host.now())
        self._host.flush_soon()

    def received(self, protocol: UpstreamProtocol, data: bytes) -> None:
        if protocol is not self._protocol:
            return
        turns = self._host.turns
        now = turns.now()
        try:
            self.link.receive_data(protocol.attempt, data, now)
        except Exception as error:  # a fault of the broker ends this connection only
            self._host.plugin_error(error)
            self.lost(protocol, INTERNAL_ERROR)
            return
        turns.chunk_handled(len(data), now)

    def writing_paused(self, protocol: UpstreamProtocol, is_full: bool) -> None:
        if protocol is self._protocol:
            self.link.set_writable(protocol.attempt, not is_full, self._host.now())
            self._host.flush_soon()

    def lost(self, protocol: UpstreamProtocol, reason: str, says_why: bool = False) -> None:
        """The connection ended, or is given up here. `says_why`: the other end has said so."""
        if protocol is not self._protocol:
            return
        self._protocol = None
        self._task = None
        protocol.close(self._loop)
        self.link.connection_lost(protocol.attempt, reason, self._host.now(), says_why)
        self._host.flush_soon()


def _text_of(error: Exception) -> str:
    """An error of the network as a sentence for an operator."""
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = "; tls.cacertfile names its authority" if error.verify_code in UNKNOWN_AUTHORITY else ""
        return f"TLS: the certificate of the upstream is refused: {error.verify_message}{hint}"
    if isinstance(error, ssl.SSLError):
        text = ssl_reason(error)
        _, alert, cause = text.partition(" alert ")
        if alert and ("certificate" in cause or cause == "unknown ca"):
            return f"TLS: the upstream refuses the certificate of the link (tls.certfile): {cause}"
        return f"TLS: {text}"
    if isinstance(error, OSError):
        return error.strerror or str(error) or CLOSED  # uvloop tells of an end in the handshake without a text
    return str(error)
