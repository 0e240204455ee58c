"""WebSocket of one connection [MQTT5 6]: the rules are those of the library websockets, without its sockets and tasks.

Packets need not begin or end with a frame [MQTT-6.0.0-2], so the content of the frames is a stream of bytes.
"""

from __future__ import annotations

from typing import Final

from websockets.exceptions import InvalidOrigin
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Origin, Subprotocol

from broker.config.settings_listeners import WebsocketSettings
from broker.server.layers import Layer, LayerError
from broker.session.limits import CONTROL_BYTES_MAX

SUBPROTOCOLS: Final = (
    Subprotocol("mqtt"),
    Subprotocol("mqttv3.1"),
)  # [MQTT-6.0.0-4]; the second by clients of MQTT 3.1
FRAMES_MAX: Final = 512  # decoded in one turn, and those of one piece; a frame takes some 4 µs
PIECE_BYTES: Final = 4096  # the library decodes all frames of what it is given
TEXT_FRAME: Final = 1003  # close code: a kind of data that cannot be accepted
FAULT_TEXT_MAX: Final = 200  # of a text that may quote the client


class WebSocketLayer(Layer):
    """A client gets frames of packet_bytes_max, at least of CONTROL_BYTES_MAX, after its CONNECT is accepted. Before that a
    frame has at most CONTROL_BYTES_MAX bytes: the library keeps a frame until it is whole."""

    def __init__(self, settings: WebsocketSettings, packet_bytes_max: int) -> None:
        super().__init__()
        self._settings = settings
        self._packet_bytes_max = packet_bytes_max
        origins = [Origin(origin) for origin in settings.allowed_origins]
        self._protocol = ServerProtocol(
            origins=[*origins, None] if origins else None,  # programs send no Origin; only browsers do
            subprotocols=SUBPROTOCOLS,
            max_size=(None, CONTROL_BYTES_MAX),  # a message may be endless: each frame is taken as it comes
        )
        self._undecoded = b""

    def client_accepted(self) -> None:
        self._protocol.max_fragment_size = max(self._packet_bytes_max, CONTROL_BYTES_MAX)

    def receive_data(self, data: bytes) -> bytes:
        if self._undecoded:
            data = self._undecoded + data
            self._undecoded = b""
        protocol = self._protocol
        parts: list[bytes] = []
        frames = 0
        pos = 0
        while pos < len(data) and not self.is_ended:
            if frames >= FRAMES_MAX:
                self._undecoded = data[pos:]
                break
            end = pos + PIECE_BYTES
            if not self.is_open:  # line by line: the library must not see frames before the handshake is answered
                end = min(end, data.find(b"\n", pos) + 1 or end)
            protocol.receive_data(data[pos:end])
            pos = end
            for event in protocol.events_received():
                frames += 1
                if isinstance(event, Frame):
                    self._take_frame(event, parts)
                elif isinstance(event, Request):
                    self._answer(event)
            fault = protocol.handshake_exc or protocol.parser_exc
            if fault is not None:
                raise LayerError(f"WebSocket: {str(fault)[:FAULT_TEXT_MAX]}")
        self.has_more = len(self._undecoded) > 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take_frame(self, frame: Frame, parts: list[bytes]) -> None:
        opcode = frame.opcode
        if opcode is Opcode.BINARY or opcode is Opcode.CONT:
            parts.append(bytes(frame.data))
        elif opcode is Opcode.TEXT:
            self._protocol.fail(TEXT_FRAME, "MQTT needs binary frames")
            raise LayerError("WebSocket: a text frame, MQTT needs binary ones [MQTT-6.0.0-1]")
        elif opcode is Opcode.CLOSE:
            self.is_ended = True

    def _answer(self, request: Request) -> None:
        """Accept the handshake, or refuse it with an HTTP status."""
        protocol = self._protocol
        path = request.path.partition("?")[0]
        wanted = self._settings.path
        # A path that ends in "/" takes all paths below it, as in the Go broker.
        if path != wanted and not (wanted.endswith("/") and path.startswith(wanted)):
            protocol.send_response(protocol.reject(404, f"MQTT is at the path {wanted}\n"))
            raise LayerError(f"WebSocket: the path {path[:FAULT_TEXT_MAX]!a}, not {wanted}")
        response = protocol.accept(request)
        protocol.send_response(response)
        if response.status_code == 101:
            self.is_open = True
        elif isinstance(protocol.handshake_exc, InvalidOrigin):
            raise LayerError(f"WebSocket: the origin {protocol.handshake_exc.value!a} is not in allowed_origins")

    def encode(self, data: bytes) -> bytes:
        protocol = self._protocol
        if protocol.state is not State.OPEN or not data:
            return b""
        protocol.send_binary(data)
        return self.take_output()

    def take_output(self) -> bytes:
        return b"".join(self._protocol.data_to_send())

    def close(self) -> bytes:
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(1000)
        return self.take_output()
