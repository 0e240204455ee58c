"""The bytes of the direct stream (docs/protocol-extensions.md); integers are big endian.

One TCP connection carries one event stream. The client sends Hello and batches, the server answers and acknowledges. Hello has
the id of the client's store. A batch of messages is a block of the outbox, whose serial number belongs to that store.
"""

# compiled with mypyc
from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be

PREFACE: Final = b"GMQD\x03"  # tells the connection from one of gRPC, which begins with "PRI * HTTP/2.0"
NAME_BYTES_MAX: Final = 1024
TEXT_BYTES_MAX: Final = 1024
# length u32 (of all that follows it), first_event_id u64, event_count u32, serial u64, done u32
BATCH_HEADER_SIZE: Final = 28
PROMISED: Final = 1 << 62  # in serial: somebody waits for the acknowledgement
REPLY_HEAD_SIZE: Final = 12  # status u8, clean_start u8, next_event_id u64, text_length u16
ACK_SIZE: Final = 8
U32_MAX: Final = 0xFFFF_FFFF
U64_MAX: Final = 0xFFFF_FFFF_FFFF_FFFF
ACK_PONG: Final = 0xFFFF_FFFF_FFFF_FFFE  # answer to a batch without events
ACK_END: Final = 0xFFFF_FFFF_FFFF_FFFF  # the server ends the stream: malformed u8, text_length u16, text follow

CHUNKS_MIN: Final = 64  # pieces of an incomplete batch that are kept as they came; more are joined when they are small:
CHUNK_BYTES: Final = 4096  # below so many bytes on average

# No status is 0: an HTTP/2 frame begins with 0, so an answer of gRPC is never taken for a reply.
STATUS_OK: Final = 1
STATUS_NOT_A_MEMBER: Final = 2
STATUS_INVALID: Final = 3


class DirectError(Exception):
    """The other side does not speak the direct stream, or speaks it wrong. The text says what was wrong."""


@dataclass
class Hello:
    """The first bytes of a client."""

    node_name: str
    session_id: str
    store_id: str


@dataclass
class Reply:
    """The server's answer to Hello. `text` says why when the status is not STATUS_OK."""

    status: int
    clean_start: bool
    next_event_id: int
    text: str


class Answers:
    """One read of a client holds these: the newest acknowledgement (-1: none), and the end of the stream (None:
    none)."""

    __slots__ = ("ack", "end_malformed", "end_text")

    def __init__(self) -> None:
        self.ack = -1
        self.end_text: str | None = None
        self.end_malformed = False


def encode_hello(node_name: str, session_id: str, store_id: str) -> bytes:
    fields = node_name.encode("utf-8", "surrogateescape"), session_id.encode(), store_id.encode()
    return PREFACE + b"".join([len(field).to_bytes(2, "big") + field for field in fields])


def encode_reply(reply: Reply) -> bytes:
    text = reply.text.encode("utf-8", "replace")[:TEXT_BYTES_MAX]
    return b"".join(
        (
            bytes((reply.status, 1 if reply.clean_start else 0)),
            reply.next_event_id.to_bytes(8, "big"),
            len(text).to_bytes(2, "big"),
            text,
        )
    )


def encode_batch(first_id: int, count: int, events: bytes, serial: int = 0, done: int = 0) -> bytes:
    return encode_batch_header(first_id, count, len(events), serial, done) + events


def encode_batch_header(first_id: int, count: int, size: int, serial: int, done: int) -> bytes:
    """What goes in front of `count` events of `size` bytes. first_id and serial (perhaps with PROMISED) are below 2^63, count,
    size and done below 2^31."""
    writer = BytesWriter()  # compiled, less than half of what int.to_bytes or struct cost
    write_i32_be(writer, size + BATCH_HEADER_SIZE - 4)
    write_i64_be(writer, first_id)
    write_i32_be(writer, count)
    write_i64_be(writer, serial)
    write_i32_be(writer, done)
    return writer.getvalue()


def encode_ack(event_id: int) -> bytes:
    return event_id.to_bytes(ACK_SIZE, "big")


def encode_end(malformed: bool, text: str) -> bytes:
    data = text.encode("utf-8", "replace")[:TEXT_BYTES_MAX]
    return b"".join((ACK_END.to_bytes(8, "big"), bytes((1 if malformed else 0,)), len(data).to_bytes(2, "big"), data))


def _unsigned(value: int, mask: int) -> int:
    return value if value >= 0 else value & mask


PING: Final = encode_batch(0, 0, b"")


