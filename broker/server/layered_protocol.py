"""The shell of a connection with layers between its socket and MQTT: a PROXY header first, then TLS, then WebSocket."""

# compiled with mypyc
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.broker import NO_REASON
from broker.codec.reason_codes import MALFORMED_PACKET
from broker.publisher import Publisher
from broker.server.layers import Layer, LayerError
from broker.server.listener import Listener
from broker.server.protocol import ClientProtocol
from broker.server.proxy_header import ProxyHeaderReader
from broker.server.socket_writer import SocketWriter
from broker.server.tls_layer import TlsLayer
from broker.session.connection import Connection

if TYPE_CHECKING:
    from broker.server.host import Host


class LayeredProtocol(ClientProtocol):
    """`connection` is made when the handshakes of all layers are done.

    layers        from the socket to MQTT
    proxy_header  is read before the first layer; None for none, and when it is whole
    client        name of the client's socket
    answered      bytes of the layers' own output since the client took its output last
    is_failed     the client is told why, and its further input is discarded
    """

    __slots__ = ("answered", "client", "is_failed", "layers", "opening", "proxy_header")

    def __init__(self, server: Host, listener: Listener) -> None:
        super().__init__(server, listener)
        self.client: object = None
        self.proxy_header: ProxyHeaderReader | None = None
        self.layers: list[Layer] = []
        self.opening: asyncio.TimerHandle | None = None
        self.answered = 0
        self.is_failed = False

    def begin(self, peer: object) -> None:
        server = self.server
        listener = self.listener
        self.client = peer
        if listener.proxies is not None:
            assert isinstance(peer, tuple)
            if not listener.is_proxy(peer[0]):
                server.refused(peer, "not in the networks of proxy_protocol.from")
                self.abort()
                return
            self.proxy_header = ProxyHeaderReader()
        self.layers = listener.make_layers(server.settings.mqtt.max_packet_size)
        if self.proxy_header is None and not self.admit_address(peer):
            return
        if self.is_open():
            self.open_connection(peer, "")
        else:
            self.opening = server.loop.call_later(listener.settings.handshake_timeout, self.handshake_late)

    def handshake_late(self) -> None:
        self.opening = None
        self.fail("handshake not completed within handshake_timeout")

    # --- input ---

    def data_received(self, data: bytes) -> None:
        connection = self.connection
        if self.is_failed or self.linger is not None or (connection is not None and connection.closed):
            return
        try:
            self.unaccepted_bytes += len(data)
            data = self.decode(data)
            if not self.is_accepted and not self.count_unaccepted(0):
                return
            if connection is None:
                if not self.is_open():
                    if self.has_more():
                        raise LayerError("more input than a handshake has")
                    return
                connection = self.handshakes_done()
        except LayerError as error:
            self.fail(str(error))
            return
        if data:
            ClientProtocol.data_received(self, data)
        if connection.closed:
            return
        if self.has_more():
            self.server.broker.rest(connection)
            self.server.flush_soon()
        else:
            self.end_when_handled(connection)

    def end_when_handled(self, connection: Connection) -> None:
        """Close the connection where the client has ended a layer. What it sent before, a DISCONNECT too, is handled first: a
        connection that is not held has no whole packet waiting."""
        if connection.held or connection.closed:
            return
        for layer in self.layers:
            if layer.is_ended:
                server = self.server
                server.broker.close_connection(connection, NO_REASON, "the client ended the connection", server.now())
                server.flush_soon()
                return

    def handshakes_done(self) -> Connection:
        if self.opening is not None:
            self.opening.cancel()
            self.opening = None
        tls = self.layers[0] if self.layers else None
        self.open_connection(self.client, tls.certificate_name if isinstance(tls, TlsLayer) else "")
        assert self.connection is not None
        return self.connection

    def decode(self, data: bytes) -> bytes:
        """Return what the last layer makes of bytes from the socket; b"" before its handshake is done. Raises
        LayerError."""
        proxy_header = self.proxy_header
        if proxy_header is not None:
            rest = proxy_header.receive_data(data)
            if rest is None:
                return b""
            if proxy_header.address is not None:
                self.client = proxy_header.address
            if not self.admit_address(self.client):
                self.is_failed = True  # and the header stays, so that nothing is open
                return b""
            self.proxy_header = None
            data = rest
        for index, layer in enumerate(self.layers):
            if not data and not layer.has_more:
                continue
            data = layer.receive_data(data)
            self.answer(index, layer.take_output())
        return data

    def is_open(self) -> bool:
        return self.proxy_header is None and all(layer.is_open for layer in self.layers)

    def has_more(self) -> bool:
        """Return whether a layer has input that is not decoded yet."""
        return any(layer.has_more for layer in self.layers)

    def set_reading(self, publisher: Publisher) -> None:
        super().set_reading(publisher)
        if self.has_more():
            self.server.loop.call_soon(self.go_on)  # not within the flush that calls this method
        elif self.connection is not None:
            self.end_when_handled(self.connection)

    def go_on(self) -> None:
        """Decode the next part of the input that waits."""
        connection = self.connection
        if connection is not None and not connection.held and self.has_more():
            self.data_received(b"")

    def count_unaccepted(self, size: int) -> bool:
        """Return what the layers have made of the input counts no more: it was counted when it came."""
        return self.server.count_unaccepted(self, self.unaccepted_state())

    def unaccepted_state(self) -> int:
        taken = super().unaccepted_state()
        for layer in self.layers:
            taken += layer.state_bytes
        return taken

    def accepted(self) -> None:
        super().accepted()
        for layer in self.layers:
            layer.client_accepted()

    # --- output ---

    def write(self, writer: SocketWriter, data: bytes) -> None:
        writer.write(self.encode(len(self.layers), data))

    def encode(self, count: int, data: bytes) -> bytes:
        """The bytes for the socket of what is above the first `count` layers."""
        while count > 0:
            count -= 1
            data = self.layers[count].encode(data)
        return data

    def answer(self, index: int, data: bytes) -> None:
        """Write the own output of a layer. A client that causes it and does not take it is cut off."""
        if not data or self.writer is None or self.transport is None:
            return
        self.writer.write(self.encode(index, data))
        if self.transport.get_write_buffer_size() == 0:
            self.answered = 0
            return
        self.answered += len(data)
        if self.answered > self.server.settings.mqtt.write_buffer_high:
            self.transport.abort()

    # --- the end ---

    def fail(self, text: str) -> None:
        """The client breaks the protocol of a layer."""
        server = self.server
        for index, layer in enumerate(self.layers):
            self.answer(index, layer.take_output())
        connection = self.connection
        if connection is not None:
            server.broker.counters.protocol_errors += 1
            server.broker.close_connection(connection, MALFORMED_PACKET, text, server.now())
            server.flush_soon()
            return
        self.is_failed = True
        server.broker.counters.handshakes_failed += 1
        server.refused(self.client, text)
        if self.transport is not None and not self.transport.is_closing():
            self.end(self.transport, True)

    def end(self, transport: asyncio.Transport, told: bool) -> None:
        """Say the end in each layer, so that the client knows that nothing was cut off."""
        for index in range(len(self.layers) - 1, -1, -1):
            self.answer(index, self.layers[index].close())
        super().end(transport, told)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.opening is not None:
            self.opening.cancel()
            self.opening = None
        super().connection_lost(exc)
