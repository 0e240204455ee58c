"""The client's end of a WebSocket to an upstream [MQTT5 6], on the library websockets without its sockets and tasks."""

from __future__ import annotations

from typing import Final

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

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
