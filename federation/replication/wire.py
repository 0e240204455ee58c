"""The bytes between a node and a keeper of its store (docs/protocol-extensions.md): frames of a length (u32, of what follows),
a kind (u8) and a body in MessagePack.

HELLO    home: node, store id, number of its start, version of the list of keepers, names of the keepers
WELCOME  keeper: whether it goes on with what it has, number of the last batch that it has
REFUSED  keeper: why not
BATCH    home: number of a batch, records by number (nil: deleted), whether the batch ends with this frame
BASE     home: records by number, as they are now
BASE_END home: number of the batch up to which what came makes the store whole
ACK      keeper: how many frames behind HELLO are in its store
PING, PONG
STORED   home: records with numbers below this one are on its own disk; an earlier build does not say it, and passes over it
"""

# not compiled: MessagePack is no package of the build
from __future__ import annotations

from typing import Any, Final

import msgpack  # type: ignore[import-untyped]

from broker.store.journal import checked

PREFACE: Final = b"GMQK\x01"
HELLO: Final = 1
WELCOME: Final = 2
REFUSED: Final = 3
BATCH: Final = 4
BASE: Final = 5
BASE_END: Final = 6
ACK: Final = 7
PING: Final = 8
PONG: Final = 9
STORED: Final = 10
HEADER_SIZE: Final = 5
FRAME_BYTES: Final = 2**18  # of records in one frame, and
FRAME_RECORDS: Final = 1_024
ARRAY_OF_3: Final = b"\x93"  # of MessagePack, as the next two
FALSE: Final = b"\xc2"
TRUE: Final = b"\xc3"
BATCHES_BYTES_MAX: Final = 16 * 2**20  # of batches that some keeper lacks; without them it gets the store anew
SMALL_BYTES_MAX: Final = 65_536  # of frames that are no records

Record = tuple[object, ...]
Records = dict[int, "Record | None"]


class WireError(ValueError):
    """The other side does not speak this, or speaks it wrong. The text says what was wrong."""


def encode_frame(kind: int, body: object) -> bytes:
    return _frame(kind, msgpack.packb(body))


def _frame(kind: int, data: bytes) -> bytes:
    return (len(data) + 1).to_bytes(4, "big") + bytes((kind,)) + data


def encode_records(records: Records) -> list[bytes]:
    """BASE frames, as many as keep each of them small; a large record has its own."""
    return [_frame(BASE, packed) for packed in pack_records(records)]


def encode_batch(number: int, records: Records) -> list[bytes]:
    """BATCH frames of a batch, likewise."""
    head = ARRAY_OF_3 + msgpack.packb(number)
    *parts, last = pack_records(records)
    return [*[_frame(BATCH, head + part + FALSE) for part in parts], _frame(BATCH, head + last + TRUE)]


def pack_records(records: Records) -> list[bytes]:
    """The records in MessagePack, in as many pieces as keep each of them small; at least one."""
    if len(records) > FRAME_RECORDS:
        items = list(records.items())
        pieces = [dict(items[at : at + FRAME_RECORDS]) for at in range(0, len(items), FRAME_RECORDS)]
        return [packed for piece in pieces for packed in pack_records(piece)]
    packed: bytes = msgpack.packb(records)
    if len(packed) <= FRAME_BYTES or len(records) < 2:
        return [packed]
    items = list(records.items())
    half = len(items) // 2
    return pack_records(dict(items[:half])) + pack_records(dict(items[half:]))


def unpack_records(packed: bytes) -> Records:
    """The records of the body of a BASE or BATCH. Raises WireError."""
    try:
        body = msgpack.unpackb(packed, use_list=False, strict_map_key=False)
    except ValueError as error:
        raise WireError(f"records that are not MessagePack: {error}") from None
    return decode_records(body) if isinstance(body, dict) else decode_batch(body)[1]


def decode_hello(body: Any) -> tuple[str, str, int, int, tuple[str, ...]]:
    """Raises WireError."""
    try:
        node, store_id, starts, version, names = body
        found = tuple([checked(str, name) for name in checked(tuple, names)])
        return checked(str, node), checked(str, store_id), checked(int, starts), checked(int, version), found
    except (TypeError, ValueError) as error:
        raise WireError(f"HELLO: {error}") from None


def decode_welcome(body: Any) -> tuple[bool, int]:
    """Raises WireError."""
    try:
        is_known, position = body
        return checked(bool, is_known), checked(int, position)
    except (TypeError, ValueError) as error:
        raise WireError(f"WELCOME: {error}") from None


def decode_batch(body: Any) -> tuple[int, Records, bool]:
    """Raises WireError."""
    try:
        number, records, is_last = body
        return checked(int, number), decode_records(records), checked(bool, is_last)
    except (TypeError, ValueError) as error:
        raise WireError(f"BATCH: {error}") from None


def decode_records(body: Any) -> Records:
    """Raises WireError."""
    if not isinstance(body, dict):
        raise WireError("the records are no map")
    for number, record in body.items():
        if not isinstance(number, int) or not (record is None or (isinstance(record, tuple) and record)):
            raise WireError(f"record {number!r:.50} is none")
    return body


def decode_number(body: Any) -> int:
    """Raises WireError."""
    if not isinstance(body, int):
        raise WireError(f"{body!r:.50} is no number")
    return body


class FrameReader:
    """Splits what the other side sends. bytes_max bounds one frame; an incomplete one is kept.

    kind, body  of the frame that next_frame found
    packed      its body as it came
    """

    def __init__(self, bytes_max: int) -> None:
        self.kind = 0
        self.body: Any = None
        self.packed = b""
        self._bytes_max = bytes_max
        self._chunks: list[bytes] = []
        self._size = 0
        self._needed = HEADER_SIZE
        self._data = b""
        self._pos = 0

    def receive(self, data: bytes) -> None:
        """Bytes came. After it, next_frame until it finds none."""
        self._chunks.append(data)
        self._size += len(data)
        if self._size >= self._needed:
            self._data = b"".join(self._chunks)
            self._chunks = []
            self._size = 0
            self._pos = 0

    def next_frame(self) -> bool:
        """Return whether another frame is whole. Raises WireError."""
        data, pos = self._data, self._pos
        if not data:
            return False
        left = len(data) - pos
        needed = HEADER_SIZE
        if left >= HEADER_SIZE:
            length = int.from_bytes(data[pos : pos + 4], "big")
            if not 1 <= length <= self._bytes_max:
                raise WireError(f"frame of {length} bytes, 1 to {self._bytes_max} are allowed")
            needed = 4 + length
            if left >= needed:
                self.kind = data[pos + 4]
                self._pos = pos + needed
                self.packed = data[pos + HEADER_SIZE : self._pos]
                try:
                    self.body = msgpack.unpackb(self.packed, use_list=False, strict_map_key=False)
                except ValueError as error:
                    raise WireError(f"frame of kind {self.kind} is not MessagePack: {error}") from None
                return True
        rest = data[pos:]
        self._chunks = [rest] if rest else []
        self._size = len(rest)
        self._data = b""
        self._pos = 0
        self._needed = needed
        return False
