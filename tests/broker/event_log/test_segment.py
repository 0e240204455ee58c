"""Segments: header, names, and the verdict on what a scan finds."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.event_log.block import HEADER_BYTES, BlockBuilder
from broker.event_log.segment import (
    Scan,
    SegmentHeader,
    Verdict,
    decode_segment_header,
    index_name,
    offset_of_name,
    segment_name,
)

FIRST = 100
BEGIN = 1_700_000_000_000_000_000
HEADER = SegmentHeader(FIRST, uuid.UUID(int=5).bytes, "node-ü")


def block(offset: int, payload: bytes, records: int = 1) -> bytes:
    builder = BlockBuilder()
    for _ in range(records):
        builder.add(b"t", payload, 0, ("", "", ""), b"", BEGIN + offset)
    return builder.take(offset)


BLOCKS = [block(100, b"one", 3), block(103, b"two" * 1000), block(104, b"three", 2)]
ENDS = [len(HEADER.encode()) + sum(map(len, BLOCKS[:count])) for count in range(4)]
WHOLE = HEADER.encode() + b"".join(BLOCKS)


def scanned(data: bytes, piece: int = 2**20) -> tuple[Verdict, Scan]:
    scan = Scan(FIRST, 0)
    for at in range(0, len(data), piece):
        scan.receive_data(data[at : at + piece])
    return scan.finish(), scan


def test_the_header_comes_back() -> None:
    assert decode_segment_header(WHOLE) == (HEADER, len(HEADER.encode()))
    for at in range(len(HEADER.encode())):
        damaged = bytearray(WHOLE)
        damaged[at] ^= 1
        assert decode_segment_header(bytes(damaged)) is None
        assert decode_segment_header(WHOLE[:at]) is None


def test_names() -> None:
    assert segment_name(5) == "00000000000000000005.log"
    assert index_name(5) == "00000000000000000005.index"
    assert offset_of_name(segment_name(2**63)) == 2**63
    for name in ("log", "5.log", "00000000000000000005.index", "0000000000000000000x.log", "00000000000000000005"):
        assert offset_of_name(name) is None


@given(st.integers(1, len(WHOLE)))
def test_the_pieces_do_not_matter(piece: int) -> None:
    verdict, scan = scanned(WHOLE, piece)
    assert (verdict, scan.fault) == (Verdict.WHOLE, "")
    assert (scan.segment.end_offset, scan.segment.size, scan.header) == (106, len(WHOLE), HEADER)
    assert scan.segment.first_time_ns == BEGIN + 100
    assert scan.segment.last_time_ns == BEGIN + 104


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]


# Headers of blocks without their checksum, each of which has all that follows.
BLOCKS_IN_BLOCKS = b"".join(
    b"GMLB" + struct.pack("<II", 0, HEADER_BYTES * count) + b"\1" * (HEADER_BYTES - 12) for count in range(100, 0, -1)
)

DAMAGES: dict[str, tuple[Callable[[bytes], bytes], Verdict, int]] = {
    "nothing": (lambda data: data, Verdict.WHOLE, 3),
    "no block": (lambda data: data[: ENDS[0]], Verdict.WHOLE, 0),
    "the last byte is missing": (lambda data: data[:-1], Verdict.TORN, 2),
    "only a part of the last header": (lambda data: data[: ENDS[2] + HEADER_BYTES - 1], Verdict.TORN, 2),
    "one byte of the last block": (lambda data: data[: ENDS[2] + 1], Verdict.TORN, 2),
    "the last block is zeros": (lambda data: data[: ENDS[2]] + bytes(len(BLOCKS[2])), Verdict.TORN, 2),
    "zeros in the last block": (lambda data: data[:-20] + bytes(20), Verdict.TORN, 2),
    "a changed byte in the last block": (flipped(len(WHOLE) - 1), Verdict.TORN, 2),
    "a changed byte in the second block": (flipped(ENDS[1] + 500), Verdict.DAMAGED, 1),
    "a changed magic in the first block": (flipped(ENDS[0]), Verdict.DAMAGED, 0),
    "a changed size in the first block": (flipped(ENDS[0] + 9), Verdict.DAMAGED, 0),
    "a huge size in the second block": (flipped(ENDS[1] + 11), Verdict.DAMAGED, 1),
    "a missing block": (lambda data: data[: ENDS[1]] + data[ENDS[2] :], Verdict.DAMAGED, 1),
    "a block twice": (lambda data: data + data[ENDS[2] :], Verdict.TORN, 3),
    "bytes behind the last block": (lambda data: data + b"\0" * 4096, Verdict.TORN, 3),
    "payloads behind the last block have the form of blocks": (
        lambda data: data + b"x" + BLOCKS_IN_BLOCKS,
        Verdict.DAMAGED,
        3,
    ),
    "a changed header": (flipped(10), Verdict.DAMAGED, 0),
    "an empty file": (lambda data: b"", Verdict.DAMAGED, 0),
    "half a header": (lambda data: data[:20], Verdict.DAMAGED, 0),
}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("piece", [7, 1000, 2**20])
def test_verdicts(name: str, piece: int) -> None:
    damage, expected, blocks = DAMAGES[name]
    verdict, scan = scanned(damage(WHOLE), piece)
    assert verdict is expected
    assert bool(scan.fault) == (verdict is not Verdict.WHOLE)
    if scan.header is not None:
        assert scan.segment.size == ENDS[blocks], "up to the last whole block"


@given(st.integers(ENDS[0], len(WHOLE)))
def test_any_cut_is_torn_behind_the_last_whole_block(size: int) -> None:
    verdict, scan = scanned(WHOLE[:size])
    whole = [end for end in ENDS if end <= size]
    assert scan.segment.size == whole[-1]
    assert verdict is (Verdict.WHOLE if size == whole[-1] else Verdict.TORN)


def test_a_file_under_the_name_of_another() -> None:
    scan = Scan(FIRST + 1, 0)
    scan.receive_data(WHOLE)
    assert scan.finish() is Verdict.DAMAGED
    assert scan.fault == "the header says first offset 100, the file's name 101"


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_any_part_of_the_last_write_may_be_missing(lost: int) -> None:
    """The blocks of one write get to disk in any order; a write that was done before is whole."""
    builder = BlockBuilder()
    parts = [HEADER.encode(), block(100, b"done before")]
    earlier = 0
    for offset in (101, 102, 103):
        builder.add(b"t", b"payload" * 100, 0, ("", "", ""), b"", BEGIN)
        parts.append(b"".join(builder.take_parts(offset, earlier)))
        earlier += len(parts[-1])
    whole = b"".join(parts)
    assert scanned(whole)[0] is Verdict.WHOLE
    parts[1 + lost] = bytes(len(parts[1 + lost]))
    verdict, scan = scanned(b"".join(parts))
    assert (verdict, scan.segment.end_offset) == (Verdict.TORN, 100 + lost)
    later = block(104, b"a later write")
    assert scanned(b"".join(parts) + later)[0] is Verdict.DAMAGED
