"""Reads a segment's file for a reader of the log, in a thread of its own. Only bytes that were written before the call."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from broker.event_log.block import HEADER_BYTES, is_whole, read_header
from broker.event_log.index import Segment
from broker.event_log.reading import DamagedBlock, offset_at, pick_blocks
from broker.event_log.selection import Selection

PIECE_BYTES: Final = 2**20  # of a segment that is read at once
SCANNED_BYTES_MAX: Final = 64 * 2**20  # that one read looks at for the blocks of its topics


def read_blocks(
    path: Path, segment: Segment, size: int, start: int, end: int, room: int, topics: Selection | None
) -> tuple[bytes, int]:
    """The blocks of records start..end - 1 that fit in `room`, at least one, and the offset to go on at.

    size  bytes of the segment at the call. Raises DamagedBlock, OSError
    """
    position = segment.position_of(start)
    scanned_end = position + SCANNED_BYTES_MAX
    start = max(start, segment.first_offset)
    parts: list[bytes] = []
    taken = wanted = 0
    with path.open("rb", buffering=0) as file:
        while position < min(size, scanned_end):
            piece = os.pread(file.fileno(), min(max(PIECE_BYTES, wanted), size - position), position)
            picked = pick_blocks(piece, start, end, room - taken, not taken, topics)
            parts += [piece[at:to] for at, to in picked.parts]
            taken += picked.size
            position += picked.used
            start = max(start, picked.next_offset)
            if picked.done:
                break
            if not picked.used and (picked.wanted > size - position or picked.wanted <= len(piece)):
                raise DamagedBlock(f"the block at {position} is not complete")
            wanted = picked.wanted
    return b"".join(parts), start


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
