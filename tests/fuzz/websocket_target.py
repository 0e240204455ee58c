"""The bytes of a WebSocket client: its handshake, then frames."""

from __future__ import annotations

from random import Random
from typing import Final

from broker.config.settings_listeners import WebsocketSettings
from broker.server.layers import LayerError
from broker.server.websocket_layer import WebSocketLayer
from fuzz_target import Target, rng_of
from mutation import mutated, pieces_of

HANDSHAKE: Final = (
    b"GET /mqtt HTTP/1.1\r\nHost: node\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)
PACKET_BYTES_MAX: Final = 100_000
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FIN: Final = 0x80
MASK: Final = b"\x21\x43\x65\x87"
KEPT_HANDSHAKES: Final = 0.8  # of the inputs; in the others it is changed too


def frame(first: int, content: bytes, mask: bytes = MASK) -> bytes:
    """A frame of a client; `first` is the FIN bit and the opcode."""
    if len(content) < 126:
        head = bytes((first, 0x80 | len(content)))
    elif len(content) < 65_536:
        head = bytes((first, 0xFE)) + len(content).to_bytes(2, "big")
    else:
        head = bytes((first, 0xFF)) + len(content).to_bytes(8, "big")
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(content))


CONNECT: Final = bytes.fromhex("100d00044d5154540402003c000161")
PUBLISH: Final = bytes.fromhex("300500016162") * 40
FRAMES: Final = [
    frame(FIN | BINARY, CONNECT) + frame(FIN | PING, b"x") + frame(FIN | BINARY, PUBLISH),
    frame(BINARY, CONNECT[:3]) + frame(FIN | PONG, b"") + frame(FIN, CONNECT[3:]) + frame(FIN | CLOSE, b"\x03\xe8"),
    frame(FIN | BINARY, CONNECT + PUBLISH, bytes(4)) * 3 + frame(FIN | CLOSE, b""),
    frame(FIN | BINARY, b"") * 5 + frame(FIN | BINARY, PUBLISH * 8),
    frame(FIN | TEXT, b"text") + frame(FIN | BINARY, CONNECT),
    frame(FIN | BINARY, CONNECT) + frame(FIN | BINARY, b"p" * 3)[:-5],
    b"".join(frame(FIN | BINARY, PUBLISH[at : at + 1]) for at in range(len(PUBLISH))) * 3,
]
PIECES: Final = (
    *(frame(FIN | opcode, b"ab") for opcode in (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG, 3, 15)),
    b"\x82\xff\x00\x00\x00\x00\x06\x00\x00\x00",  # 100 MB
    b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x82\xfe\x00\x01",
    b"Origin: http://else\r\n",
    b"Sec-WebSocket-Protocol: amqp\r\n",
    b"Sec-WebSocket-Extensions: permessage-deflate\r\n",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"\r\n",
    HANDSHAKE,
)


class WebSocketTarget(Target):
    """u8 whether the client's CONNECT is accepted at once, then its bytes. Only LayerError is raised, the cuts change neither
    that nor the content, which is no longer than what came, and after the handshake a refusal is told to the client."""

    def __init__(self) -> None:
        super().__init__([bytes((number % 2,)) + HANDSHAKE + frames for number, frames in enumerate(FRAMES)], PIECES)

    def make(self, rng: Random) -> bytes:
        if rng.random() < KEPT_HANDSHAKES:
            frames = rng.choice(FRAMES) + rng.choice((b"", rng.choice(FRAMES)))
            return bytes((rng.randrange(2),)) + HANDSHAKE + mutated(rng, frames, FRAMES, PIECES)
        return super().make(rng)

    def run(self, data: bytes) -> None:
        is_accepted, data = data[:1] == b"\1", data[1:]
        whole = self._read(is_accepted, [data])
        assert self._read(is_accepted, pieces_of(rng_of(data), data)) == whole, "the cuts change what is read"

    def _read(self, is_accepted: bool, pieces: list[bytes]) -> tuple[bool, bool, bytes]:
        """Whether it was refused, whether the client has ended, and the content of a client that was not refused."""
        layer = WebSocketLayer(WebsocketSettings("/mqtt", ("http://here",)), PACKET_BYTES_MAX)
        if is_accepted:
            layer.client_accepted()
        content = b""
        said = b""
        refused = False
        try:
            for piece in pieces:
                content += layer.receive_data(piece)
                while layer.has_more and not layer.is_ended:
                    content += layer.receive_data(b"")
                said += layer.take_output()
                if layer.is_open:
                    said += layer.encode(b"an answer")
                if layer.is_ended:
                    break
        except LayerError:
            refused = True
        if refused:
            assert not layer.is_open or b"\x88" in said + layer.take_output(), "a refusal is told to the client"
            return True, False, b""
        assert len(content) <= sum(map(len, pieces))
        layer.close()
        return False, layer.is_ended, content
