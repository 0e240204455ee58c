"""WebSocket as bytes in and bytes out, beside the client side of the same library: splits, faults, bounds."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.typing import Origin, Subprotocol
from websockets.uri import parse_uri

from broker.config.settings_listeners import WebsocketSettings
from broker.server.layers import LayerError
from broker.server.websocket_layer import FRAMES_MAX, PIECE_BYTES, WebSocketLayer
from broker.session.limits import CONTROL_BYTES_MAX
from effort import effort

SETTINGS: Final = WebsocketSettings("/mqtt")
PACKET_BYTES: Final = 2 * CONTROL_BYTES_MAX


class Peer:
    """The client side."""

    def __init__(
        self, path: str = "/mqtt", subprotocols: tuple[str, ...] = ("mqtt",), origin: str | None = None
    ) -> None:
        self.protocol = ClientProtocol(
            parse_uri(f"ws://localhost{path}"),
            origin=None if origin is None else Origin(origin),
            subprotocols=[Subprotocol(name) for name in subprotocols] or None,
            max_size=None,
        )

    def handshake(self) -> bytes:
        self.protocol.send_request(self.protocol.connect())
        return self.take()

    def take(self) -> bytes:
        return b"".join(self.protocol.data_to_send())

    def receive(self, data: bytes) -> list[Frame]:
        self.protocol.receive_data(data)
        return [event for event in self.protocol.events_received() if isinstance(event, Frame)]


def opened(packet_bytes_max: int = PACKET_BYTES) -> tuple[WebSocketLayer, Peer]:
    layer, peer = WebSocketLayer(SETTINGS, packet_bytes_max), Peer()
    assert layer.receive_data(peer.handshake()) == b""
    assert layer.is_open
    peer.receive(layer.take_output())
    assert peer.protocol.handshake_exc is None
    assert peer.protocol.subprotocol == "mqtt"
    return layer, peer


def decode(layer: WebSocketLayer, chunks: list[bytes]) -> bytes:
    """All content of these chunks."""
    parts = []
    for chunk in chunks:
        parts.append(layer.receive_data(chunk))
        while layer.has_more:
            parts.append(layer.receive_data(b""))
    return b"".join(parts)


@pytest.mark.parametrize("frame", ["88828000000083e8", "888080000000"], ids=["close with a code", "close"])
@pytest.mark.parametrize("cut", [0, 1, 3])
def test_a_close_frame_behind_the_handshake_is_read_after_the_answer(frame: str, cut: int) -> None:
    layer, peer = WebSocketLayer(SETTINGS, PACKET_BYTES), Peer()
    data = peer.handshake() + bytes.fromhex(frame)
    decode(layer, [data[: len(data) - cut], data[len(data) - cut :]])
    assert layer.is_ended
    received = peer.receive(layer.take_output())
    assert peer.protocol.handshake_exc is None
    assert [frame.opcode for frame in received] == [Opcode.CLOSE]
    assert layer.close() == b""


def test_a_fault_behind_the_handshake_is_told_after_the_answer() -> None:
    layer, peer = WebSocketLayer(SETTINGS, PACKET_BYTES), Peer()
    with pytest.raises(LayerError, match="WebSocket"):
        layer.receive_data(peer.handshake() + bytes.fromhex("82017a"))  # not masked
    received = peer.receive(layer.take_output())
    assert peer.protocol.handshake_exc is None
    assert [frame.opcode for frame in received] == [Opcode.CLOSE]


PARTS: Final = st.lists(st.binary(max_size=300), min_size=1, max_size=6)


@settings(max_examples=effort(200))
@given(parts=PARTS, fragmented=st.lists(st.booleans(), min_size=6, max_size=6), step=st.integers(1, 400))
def test_content_in_any_frames_and_chunks(parts: list[bytes], fragmented: list[bool], step: int) -> None:
    """[MQTT-6.0.0-2]: whole messages, fragmented ones, pings between the fragments."""
    layer, peer = opened()
    is_open = False
    for part, is_final in zip(parts, fragmented, strict=False):
        if is_open:
            peer.protocol.send_continuation(part, is_final)
        else:
            peer.protocol.send_binary(part, is_final)
        is_open = not is_final
        peer.protocol.send_ping(b"p")
    data = peer.take()
    chunks = [data[start : start + step] for start in range(0, len(data), step)]
    assert decode(layer, chunks) == b"".join(parts)
    pongs = peer.receive(layer.take_output())
    assert [frame.opcode for frame in pongs] == [Opcode.PONG] * len(parts)


def test_a_handshake_and_its_frames_split_at_every_byte() -> None:
    """And all of it in one chunk."""
    request = Peer().handshake()
    sender = Peer()
    sender.protocol.state = opened()[1].protocol.state
    sender.protocol.send_binary(b"hello")
    sender.protocol.send_binary(b" world")
    whole = request + sender.take()
    for cut in range(len(whole) + 1):
        layer = WebSocketLayer(SETTINGS, PACKET_BYTES)
        assert decode(layer, [whole[:cut], whole[cut:]]) == b"hello world"
        assert layer.take_output().startswith(b"HTTP/1.1 101 ")


@given(parts=st.lists(st.binary(min_size=1, max_size=100_000), min_size=1, max_size=3))
@settings(max_examples=20)
def test_output_is_one_frame_for_each_flush(parts: list[bytes]) -> None:
    layer, peer = opened()
    frames = peer.receive(b"".join(layer.encode(part) for part in parts))
    assert [frame.opcode for frame in frames] == [Opcode.BINARY] * len(parts)
    assert [bytes(frame.data) for frame in frames] == parts


def test_a_chunk_of_many_small_frames_is_decoded_in_slices() -> None:
    layer, peer = opened()
    count = 10 * FRAMES_MAX
    for number in range(count):
        peer.protocol.send_binary(b"%c" % (number % 251))
    first = layer.receive_data(peer.take())
    assert layer.has_more
    assert FRAMES_MAX <= len(first) < FRAMES_MAX + PIECE_BYTES
    rest = decode(layer, [b""])
    assert first + rest == b"".join(b"%c" % (number % 251) for number in range(count))


@pytest.mark.parametrize("path", ["/", "/mqtt/", "/mqtt2", "/MQTT", "//mqtt", "/mqtt%2f"])
def test_another_path_is_refused(path: str) -> None:
    layer, peer = WebSocketLayer(SETTINGS, PACKET_BYTES), Peer(path)
    with pytest.raises(LayerError, match="the path"):
        layer.receive_data(peer.handshake())
    peer.receive(layer.take_output())
    assert isinstance(peer.protocol.handshake_exc, InvalidStatus)
    assert peer.protocol.handshake_exc.response.status_code == 404
    assert layer.encode(b"x") == b""


@pytest.mark.parametrize(
    ("wanted", "path"), [("/mqtt", "/mqtt?token=1"), ("/", "/"), ("/", "/mqtt"), ("/a/", "/a/b"), ("/a/", "/a/")]
)
def test_paths_that_are_served(wanted: str, path: str) -> None:
    layer, peer = WebSocketLayer(WebsocketSettings(wanted), PACKET_BYTES), Peer(path)
    layer.receive_data(peer.handshake())
    assert layer.is_open


@pytest.mark.parametrize(
    ("subprotocols", "chosen"),
    [(("mqtt",), "mqtt"), (("mqttv3.1",), "mqttv3.1"), (("soap", "mqtt"), "mqtt"), (("mqttv3.1", "mqtt"), "mqtt")],
)
def test_the_subprotocol(subprotocols: tuple[str, ...], chosen: str) -> None:
    """The server chooses one of those that the client offers [MQTT-6.0.0-3] [MQTT-6.0.0-4]."""
    layer, peer = WebSocketLayer(SETTINGS, PACKET_BYTES), Peer(subprotocols=subprotocols)
    layer.receive_data(peer.handshake())
    peer.receive(layer.take_output())
    assert peer.protocol.subprotocol == chosen


@pytest.mark.parametrize("subprotocols", [(), ("soap",)])
def test_a_client_without_the_subprotocol_is_refused(subprotocols: tuple[str, ...]) -> None:
    layer, peer = WebSocketLayer(SETTINGS, PACKET_BYTES), Peer(subprotocols=subprotocols)
    with pytest.raises(LayerError, match="subprotocol"):
        layer.receive_data(peer.handshake())
    assert layer.take_output().startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("origin", "is_allowed"),
    [(None, True), ("https://example.com", True), ("https://example.com:444", False), ("null", False)],
)
def test_origins(origin: str | None, is_allowed: bool) -> None:
    layer = WebSocketLayer(WebsocketSettings("/mqtt", ("https://example.com",)), PACKET_BYTES)
    request = Peer(origin=origin).handshake()
    if is_allowed:
        layer.receive_data(request)
        assert layer.is_open
        return
    with pytest.raises(LayerError, match="not in allowed_origins"):
        layer.receive_data(request)
    assert layer.take_output().startswith(b"HTTP/1.1 403 ")


def test_every_origin_is_allowed_where_there_is_no_list() -> None:
    layer = WebSocketLayer(SETTINGS, PACKET_BYTES)
    layer.receive_data(Peer(origin="https://anywhere.example").handshake())
    assert layer.is_open


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00\r\n", b""),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n", b""),
        (b"GET /mqtt HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 426 "),
        (b"POST /mqtt HTTP/1.1\r\nHost: a\r\n\r\n", b""),
        (b"GET /mqtt HTTP/1.0\r\n\r\n", b""),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", b"HTTP/1.1 414 "),
        (b"GET /mqtt HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"HTTP/1.1 431 "),
        (b"GET /mqtt HTTP/1.1\r\nA: " + b"b" * 9000 + b"\r\n\r\n", b"HTTP/1.1 431 "),
    ],
)
def test_other_bytes_than_a_handshake_are_refused(data: bytes, answer: bytes) -> None:
    layer = WebSocketLayer(SETTINGS, PACKET_BYTES)
    with pytest.raises(LayerError, match=r"^WebSocket: "):
        layer.receive_data(data)
    assert layer.take_output().startswith(answer)
    assert not layer.is_open


def test_a_text_frame_is_refused() -> None:
    """The connection ends with 1003 [MQTT-6.0.0-1]."""
    layer, peer = opened()
    peer.protocol.send_text(b"hello")
    with pytest.raises(LayerError, match="text frame"):
        layer.receive_data(peer.take())
    (close,) = peer.receive(layer.take_output())
    assert (close.opcode, close.data[:2]) == (Opcode.CLOSE, (1003).to_bytes(2, "big"))
    assert layer.encode(b"x") == b""
    assert layer.close() == b""


@pytest.mark.parametrize(
    "frame",
    [
        b"\x82\x01a",  # not masked
        b"\xc2\x81\x00\x00\x00\x00a",  # a reserved bit: compression was not agreed
        b"\x83\x80\x00\x00\x00\x00",  # reserved opcode
        b"\x80\x80\x00\x00\x00\x00",  # continuation of nothing
        b"\x09\x80\x00\x00\x00\x00",  # fragmented ping
    ],
)
def test_a_frame_that_breaks_the_rules_ends_the_connection(frame: bytes) -> None:
    layer, peer = opened()
    with pytest.raises(LayerError, match=r"^WebSocket: "):
        layer.receive_data(frame)
    (close,) = peer.receive(layer.take_output())
    assert (close.opcode, close.data[:2]) == (Opcode.CLOSE, (1002).to_bytes(2, "big"))


@pytest.mark.parametrize("is_accepted", [False, True])
def test_the_largest_frame(is_accepted: bool) -> None:
    """The library keeps a frame until it is whole, so its size is refused before its content is there."""
    for excess in (0, 1):
        layer, _ = opened()
        limit = CONTROL_BYTES_MAX
        if is_accepted:
            layer.client_accepted()
            limit = PACKET_BYTES
        header = b"\x82\xff" + (limit + excess).to_bytes(8, "big") + bytes(4)
        if excess:
            with pytest.raises(LayerError, match=r"^WebSocket: frame with .* bytes|^WebSocket: .*exceeds"):
                layer.receive_data(header)
        else:
            assert layer.receive_data(header) == b""
            assert decode(layer, [bytes(limit)]) == bytes(limit)


def test_a_small_packet_limit_is_none_of_frames() -> None:
    """A frame may have several packets."""
    layer, peer = opened(packet_bytes_max=1000)
    layer.client_accepted()
    peer.protocol.send_binary(bytes(100_000))
    assert decode(layer, [peer.take()]) == bytes(100_000)


def test_the_close_of_the_client_is_answered() -> None:
    layer, peer = opened()
    peer.protocol.send_binary(b"last")
    peer.protocol.send_close(1000)
    assert layer.receive_data(peer.take() + b"ignored") == b"last"
    assert layer.is_ended
    (close,) = peer.receive(layer.take_output())
    assert close.opcode is Opcode.CLOSE
    assert layer.close() == b""


def test_the_close_of_the_server() -> None:
    layer, peer = opened()
    (close,) = peer.receive(layer.close())
    assert (close.opcode, close.data[:2]) == (Opcode.CLOSE, (1000).to_bytes(2, "big"))
    assert layer.encode(b"x") == b""


@given(data=st.binary(max_size=300), cut=st.integers(0, 300))
def test_any_bytes_are_decoded_or_refused(data: bytes, cut: int) -> None:
    layer, _ = opened()
    try:
        decode(layer, [data[:cut], data[cut:]])
    except LayerError:
        layer.take_output()
