"""Selects the blocks of a piece of a segment that answer a read, and the first record of an instant."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.event_log.block import HEADER_BYTES, SECTION_FIELDS, BlockHeader, is_whole, read_header
from broker.event_log.records import has_topic, section_fields
from broker.event_log.selection import Selection

BLOCKS_AT_ONCE: Final = 250  # that are looked at, some 0.1 ms


class DamagedBlock(Exception):
    """The bytes are not the blocks that the index says."""


class Picked:
    """parts        (start, end) of the blocks that answer, in the piece; neighbours are joined
    size         bytes of them
    used         bytes of the piece that were looked at: whole blocks
    next_offset  behind the last block that was looked at
    done         nothing more is to be read: the end offset was reached, or the answer is full
    wanted       bytes of the next block where it is not whole in the piece, else 0
    """

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.parts: list[tuple[int, int]] = []
        self.size = 0
        self.used = 0
        self.done = False
        self.wanted = 0


def pick_blocks(picked: Picked, piece: bytes, end: int, room: int, is_first: bool, topics: Selection | None) -> bool:
    """Add blocks of a piece with records before `end` and a topic of `topics`; None stands for all. Returns whether to go on:
    it stops behind BLOCKS_AT_ONCE.

    picked    at first for an offset in the first block of the piece, or behind it
    room      blocks are added while they fit in so many bytes
    is_first  the first block is added whatever its size
    Raises DamagedBlock.
    """
    start = picked.next_offset
    looked = 0
    while len(piece) - picked.used >= HEADER_BYTES:
        if looked == BLOCKS_AT_ONCE:
            return True
        looked += 1
        at = picked.used
        header = read_header(piece, at)
        if header is None:
            raise DamagedBlock(f"no block begins {at} bytes into the piece")
        if header.offset > picked.next_offset and picked.next_offset < end:
            raise DamagedBlock(f"a block of offset {header.offset} stands where {picked.next_offset} should be")
        if header.offset >= end:
            picked.done = True
            break
        if picked.size + header.size > room and (picked.size or not is_first):
            picked.done = True  # before it is read: also where it would be left out
            break
        if at + header.size > len(piece):
            picked.wanted = header.size
            break
        # Also of a block that is left out: where the next one begins, and whether this is to be left out, is in its header.
        if not is_whole(piece, at, header):
            raise DamagedBlock(f"the block of offset {header.offset} does not have its checksum")
        if header.end_offset > start:
            if topics is None or has_topic(piece, at, header, topics):
                if picked.parts and picked.parts[-1][1] == at:
                    picked.parts[-1] = picked.parts[-1][0], at + header.size
                else:
                    picked.parts.append((at, at + header.size))
                picked.size += header.size
            picked.next_offset = header.end_offset
        picked.used = at + header.size
    return False


def record_at(piece: bytes, at: int, header: BlockHeader, time_ns: int) -> tuple[int, int]:
    """(offset, time in ns) of the first record of a whole block with this time or a later one; the block's end offset and 0 for
    none."""
    offset = header.offset
    sections = section_fields(piece, at, header)
    for number in range(0, len(sections), SECTION_FIELDS):
        found_ns = header.time_ns + sections[number] * 1000
        if found_ns >= time_ns:
            return offset, found_ns
        offset += sections[number + 1]
    return offset, 0
