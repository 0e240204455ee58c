"""Segments: the header of the file, its name, and the scan that tells what of it is whole.

The file of a segment is its header, then blocks (broker/event_log/block.py) with rising offsets:

    magic, checksum of all that follows the checksum; version u16, bytes of the node's name u16, first offset u64, log id
    (16 bytes), the node's name
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import Enum
from typing import Final

from broker.event_log.block import HEADER_BYTES, MAGIC, is_whole, read_header
from broker.event_log.index import Segment

SEGMENT_MAGIC: Final = 0x534C4D47  # "GMLS"
SEGMENT_VERSION: Final = 1
SEGMENT_HEADER: Final = struct.Struct("<IIHHQ16s")
SEGMENT_HEADER_BYTES_MAX: Final = SEGMENT_HEADER.size + 1024
CHECKED_FROM: Final = 8
SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
DIGITS: Final = 20
CHECKED_TIMES: Final = 16  # that all bytes behind a fault are looked at for blocks of a later write, at most
BLOCK_MAGIC: Final = MAGIC.to_bytes(4, "little")


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """log_id  of the log when the segment was begun"""

    first_offset: int
    log_id: bytes
    node: str

    def encode(self) -> bytes:
        node = self.node.encode()
        fixed = SEGMENT_HEADER.pack(SEGMENT_MAGIC, 0, SEGMENT_VERSION, len(node), self.first_offset, self.log_id)
        checked = fixed[CHECKED_FROM:] + node
        return fixed[:4] + zlib.crc32(checked).to_bytes(4, "little") + checked


def decode_segment_header(data: bytes) -> tuple[SegmentHeader, int] | None:
    """The header at the begin of a segment's bytes, and its size; None when it is damaged or of another version."""
    if len(data) < SEGMENT_HEADER.size:
        return None
    magic, checksum, version, node_size, first_offset, log_id = SEGMENT_HEADER.unpack_from(data)
    size = SEGMENT_HEADER.size + node_size
    if magic != SEGMENT_MAGIC or version != SEGMENT_VERSION or len(data) < size:
        return None
    if zlib.crc32(memoryview(data)[CHECKED_FROM:size]) != checksum:
        return None
    try:
        node = data[SEGMENT_HEADER.size : size].decode()
    except UnicodeDecodeError:
        return None
    return SegmentHeader(first_offset, log_id, node), size


def segment_name(first_offset: int) -> str:
    return f"{first_offset:0{DIGITS}}{SUFFIX}"


def index_name(first_offset: int) -> str:
    return f"{first_offset:0{DIGITS}}{INDEX_SUFFIX}"


def offset_of_name(name: str) -> int | None:
    """The first offset that a segment's file name says; None for any other name."""
    digits = name.removesuffix(SUFFIX)
    return int(digits) if len(digits) == DIGITS and digits.isascii() and digits.isdigit() and name != digits else None


class Verdict(Enum):
    """WHOLE    all bytes belong to whole blocks
    TORN     the last write did not get to disk as a whole: no whole block of a later write follows the fault
    DAMAGED  the header, or a block that a later write follows: it was whole once
    """

    WHOLE = "whole"
    TORN = "torn"
    DAMAGED = "damaged"


class Scan:
    """Reads the bytes of a segment, in any portions, from the begin of the file.

    segment  what was found so far; its `size` ends with the last whole block
    fault    what is wrong behind it; "" for nothing
    wanted   bytes that the next block lacks; 0 while its size is not known
    """

    def __init__(self, first_offset: int, time_ns: int) -> None:
        """`time_ns` is that of the record before the segment: time does not step back."""
        self.segment = Segment(first_offset, first_offset, time_ns, time_ns, 0)
        self.header: SegmentHeader | None = None
        self.fault = ""
        self.wanted = 0
        self._rest = b""

    def receive_data(self, data: bytes) -> None:
        """The next bytes of the file."""
        data = self._rest + data if self._rest else data
        at = 0
        if not self.fault and self.header is None:
            if len(data) < SEGMENT_HEADER_BYTES_MAX:  # decoded at the end if the file is shorter
                self._rest = data
                return
            at = self._receive_header(data)
        self._rest = data[self._receive_blocks(data, at) :]

    def finish(self) -> Verdict:
        """The end of the file. Sets `fault`."""
        data = self._rest
        at = 0
        if not self.fault and self.header is None:
            at = self._receive_header(data)
        at = self._receive_blocks(data, at)
        if self.header is None:
            return Verdict.DAMAGED
        if at == len(data):
            return Verdict.WHOLE
        if not self.fault:
            self.fault = f"the block at {self.segment.size} is not complete"
        return Verdict.DAMAGED if self._later_write_follows(data, at) else Verdict.TORN

    def _receive_header(self, data: bytes) -> int:
        found = decode_segment_header(data)
        if found is None:
            self.fault = "the header of the segment is damaged"
            return 0
        header, size = found
        if header.first_offset != self.segment.first_offset:
            self.fault = (
                f"the header says first offset {header.first_offset}, the file's name {self.segment.first_offset}"
            )
            return 0
        self.header = header
        self.segment.size = size
        return size

    def _receive_blocks(self, data: bytes, at: int) -> int:
        """Add the whole blocks from data[at:] on. Returns the position behind them."""
        segment = self.segment
        self.wanted = 0
        while not self.fault and len(data) - at >= HEADER_BYTES:
            header = read_header(data, at)
            if header is None:
                self.fault = f"no block begins at {segment.size}"
            elif at + header.size > len(data):
                self.wanted = at + header.size - len(data)
                break
            elif not is_whole(data, at, header):
                self.fault = f"the block at {segment.size} does not have its checksum"
            elif header.offset != segment.end_offset:
                self.fault = f"the block at {segment.size} has offset {header.offset}, expected {segment.end_offset}"
            else:
                segment.add(header)
                at += header.size
        return at

    def _later_write_follows(self, data: bytes, fault: int) -> bool:
        """Return whether a whole block of a later write stands in data[fault:], or one with a wrong offset at its
        begin. The blocks of one write get to disk in any order.

        Payloads may have the form of blocks, and be so many that their checksums would hold up the start: then it is said of
        them, too, that they were whole once."""
        at = fault
        left = CHECKED_TIMES * len(data)
        while (at := data.find(BLOCK_MAGIC, at)) >= 0:
            header = read_header(data, at)
            left -= 0 if header is None else min(header.size, len(data) - at)
            if left < 0:
                return True
            if header is not None and is_whole(data, at, header) and header.offset >= self.segment.end_offset:
                if at == fault or at - header.earlier > fault:
                    return True
            at += 1
        return False
