"""Decoder of one direction of a stream: `[label] [10 encrypted] [9 compress] type body` (wire-gossip 4).

Data may arrive in pieces of any size. All sizes are bounded: the bytes come from anybody who can reach the port.
"""

from __future__ import annotations

from typing import Final

from federation.gossip.compressed_body import CompressedBody
from federation.gossip.errors import WireError
from federation.gossip.members import MEMBERS_MAX
from federation.gossip.messages import (
    ACK,
    COMPRESS,
    ERROR,
    PING,
    PUSH_PULL,
    USER,
    PushPull,
    PushPullNode,
)
from federation.gossip.msgpack_fields import (
    Fields,
    as_fields,
    bool_field,
    new_unpacker,
    skip_next,
    uint_field,
    unpack_next,
)
from federation.gossip.sealing import PLAIN, Sealing, StreamOpener

STREAM_BYTES_MAX: Final = 40 << 20
"""Bytes of a stream, and of what a compressed one becomes. This and the next three are memberlist's."""
SEALED_BYTES_MAX: Final = 20 << 20
"""Bytes of an encrypted stream."""
STATE_BYTES_MAX: Final = 20 << 20
"""Bytes of Serf's state in a push-pull."""
PUSH_PULL_NODES_MAX: Final = 1 << 20
"""Nodes of a push-pull. Of these MEMBERS_MAX are read, which is all that the table takes; the others are passed over."""
SEALED_COMPRESSED_MAX: Final = 4 << 20
"""Compressed bytes of an encrypted stream. They come all at once, and decompressing blocks the node for some 0.3 s for each
MiB; a stream that is not encrypted is decompressed as its pieces come."""
USER_MESSAGE_BYTES_MAX: Final = 65_536
"""Bytes of a user message, as much as a datagram may have. Serf sends none over streams."""


_PIECE_BYTES: Final = 4096  # that are decompressed at once: even a bomb gives no more than 11 MiB of them


class StreamDecoder:
    """Collects one message. Call `receive_data` until `complete`; then read `message_type` and, by type:

    ping, ack, error    `fields`
    push-pull           `push_pull`; nodes with invalid fields are left out and counted in `nodes_refused`
    user                `user_message`

    `held_bytes`: that came so far, or what they were decompressed to where that is more.

    Raises WireError as soon as the bytes cannot become a valid message. Bytes after the message are ignored.
    """

    def __init__(self, sealing: Sealing | None = PLAIN, is_answer: bool = False) -> None:
        """`sealing` is that of this node; None for what was compressed: it has no layers of its own."""
        self._opener = None if sealing is None else StreamOpener(sealing, is_answer, SEALED_BYTES_MAX)
        self._unpacker = new_unpacker(STREAM_BYTES_MAX)
        self._compressed: CompressedBody | None = None
        self._inner: StreamDecoder | None = None
        self._header: Fields | None = None
        self._nodes: list[PushPullNode] = []
        self._nodes_missing = 0
        self.nodes_refused = 0
        self._rest_length = 0
        self._rest_parts = bytearray()
        self.held_bytes = 0
        self.complete = False
        self.message_type = -1
        self.fields: Fields = {}
        self.push_pull: PushPull | None = None
        self.user_message = b""

    def receive_data(self, data: bytes) -> None:
        if self.complete or not data:
            return
        self.held_bytes += len(data)
        if self.held_bytes > STREAM_BYTES_MAX:
            raise WireError(f"stream is longer than {STREAM_BYTES_MAX} bytes")
        is_sealed = False
        if self._opener is not None:
            data = self._opener.receive_data(data)
            if not data:
                return
            is_sealed = self._opener.was_sealed
        if self.message_type < 0:
            self.message_type = data[0]
            data = data[1:]
            self._check_type()
        if self.message_type == COMPRESS:
            if is_sealed and len(data) > SEALED_COMPRESSED_MAX:
                raise WireError(f"compressed stream that is encrypted is longer than {SEALED_COMPRESSED_MAX} bytes")
            self._decompress(data)
            return
        self._unpacker.feed(data)
        self._advance()

    def _check_type(self) -> None:
        kind = self.message_type
        if kind == COMPRESS:
            if self._opener is None:
                raise WireError("compressed twice")
        elif kind not in (PING, ACK, PUSH_PULL, USER, ERROR):
            raise WireError(f"message type {kind} does not belong on a stream")

    def _advance(self) -> None:
        if self._header is None:
            found, value = unpack_next(self._unpacker)
            if not found:
                return
            self._header = as_fields(value)
            self._header_received(self._header)
            if self.complete:
                return
        while self._nodes_missing > 0:
            if len(self._nodes) >= MEMBERS_MAX:
                if not skip_next(self._unpacker):
                    return
                self._nodes_missing -= 1
                self.nodes_refused += 1
                continue
            found, value = unpack_next(self._unpacker)
            if not found:
                return
            fields = as_fields(value)
            self._nodes_missing -= 1
            try:
                self._nodes.append(PushPullNode.from_fields(fields))
            except WireError:
                # Go nodes accept names that are not UTF-8, for example. The other nodes of the push-pull are still valid.
                self.nodes_refused += 1
        missing = self._rest_length - len(self._rest_parts)
        if missing > 0:
            self._rest_parts += self._unpacker.read_bytes(missing)
        if len(self._rest_parts) == self._rest_length:
            self._finish()

    def _header_received(self, header: Fields) -> None:
        kind = self.message_type
        if kind == PUSH_PULL:
            self._nodes_missing = uint_field(header, b"Nodes", PUSH_PULL_NODES_MAX)
            self._rest_length = uint_field(header, b"UserStateLen", STATE_BYTES_MAX)
        elif kind == USER:
            self._rest_length = uint_field(header, b"UserMsgLen", USER_MESSAGE_BYTES_MAX)
        else:
            self.fields = header
            self.complete = True

    def _decompress(self, data: bytes) -> None:
        """Pass the next piece of a compressed stream to the decoder of what is inside."""
        if self._compressed is None or self._inner is None:
            self._compressed = CompressedBody(STREAM_BYTES_MAX)
            self._inner = StreamDecoder(sealing=None)
        inner = self._inner
        for at in range(0, len(data), _PIECE_BYTES):
            inner.receive_data(self._compressed.receive_data(data[at : at + _PIECE_BYTES]))
        self.held_bytes = max(self.held_bytes, inner.held_bytes)
        if not self._compressed.is_over:
            return
        if not inner.complete:
            raise WireError("compressed message is cut off")
        self.message_type = inner.message_type
        self.fields = inner.fields
        self.push_pull = inner.push_pull
        self.nodes_refused = inner.nodes_refused
        self.user_message = inner.user_message
        self.complete = True

    def _finish(self) -> None:
        rest = bytes(self._rest_parts)
        if self.message_type == PUSH_PULL:
            assert self._header is not None
            self.push_pull = PushPull(bool_field(self._header, b"Join"), self._nodes, rest)
        else:
            self.user_message = rest
        self.complete = True
