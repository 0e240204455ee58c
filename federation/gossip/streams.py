"""Decoder of one direction of a stream: `[label] [10 encrypted] [9 compress] type body` (wire-gossip 4).

Data may arrive in pieces of any size. All sizes are bounded: the bytes come from anybody who can reach the port.
"""

from __future__ import annotations

from typing import Final

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
from federation.gossip.msgpack_fields import Fields, as_fields, bool_field, new_unpacker, uint_field, unpack_next
from federation.gossip.sealing import PLAIN, Sealing, StreamOpener
from federation.gossip.wire import decompress_body

# The protocol allows 40 MiB. A state of MEMBERS_MAX members needs about 3 MiB. Decompression blocks the node for about
# 0.2 s for each MiB of compressed bytes, so these limits are lower.
STREAM_BYTES_MAX: Final = 8 << 20
STREAM_COMPRESSED_MAX: Final = 2 << 20
PUSH_PULL_NODES_MAX: Final = MEMBERS_MAX
USER_MESSAGE_BYTES_MAX: Final = 65_536
"""Bytes of a user message, as much as a datagram may have. Serf sends none over streams."""


class StreamDecoder:
    """Collects one message. Call `receive_data` until `complete`; then read `message_type` and, by type:

    ping, ack, error    `fields`
    push-pull           `push_pull`; nodes with invalid fields are left out and counted in `nodes_refused`
    user                `user_message`

    Raises WireError as soon as the bytes cannot become a valid message. Bytes after the message are ignored.
    """

    def __init__(self, sealing: Sealing | None = PLAIN, is_answer: bool = False) -> None:
        """`sealing` is that of this node; None for what was compressed: it has no layers of its own."""
        self._opener = None if sealing is None else StreamOpener(sealing, is_answer, STREAM_BYTES_MAX)
        self._unpacker = new_unpacker(STREAM_BYTES_MAX)
        self._received = 0
        self._header: Fields | None = None
        self._nodes: list[PushPullNode] = []
        self._nodes_missing = 0
        self.nodes_refused = 0
        self._rest_length = 0
        self._rest_parts = bytearray()
        self.complete = False
        self.message_type = -1
        self.fields: Fields = {}
        self.push_pull: PushPull | None = None
        self.user_message = b""

    def receive_data(self, data: bytes) -> None:
        if self.complete or not data:
            return
        self._received += len(data)
        size_max = STREAM_COMPRESSED_MAX if self.message_type == COMPRESS else STREAM_BYTES_MAX
        if self._received > size_max:
            raise WireError(f"stream is longer than {size_max} bytes")
        if self._opener is not None:
            data = self._opener.receive_data(data)
            if not data:
                return
        if self.message_type < 0:
            self.message_type = data[0]
            data = data[1:]
            self._check_type()
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
            self._rest_length = uint_field(header, b"UserStateLen", STREAM_BYTES_MAX)
        elif kind == USER:
            self._rest_length = uint_field(header, b"UserMsgLen", USER_MESSAGE_BYTES_MAX)
        elif kind == COMPRESS:
            self._decompressed(header)
        else:
            self.fields = header
            self.complete = True

    def _decompressed(self, header: Fields) -> None:
        if self._received > STREAM_COMPRESSED_MAX:  # an encrypted stream comes out at once
            raise WireError(f"compressed stream is longer than {STREAM_COMPRESSED_MAX} bytes")
        inner = StreamDecoder(sealing=None)
        inner.receive_data(decompress_body(header, STREAM_BYTES_MAX))
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
