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
"""Compressed bytes of an encrypted stream, which come all at once."""
USER_MESSAGE_BYTES_MAX: Final = 65_536
"""Bytes of a user message, as much as a datagram may have. Serf sends none over streams."""
SLICE_BYTES: Final = 16 << 10
"""Bytes that one call reads, of compressed ones those that come out too."""
SLICE_NODES: Final = 2048
"""Nodes of a push-pull that one call reads or passes over. The smallest have one byte."""

_PIECE_BYTES: Final = 1024  # that are decompressed at once: even a bomb gives no more than 3 MiB of them


class StreamDecoder:
    """Collects one message. Call `receive_data` until `complete`; then read `message_type` and, by type:

    ping, ack, error    `fields`
    push-pull           `push_pull`; nodes with invalid fields are left out and counted in `nodes_refused`
    user                `user_message`

    `is_behind`: call `receive_data` without data before more comes, for each further slice of what came.

    `held_bytes`: that came so far, or what they were decompressed to where that is more.

    Raises WireError as soon as the bytes cannot become a valid message. Bytes after the message are ignored.
    """

    def __init__(self, sealing: Sealing | None = PLAIN, is_answer: bool = False) -> None:
        """`sealing` is that of this node; None for what was compressed: it has no layers of its own."""
        self._opener = None if sealing is None else StreamOpener(sealing, is_answer, SEALED_BYTES_MAX)
        self._unpacker = new_unpacker(STREAM_BYTES_MAX)
        self._compressed: CompressedBody | None = None
        self._inner: StreamDecoder | None = None
        self._waiting = bytearray()  # that came, and are not read yet
        self._opened = bytearray()  # that were decompressed, and are not read yet
        self._header: Fields | None = None
        self._nodes: list[PushPullNode] = []
        self._nodes_missing = 0
        self._nodes_read = 0
        self._nodes_wait = False  # in the unpacker
        self.nodes_refused = 0
        self._rest_length = 0
        self._rest_parts = bytearray()
        self.held_bytes = 0
        self.complete = False
        self.message_type = -1
        self.fields: Fields = {}
        self.push_pull: PushPull | None = None
        self.user_message = b""

    @property
    def is_behind(self) -> bool:
        """Return whether bytes that came wait: one call reads SLICE_BYTES, so that other work can go between."""
        if self.complete:
            return False
        is_inner_behind = self._inner is not None and self._inner.is_behind
        return is_inner_behind or self._nodes_wait or len(self._waiting) > 0 or len(self._opened) > 0

    def receive_data(self, data: bytes = b"") -> None:
        if self.complete:
            return
        self.held_bytes += len(data)
        if self.held_bytes > STREAM_BYTES_MAX:
            raise WireError(f"stream is longer than {STREAM_BYTES_MAX} bytes")
        is_sealed = False
        if self._opener is not None and data:
            data = self._opener.receive_data(data)
            is_sealed = self._opener.was_sealed
        if self.message_type < 0 and data:
            self.message_type = data[0]
            data = data[1:]
            self._check_type()
        self._waiting += data
        if self.message_type == COMPRESS:
            if is_sealed and len(data) > SEALED_COMPRESSED_MAX:
                raise WireError(f"compressed stream that is encrypted is longer than {SEALED_COMPRESSED_MAX} bytes")
            self._decompress()
        elif self._nodes_wait:
            self._advance()
        elif self._waiting:
            self._unpacker.feed(bytes(self._waiting[:SLICE_BYTES]))
            del self._waiting[:SLICE_BYTES]
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
        room = SLICE_NODES
        self._nodes_wait = False
        while self._nodes_missing > 0:
            if room == 0:
                self._nodes_wait = True
                return
            room -= 1
            if self._nodes_read >= MEMBERS_MAX:
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
            self._nodes_read += 1
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

    def _decompress(self) -> None:
        """Pass the next slice of a compressed stream to the decoder of what is inside."""
        if self._compressed is None or self._inner is None:
            self._compressed = CompressedBody(STREAM_BYTES_MAX)
            self._inner = StreamDecoder(sealing=None)
        inner = self._inner
        part = b""
        if not inner.is_behind:
            room = SLICE_BYTES
            while room > 0 and self._waiting and len(self._opened) < SLICE_BYTES:
                self._opened += self._compressed.receive_data(bytes(self._waiting[:_PIECE_BYTES]))
                del self._waiting[:_PIECE_BYTES]
                room -= _PIECE_BYTES
            part = bytes(self._opened[:SLICE_BYTES])
            del self._opened[:SLICE_BYTES]
        inner.receive_data(part)
        self.held_bytes = max(self.held_bytes, inner.held_bytes + len(self._opened))
        if self._opened or inner.is_behind or not self._compressed.is_over:
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
