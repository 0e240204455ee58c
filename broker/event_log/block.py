"""The unit of the event log: a block of records as columns, with a checksum. It is written, synced and read as a whole.

A block has a header, a table of sections, three dictionaries and a heap. All integers are little endian.

    header (HEADER_BYTES)   magic, checksum of all that follows the checksum, bytes of the whole block, number of records,
                            offset of the first record, time of the first record in ns, numbers of sections, topics,
                            publishers and extras, microseconds from the first record to the last, bytes of blocks
                            that stand before this one in the same write
    sections                SECTION_FIELDS u32 each: microseconds since the first record, number of records, index of the
                            topic, index of the publisher, bytes of a payload, bytes of a record in the heap, index of the
                            extra + 1 or 0, flags (QoS | RETAIN << 2)
    sizes                   u32 each: topics; client id, user name and origin of each publisher; extras
    texts                   topics, then publishers, then extras, in the same order
    heap                    the records of all sections, one after the other

A section is one message, or several in succession that differ in nothing but their payloads' content. The payload is the end
of each record in the heap; before it stand the packet's headers where QoS 0 packets were kept as they were received.
An extra is a Message Expiry Interval in seconds (u32, NO_EXPIRY for none), then the encoded MQTT 5 properties that a server
forwards, without their length [MQTT5 3.3.2.3].
"""

# compiled with mypyc
from __future__ import annotations

import struct
import zlib
from array import array
from typing import Final, NamedTuple

from librt.strings import read_i32_le
from mypy_extensions import i64

MAGIC: Final = 0x424C4D47  # "GMLB"
HEADER: Final = struct.Struct("<IIIIQQIIIIII")
HEADER_BYTES: Final = 56
CHECKED_FROM: Final = 8  # the checksum is of the bytes from here on
SECTION_FIELDS: Final = 8
SECTION_BYTES: Final = 32
NO_EXPIRY: Final = 0xFFFFFFFF
DELTA_MICROSECONDS_MAX: Final = 0xFFFFFFFF  # some 71 minutes; a later record begins a new block
RETAIN_FLAG: Final = 4
NOBODY: Final = ("", "", "")


class BlockHeader(NamedTuple):
    """size      bytes of the whole block
    records      number of records; `offset` is that of the first, `time_ns` its wall time
    last_delta   microseconds from the first record to the last
    earlier      bytes of blocks before it in the same write: a crash may leave any part of that
    """

    checksum: int
    size: int
    records: int
    offset: int
    time_ns: int
    sections: int
    topics: int
    publishers: int
    extras: int
    last_delta: int
    earlier: int

    @property
    def end_offset(self) -> int:
        return self.offset + self.records

    @property
    def last_time_ns(self) -> int:
        return self.time_ns + self.last_delta * 1000


def read_header(data: bytes, at: int = 0) -> BlockHeader | None:
    """The header at data[at:]; None when it is not whole, or is none."""
    if len(data) - at < HEADER_BYTES:
        return None
    magic, *fields = HEADER.unpack_from(data, at)
    if magic != MAGIC:
        return None
    header = BlockHeader(*fields)
    return header if header.size >= HEADER_BYTES and header.records > 0 else None


def u32(data: bytes, at: i64) -> i64:
    """The number at data[at:]."""
    return i64(read_i32_le(data, at)) & 0xFFFFFFFF


def is_whole(data: bytes, at: int, header: BlockHeader) -> bool:
    """Return whether all bytes of the block at data[at:] are there and have its checksum."""
    end = at + header.size
    return len(data) >= end and zlib.crc32(memoryview(data)[at + CHECKED_FROM : end]) == header.checksum


def encode_extra(expiry: int, properties: bytes) -> bytes:
    """`expiry` in seconds, or NO_EXPIRY."""
    return expiry.to_bytes(4, "little") + properties


def encode_block(
    sections: bytes,
    sizes: bytes,
    texts: list[bytes],
    heap: bytes,
    counts: tuple[int, int, int],
    records: int,
    offset: int = 0,
    time_ns: int = 0,
    last_delta: int = 0,
    earlier: int = 0,
) -> tuple[bytes, bytes]:
    """Return what stands before the heap, and the heap. `counts`: of topics, publishers and extras. The other numbers
    are as in BlockHeader."""
    tables = b"".join([sections, sizes, *texts])
    header = HEADER.pack(
        MAGIC,
        0,
        HEADER_BYTES + len(tables) + len(heap),
        records,
        offset,
        time_ns,
        len(sections) // SECTION_BYTES,
        counts[0],
        counts[1],
        counts[2],
        last_delta,
        earlier,
    )
    checked = header[CHECKED_FROM:] + tables
    checksum = zlib.crc32(heap, zlib.crc32(checked))
    return header[:4] + checksum.to_bytes(4, "little") + checked, heap


class Block:
    """Records that are to become a block.

    records  their number
    size     bytes of the block
    time_ns  of the first record
    """

    def __init__(self) -> None:
        self.records = 0
        self.size = HEADER_BYTES
        self.time_ns = 0

    def take(self, offset: int) -> bytes:
        """The block, the first record of which gets `offset`. Called once."""
        return b"".join(self.take_parts(offset))

    def take_parts(self, offset: int, earlier: int = 0) -> tuple[bytes, bytes]:
        """As `take`: what stands before the heap, and the heap. `earlier` as in BlockHeader."""
        raise AssertionError("a subclass implements this")


