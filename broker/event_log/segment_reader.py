"""Reads a segment's file for a reader of the log, in a thread of its own. Only bytes that were written before the call."""

# not a core: reads and writes files
from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from broker.event_log.appender import BLOCK_BYTES
from broker.event_log.block import HEADER_BYTES, is_whole, read_header
from broker.event_log.index import Segment
from broker.event_log.reading import DamagedBlock, offset_at, pick_blocks
from broker.event_log.selection import Selection

PIECE_BYTES: Final = BLOCK_BYTES + 2**17  # of a segment that is read at once; most full blocks are whole in it
SCANNED_BYTES_MAX: Final = 64 * 2**20  # that one read looks at for the blocks of its topics


class SegmentRead:
    """The blocks of records start..end - 1 that fit in `room`, at least one; piece by piece.

    blocks       what was found so far; neighbours may be one
    next_offset  to go on at
    """

    def __init__(self, path: Path, segment: Segment, start: int, end: int, room: int, topics: Selection | None) -> None:
        """Reads what the segment has now."""
        self.blocks: list[memoryview] = []
        self.next_offset = max(start, segment.first_offset)
        self._path = path
        self._end = end
        self._room = room
        self._topics = topics
        self._position = segment.position_of(start)
        self._size = segment.size
        self._stops_at = min(segment.size, self._position + SCANNED_BYTES_MAX)
        self._wanted = 0  # bytes of the next block, when the last piece did not have all of it

    def read_piece(self) -> bool:
        """Read on. Returns whether there is more to read. Raises DamagedBlock, OSError."""
        if self._position >= self._stops_at:  # a segment without a record, behind missing ones
            return False
        left = self._size - self._position
        with self._path.open("rb", buffering=0) as file:
            piece = os.pread(file.fileno(), min(max(PIECE_BYTES, self._wanted + HEADER_BYTES), left), self._position)
        picked = pick_blocks(piece, self.next_offset, self._end, self._room, not self.blocks, self._topics)
        if not picked.used and not picked.done and (picked.wanted > left or picked.wanted <= len(piece)):
            raise DamagedBlock(f"the block at {self._position} is not complete")
        view = memoryview(piece)
        for at, to in picked.parts:
            # A view keeps all of the piece.
            is_most = 2 * (to - at) > len(piece)
            self.blocks.append(view[at:to] if is_most else memoryview(piece[at:to]))
        self._room -= picked.size
        self._position += picked.used
        self._wanted = picked.wanted
        self.next_offset = max(self.next_offset, picked.next_offset)
        return not picked.done and self._position < self._stops_at


def find_offset(path: Path, segment: Segment, size: int, time_ns: int) -> int:
    """Offset of the first record of this time or later; the segment's end offset for none. Raises DamagedBlock, OSError."""
    position = segment.position_at(time_ns)
    with path.open("rb", buffering=0) as file:
        while position < size:
            header = read_header(os.pread(file.fileno(), HEADER_BYTES, position))
            if header is None:
                raise DamagedBlock(f"no block begins at {position}")
            block = os.pread(file.fileno(), header.size, position)
            if not is_whole(block, 0, header):
                raise DamagedBlock(f"the block at {position} does not have its checksum")
            if header.last_time_ns >= time_ns:
                return offset_at(block, 0, header, time_ns)
            position += header.size
    return segment.end_offset
