"""A layer between a socket and MQTT: TLS, WebSocket. Bytes come in and go out by calls; the shell owns the socket."""

# a core
# compiled with mypyc
from __future__ import annotations

from mypy_extensions import mypyc_attr


class LayerError(Exception):
    """The client breaks the layer's protocol. The text names the fault; what `take_output` holds tells it to the client."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Layer:
    """is_open      the handshake is done; before that nothing can be encoded
    is_ended     the client has said that it sends no more
    has_more     input waits: `receive_data(b"")` in a later turn decodes the next part of it
    state_bytes  memory that the layer takes beside its input, where that is much
    """

    def __init__(self) -> None:
        self.is_open = False
        self.is_ended = False
        self.has_more = False
        self.state_bytes = 0

    def receive_data(self, data: bytes) -> bytes:
        """Decode what comes from the layer below, a bounded part of it. Raises LayerError."""
        raise AssertionError("a subclass implements this")

    def encode(self, data: bytes) -> bytes:
        """The bytes for the layer below; b"" when the layer is closed."""
        raise AssertionError("a subclass implements this")

    def take_output(self) -> bytes:
        """Return what the layer itself has to say to the client: its part of the handshake, answers, faults."""
        raise AssertionError("a subclass implements this")

    def client_accepted(self) -> None:
        """CONNECT was accepted: the client may send larger packets from now on."""

    def close(self) -> bytes:
        """Say that nothing more is sent. Returns the bytes for the layer below."""
        raise AssertionError("a subclass implements this")