class EncodedBlock(Block):
    """A block that has its offset, for another attempt to write it."""

    def __init__(self, records: int, start: bytes, heap: bytes) -> None:
        super().__init__()
        self.records = records
        self.size = len(start) + len(heap)
        self._start = start
        self._heap = heap

    def take_parts(self, offset: int, earlier: int = 0) -> tuple[bytes, bytes]:
        """As Block.take_parts, with the offset that it has."""
        return self._start, self._heap


class BlockBuilder(Block):
    """Collects records and encodes them as one block."""

    def __init__(self) -> None:
        super().__init__()
        self._clear()

    def _clear(self) -> None:
        self.records = 0
        self.size = HEADER_BYTES
        self.time_ns = 0
        self._sections: list[int] = []
        self._topics: dict[bytes, int] = {}
        self._publishers: dict[tuple[str, str, str], int] = {}
        self._extras: dict[bytes, int] = {}
        self._heap: list[bytes] = []
        # The last section, which the next records may go on with.
        self._count = 0
        self._delta = 0
        self._topic = b""
        self._topic_index = 0
        self._publisher = NOBODY
        self._publisher_index = 0
        self._payload_size = 0
        self._record_size = 0
        self._extra = b""
        self._flags = 0

    def takes(self, time_ns: int) -> bool:
        """Return whether a record of this time can be added to this block."""
        return self.records == 0 or (time_ns - self.time_ns) // 1000 <= DELTA_MICROSECONDS_MAX

    def add(
        self,
        topic: bytes,
        payload: bytes,
        flags: int,
        publisher: tuple[str, str, str],
        extra: bytes,
        time_ns: int,
    ) -> None:
        """Add one message. `publisher` is (client id, user name, origin), `extra` of `encode_extra` or b""."""
        size = len(payload)
        self._add(topic, payload, 1, size, size, flags, publisher, extra, time_ns)

    def add_run(
        self,
        topic: bytes,
        packets: bytes,
        count: int,
        payload_size: int,
        publisher: tuple[str, str, str],
        time_ns: int,
    ) -> None:
        """Add `count` contiguous PUBLISH packets of one topic and length: QoS 0, no RETAIN, no properties."""
        self._add(topic, packets, count, payload_size, len(packets) // count, 0, publisher, b"", time_ns)

    def _add(
        self,
        topic: bytes,
        data: bytes,
        count: int,
        payload_size: int,
        record_size: int,
        flags: int,
        publisher: tuple[str, str, str],
        extra: bytes,
        time_ns: int,
    ) -> None:
        if self.records == 0:
            self.time_ns = time_ns
        delta = (time_ns - self.time_ns) // 1000
        self._heap.append(data)
        self.records += count
        self.size += len(data)
        if (
            record_size == self._record_size
            and payload_size == self._payload_size
            and delta == self._delta
            and flags == self._flags
            and self._count > 0
            and topic == self._topic
            and extra == self._extra
            and (publisher is self._publisher or publisher == self._publisher)
        ):
            self._count += count
            return
        self._end_section()
        self.size += SECTION_BYTES
        self._count = count
        self._delta = delta
        self._payload_size = payload_size
        self._record_size = record_size
        self._flags = flags
        self._topic = topic
        topic_index = self._topics.get(topic)
        if topic_index is None:
            topic_index = self._topics[topic] = len(self._topics)
            self.size += 4 + len(topic)
        self._topic_index = topic_index
        self._publisher = publisher
        publisher_index = self._publishers.get(publisher)
        if publisher_index is None:
            publisher_index = self._publishers[publisher] = len(self._publishers)
            self.size += 12 + sum([len(name.encode()) for name in publisher])
        self._publisher_index = publisher_index
        self._extra = extra
        if extra and extra not in self._extras:
            self._extras[extra] = len(self._extras)
            self.size += 4 + len(extra)

    def _end_section(self) -> None:
        if self._count:
            extra = self._extras[self._extra] + 1 if self._extra else 0
            self._sections.extend(
                (
                    self._delta,
                    self._count,
                    self._topic_index,
                    self._publisher_index,
                    self._payload_size,
                    self._record_size,
                    extra,
                    self._flags,
                )
            )
            self._count = 0

    def close(self) -> None:
        """Join the heap: now, while its parts are in the processor's cache. No record comes any more."""
        if len(self._heap) > 1:
            self._heap = [b"".join(self._heap)]

    def take_parts(self, offset: int, earlier: int = 0) -> tuple[bytes, bytes]:
        """As Block.take_parts. The builder is empty afterwards."""
        self.close()
        self._end_section()
        heap = self._heap[0] if self._heap else b""
        texts = list(self._topics)
        sizes = [len(topic) for topic in texts]
        for names in self._publishers:
            for name in names:
                text = name.encode()
                sizes.append(len(text))
                texts.append(text)
        for extra in self._extras:
            sizes.append(len(extra))
            texts.append(extra)
        parts = encode_block(
            array("I", self._sections).tobytes(),
            array("I", sizes).tobytes(),
            texts,
            heap,
            (len(self._topics), len(self._publishers), len(self._extras)),
            self.records,
            offset,
            self.time_ns,
            self._delta,
            earlier,
        )
        self._clear()
        return parts
