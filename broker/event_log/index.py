"""The sparse index of a segment, and the file of it beside a sealed segment.

An entry is the offset, the time and the position of a block, one for each INDEX_BYTES of the segment. The file is derived
from the segment. It begins with a summary of the segment, so that a start need not read sealed segments:

    magic, checksum of all that follows the checksum; version, number of entries; first offset, end offset; time of the
    first and of the last record in ns; bytes of the segment; then the entries: offsets, times, positions, u64 each
"""

from __future__ import annotations

import struct
import zlib
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Final

from broker.event_log.block import BlockHeader

INDEX_BYTES: Final = 128 * 1024
INDEX_MAGIC: Final = 0x494C4D47  # "GMLI"
INDEX_VERSION: Final = 1
INDEX_HEADER: Final = struct.Struct("<IIIIQQQQQ")
CHECKED_FROM: Final = 8
ENTRY_BYTES: Final = 24


@dataclass(slots=True)
class Segment:
    """A segment as readers and the retention see it.

    first_offset  of its first record, which also names its file
    end_offset    of its last record, plus 1; equal to first_offset while it is empty
    first_time_ns, last_time_ns  of its first and last record; both are the time before it while it is empty
    size          bytes that may be read
    """

    first_offset: int
    end_offset: int
    first_time_ns: int
    last_time_ns: int
    size: int
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    times: array[int] = field(default_factory=lambda: array("Q"))
    positions: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, header: BlockHeader) -> None:
        """The block was added at the end."""
        positions = self.positions
        if not positions or self.size - positions[-1] >= INDEX_BYTES:
            self.offsets.append(header.offset)
            self.times.append(header.time_ns)
            positions.append(self.size)
        if self.end_offset == self.first_offset:
            self.first_time_ns = header.time_ns
        self.end_offset = header.end_offset
        self.last_time_ns = header.last_time_ns
        self.size += header.size

    def position_of(self, offset: int) -> int:
        """Return where to begin to look for a record."""
        return self._position(bisect_right(self.offsets, offset) - 1)

    def position_at(self, time_ns: int) -> int:
        """Return where to begin to look for the first record of a time or later."""
        return self._position(bisect_left(self.times, time_ns) - 1)

    def _position(self, entry: int) -> int:
        """The first block of a segment always has an entry."""
        return self.positions[max(entry, 0)] if self.positions else self.size


def encode_index(segment: Segment) -> bytes:
    """The index file of a sealed segment."""
    entries = segment.offsets.tobytes() + segment.times.tobytes() + segment.positions.tobytes()
    header = INDEX_HEADER.pack(
        INDEX_MAGIC,
        0,
        INDEX_VERSION,
        len(segment.offsets),
        segment.first_offset,
        segment.end_offset,
        segment.first_time_ns,
        segment.last_time_ns,
        segment.size,
    )
    checked = header[CHECKED_FROM:] + entries
    return header[:4] + zlib.crc32(checked).to_bytes(4, "little") + checked


def decode_index(data: bytes) -> Segment | None:
    """The segment that an index file describes; None when the file is damaged, or of another version."""
    if len(data) < INDEX_HEADER.size:
        return None
    magic, checksum, version, count, *summary = INDEX_HEADER.unpack_from(data)
    if (magic, version) != (INDEX_MAGIC, INDEX_VERSION) or len(data) != INDEX_HEADER.size + count * ENTRY_BYTES:
        return None
    if zlib.crc32(memoryview(data)[CHECKED_FROM:]) != checksum:
        return None
    segment = Segment(*summary)
    at = INDEX_HEADER.size
    for entries in (segment.offsets, segment.times, segment.positions):
        entries.frombytes(data[at : at + count * 8])
        at += count * 8
    return segment
