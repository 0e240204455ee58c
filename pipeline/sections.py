"""Blocks of an event log (broker/event_log/block.py) as arrays: one entry a section, over all blocks of a response.

Only the search for blocks and their checksums take a Python step for each block; all else works on arrays. So a response of
many blocks with one record each is read about as fast as one large block.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from broker.event_log.block import CHECKED_FROM, HEADER_BYTES, MAGIC, SECTION_BYTES, SECTION_FIELDS

Integers = npt.NDArray[np.int64]

_BEGIN: Final = Struct("<III")  # magic, checksum, bytes of the block
_HEADER: Final = np.dtype(
    {
        "names": ["size", "records", "offset", "time_ns", "sections", "topics", "publishers", "extras"],
        "formats": ["<u4", "<u4", "<u8", "<u8", "<u4", "<u4", "<u4", "<u4"],
        "offsets": [8, 12, 16, 24, 32, 36, 40, 44],
        "itemsize": HEADER_BYTES,
    }
)
_PUBLISHER_TEXTS: Final = 3
_INT32_MAX: Final = 0x7FFFFFFF


class BlockFault(ValueError):
    """Bytes that should be blocks are none; the text says where."""


@dataclass(slots=True)
class Sections:
    """offset      of the first record
    time_ns     Unix nanoseconds of all records of the section
    count       number of records
    topic       index in `topics`; publisher, extra: in `publishers` (three texts each) and `extras`; extra is -1 for none
    at          position of the first record in the bytes that were read
    record_size, payload_size
                bytes of a record, and of the payload at its end
    flags       QoS | RETAIN << 2
    row_bytes   about what one record takes as a row
    """

    offset: Integers
    time_ns: Integers
    count: Integers
    topic: Integers
    publisher: Integers
    extra: Integers
    at: Integers
    record_size: Integers
    payload_size: Integers
    flags: Integers
    row_bytes: Integers
    topics: pa.BinaryArray
    publishers: pa.BinaryArray
    extras: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.offset)

    def keep(self, which: npt.NDArray[np.bool_]) -> None:
        """Leave out the other sections. The dictionaries stay whole."""
        if not which.all():
            for name in _COLUMNS:
                setattr(self, name, getattr(self, name)[which])

    def trim(self, start: int, end: int) -> None:
        """Leave out records outside of start <= offset < end."""
        first = np.maximum(self.offset, start)
        count = np.minimum(self.offset + self.count, end) - first
        self.at += (first - self.offset) * self.record_size
        self.offset = first
        self.count = count
        self.keep(count > 0)


_COLUMNS: Final = tuple(name for name in Sections.__slots__ if name not in ("topics", "publishers", "extras"))


def read_sections(data: bytes) -> Sections:
    """The sections of whole blocks in rising order of offsets. Raises BlockFault."""
    blocks = _block_positions(data)
    octets = np.frombuffer(data, np.uint8)
    headers = _gather(octets, blocks, HEADER_BYTES).view(_HEADER)[:, 0]
    offset, size, records = (headers[name].astype(np.int64) for name in ("offset", "size", "records"))
    time_ns, sections = (headers[name].astype(np.int64) for name in ("time_ns", "sections"))
    topics, publishers, extras = (headers[name].astype(np.int64) for name in ("topics", "publishers", "extras"))
    _check(offset, (sections > 0) & (records > 0), "has no sections")
    _check(offset[1:], offset[1:] >= offset[:-1] + records[:-1], "begins before the end of the block before")

    texts = topics + _PUBLISHER_TEXTS * publishers + extras
    texts_at = blocks + HEADER_BYTES + SECTION_BYTES * sections + 4 * texts  # the bytes of the first text
    _check(offset, texts_at <= blocks + size, "has more sections and texts than bytes")
    sizes = _gather(octets, spans(texts_at - 4 * texts, texts, 4), 4).view("<u4")[:, 0].astype(np.int64)
    before = _sums_before(sizes)
    first_text = _sums_before(texts)[:-1]
    text_at = before[:-1] + np.repeat(texts_at - before[first_text], texts)
    heap_at = texts_at + before[first_text + texts] - before[first_text]

    rows = _gather(octets, spans(blocks + HEADER_BYTES, sections, SECTION_BYTES), SECTION_BYTES)
    table = rows.view("<u4").astype(np.int64).reshape(-1, SECTION_FIELDS)
    delta, count, topic, publisher, payload_size, record_size, extra, flags = table.T
    block = np.repeat(np.arange(len(blocks)), sections)  # of each section
    first_section = _sums_before(sections)[:-1]
    records_before = _sums_before(count)
    heap_before = _sums_before(count * record_size)
    ends = first_section + sections
    _check(offset, records_before[ends] - records_before[first_section] == records, "has sections of other records")
    heap_end = heap_at + heap_before[ends] - heap_before[first_section]
    _check(offset, heap_end == blocks + size, "has sections of other bytes")
    is_right = (topic < topics[block]) & (publisher < publishers[block]) & (extra <= extras[block])
    _check(offset[block], is_right & (payload_size <= record_size) & (count > 0), "has a section of wrong numbers")

    def dictionary(first: Integers, counts: Integers) -> tuple[pa.BinaryArray, Integers]:
        which = spans(first, counts)
        return binary_at(data, text_at[which], sizes[which]), sizes[which]

    topic_texts, topic_sizes = dictionary(first_text, topics)
    publisher_texts, publisher_sizes = dictionary(first_text + topics, _PUBLISHER_TEXTS * publishers)
    extra_texts, extra_sizes = dictionary(first_text + texts - extras, extras)
    # Indices of a block become indices of all blocks.
    all_topic = topic + _sums_before(topics)[block]
    all_publisher = publisher + _sums_before(publishers)[block]
    all_extra = np.where(extra > 0, extra - 1 + _sums_before(extras)[block], -1)
    publisher_bytes = publisher_sizes.reshape(-1, _PUBLISHER_TEXTS).sum(axis=1)
    extra_bytes = np.append(extra_sizes, 0)  # the last one is that of -1
    return Sections(
        offset=offset[block] + records_before[:-1] - records_before[first_section][block],
        time_ns=time_ns[block] + delta * 1000,
        count=count,
        topic=all_topic,
        publisher=all_publisher,
        extra=all_extra,
        at=heap_at[block] + heap_before[:-1] - heap_before[first_section][block],
        record_size=record_size,
        payload_size=payload_size,
        flags=flags,
        row_bytes=payload_size + topic_sizes[all_topic] + publisher_bytes[all_publisher] + extra_bytes[all_extra],
        topics=topic_texts,
        publishers=publisher_texts,
        extras=extra_texts,
    )


def spans(starts: Integers, counts: Integers, step: int = 1) -> Integers:
    """start, start + step, … (`count` numbers) for each start, one after the other."""
    before = _sums_before(counts)
    found: Integers = np.repeat(starts - step * before[:-1], counts) + step * np.arange(before[-1])
    return found


def binary_at(data: bytes, starts: Integers, sizes: Integers) -> pa.BinaryArray:
    """data[start : start + size] for each start; they follow each other without overlap."""
    if len(starts) == 0:
        return pa.array([], pa.binary())
    base = int(starts[0])
    bounds = np.empty(2 * len(starts), np.int64)  # pieces and what lies between them, as one array
    bounds[0::2] = starts - base
    bounds[1::2] = bounds[0::2] + sizes
    is_large = bounds[-1] > _INT32_MAX
    offsets = pa.py_buffer(bounds if is_large else bounds.astype(np.int32))
    kind = pa.large_binary() if is_large else pa.binary()
    pieces = pa.Array.from_buffers(kind, len(bounds) - 1, [None, offsets, pa.py_buffer(data).slice(base)])
    return pieces.take(pa.array(np.arange(0, len(bounds), 2))).cast(pa.binary())


def _block_positions(data: bytes) -> Integers:
    """Return where blocks begin. Raises BlockFault unless they are whole and have their checksums."""
    positions = []
    view = memoryview(data)
    at = 0
    end = len(data)
    while at < end:
        if end - at < HEADER_BYTES:
            raise BlockFault(f"{end - at} bytes after the last whole block")
        magic, checksum, size = _BEGIN.unpack_from(data, at)
        if magic != MAGIC or size < HEADER_BYTES:
            raise BlockFault(f"byte {at} of {end} begins no block")
        following = at + size
        if following > end:
            raise BlockFault(f"a block of {size} bytes of which {end - at} are there")
        if zlib.crc32(view[at + CHECKED_FROM : following]) != checksum:
            raise BlockFault(f"the block at byte {at} of {end} has another checksum")
        positions.append(at)
        at = following
    return np.array(positions, np.int64)


def _gather(octets: npt.NDArray[np.uint8], starts: Integers, size: int) -> npt.NDArray[np.uint8]:
    """octets[start : start + size] as a row for each start."""
    rows: npt.NDArray[np.uint8] = octets[starts[:, None] + np.arange(size)]
    return rows


def _sums_before(numbers: Integers) -> Integers:
    """0, numbers[0], numbers[0] + numbers[1], …: one entry more than numbers."""
    return np.concatenate(([0], np.cumsum(numbers, dtype=np.int64)))


def _check(offsets: Integers, is_right: npt.NDArray[np.bool_], fault: str) -> None:
    if not is_right.all():
        raise BlockFault(f"the block of offset {offsets[int(np.argmin(is_right))]} {fault}")