class ServerReader:
    """Splits what a client sends. bytes_max bounds one batch; an incomplete one is kept, at most so much.

    first_id, count         of the batch that next_batch found; count 0 is a ping
    serial, done            likewise, without PROMISED
    is_promised             somebody waits for its acknowledgement
    data, start, stop       its frames are data[start:stop]
    fault                   what is wrong behind the last batch; nothing after it is read
    """

    def __init__(self, bytes_max: int) -> None:
        self.first_id = 0
        self.count = 0
        self.serial = 0
        self.done = 0
        self.is_promised = False
        self.data = b""
        self.start = 0
        self.stop = 0
        self.fault: DirectError | None = None
        self._bytes_max = bytes_max
        self._chunks: list[bytes] = []
        self._size = 0
        self._needed = len(PREFACE) + 2

    def _take(self, data: bytes) -> bytes:
        """All bytes not handled yet, b"" while they cannot be a whole item."""
        chunks = self._chunks
        if not chunks and len(data) >= self._needed:
            return data
        if data:
            chunks.append(data)
            self._size += len(data)
        if self._size < self._needed:
            if len(chunks) > CHUNKS_MIN + self._size // CHUNK_BYTES:
                self._chunks = [b"".join(chunks)]
            return b""
        whole = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks = []
        self._size = 0
        return whole

    def _keep(self, data: bytes, pos: int, needed: int) -> None:
        rest = data[pos:]
        self._chunks = [rest] if rest else []
        self._size = len(rest)
        self._needed = needed

    def receive_hello(self, data: bytes) -> Hello | None:
        """The Hello once it is whole; what follows it is kept for next_batch. Raises DirectError."""
        whole = self._take(data)
        if not whole:
            return None
        if not whole.startswith(PREFACE):
            raise DirectError("the connection does not begin with the preface of a direct stream")
        fields: list[bytes] = []
        pos = len(PREFACE)
        for name in ("node name", "session id", "store id"):
            if pos + 2 > len(whole):
                self._keep(whole, 0, pos + 2)
                return None
            size = int.from_bytes(whole[pos : pos + 2], "big")
            if not 0 < size <= NAME_BYTES_MAX:
                raise DirectError(f"{name} of {size} bytes, 1 to {NAME_BYTES_MAX} are allowed")
            pos += 2 + size
            if pos > len(whole):
                self._keep(whole, 0, pos)
                return None
            fields.append(whole[pos - size : pos])
        try:
            session_id, store_id = fields[1].decode(), fields[2].decode()
        except UnicodeDecodeError:
            raise DirectError("session id or store id is not UTF-8") from None
        self._keep(whole, pos, BATCH_HEADER_SIZE)
        return Hello(fields[0].decode("utf-8", "surrogateescape"), session_id, store_id)

    def receive(self, data: bytes) -> None:
        """Bytes came. After it, next_batch until it finds none."""
        self.stop = 0
        self.data = b"" if self.fault is not None else self._take(data)

    def next_batch(self) -> bool:
        """Return whether another batch is whole. When none is, look at `fault`: the batches in front of it still
        count."""
        data = self.data
        pos = self.stop
        left = len(data) - pos
        needed = BATCH_HEADER_SIZE
        if left >= BATCH_HEADER_SIZE:
            length: int = read_i32_be(data, pos)  # negative: 2^31 and more
            if length < BATCH_HEADER_SIZE - 4 or length > self._bytes_max:
                self.fault = DirectError(
                    f"batch of {length & U32_MAX} bytes, {BATCH_HEADER_SIZE - 4} to {self._bytes_max} are allowed"
                )
                return False
            needed = 4 + length
            if left >= needed:
                self.first_id = _unsigned(read_i64_be(data, pos + 4), U64_MAX)
                self.count = _unsigned(read_i32_be(data, pos + 12), U32_MAX)
                serial: int = read_i64_be(data, pos + 16)
                self.is_promised = serial & PROMISED != 0
                self.serial = serial & (PROMISED - 1)
                self.done = _unsigned(read_i32_be(data, pos + 24), U32_MAX)
                self.start = pos + BATCH_HEADER_SIZE
                self.stop = pos + needed
                return True
        if data:
            self._keep(data, pos, needed)
            self.data = b""
            self.stop = 0
        return False


class ClientReader:
    """The client's side of the bytes: one reply, then acknowledgements."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_over = False

    def receive_reply(self, data: bytes) -> Reply | None:
        """The reply once it is whole; what follows it is kept for receive_answers. Raises DirectError."""
        data = self._rest + data
        self._rest = data
        if not data:
            return None
        if not STATUS_OK <= data[0] <= STATUS_INVALID:
            raise DirectError("the answer to Hello is none of a direct stream")
        if len(data) < REPLY_HEAD_SIZE:
            return None
        text_size = int.from_bytes(data[10:12], "big")
        if data[1] > 1 or text_size > TEXT_BYTES_MAX:
            raise DirectError("the answer to Hello is none of a direct stream")
        end = REPLY_HEAD_SIZE + text_size
        if len(data) < end:
            return None
        self._rest = data[end:]
        text = data[REPLY_HEAD_SIZE:end].decode("utf-8", "replace")
        return Reply(data[0], data[1] == 1, int.from_bytes(data[2:10], "big"), text)

    def receive_answers(self, data: bytes) -> Answers:
        """Acknowledgements are cumulative: only the newest counts. After the end of the stream nothing is read. Raises
        DirectError."""
        answers = Answers()
        if self._is_over:
            return answers
        if self._rest:
            data = self._rest + data
        pos = 0
        size = len(data)
        while size - pos >= ACK_SIZE:
            value = int.from_bytes(data[pos : pos + ACK_SIZE], "big")
            if value == ACK_END:
                head = pos + ACK_SIZE + 3
                if size < head:
                    break
                text_size = int.from_bytes(data[head - 2 : head], "big")
                if data[head - 3] > 1 or text_size > TEXT_BYTES_MAX:
                    raise DirectError("the end of the stream is none")
                end = head + text_size
                if size < end:
                    break
                answers.end_malformed = data[pos + ACK_SIZE] == 1
                answers.end_text = data[head:end].decode("utf-8", "replace")
                pos = size
                self._is_over = True
                break
            if value != ACK_PONG:
                answers.ack = value
            pos += ACK_SIZE
        self._rest = data[pos:]
        return answers
