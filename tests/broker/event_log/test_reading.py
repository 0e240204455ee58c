"""Which blocks of a piece answer a read, beside a list of blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.event_log.block import BlockBuilder, read_header
from broker.event_log.reading import DamagedBlock, Picked, pick_blocks, record_at
from broker.event_log.selection import Selection

BEGIN = 1_700_000_000_000_000_000


def block(offset: int, topics: list[bytes], payload: bytes = b"") -> bytes:
    """One record of each topic, a microsecond apart."""
    builder = BlockBuilder()
    for number, topic in enumerate(topics):
        builder.add(topic, payload, 0, ("c", "u", ""), b"", BEGIN + 1000 * number)
    return builder.take(offset)


def picked_of(piece: bytes, start: int, end: int, room: int, topics: Selection | None) -> Picked:
    picked = Picked(start)
    while pick_blocks(picked, piece, end, room, True, topics):
        pass
    return picked


@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from([b"a", b"b", b"c/d"]), min_size=1, max_size=4), st.integers(0, 300)),
        max_size=12,
    ),
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(0, 2000),
    st.sampled_from([None, (b"a",), (b"b", b"c/#"), (b"x",)]),
    st.integers(0, 5000),
)
def test_blocks_are_picked_as_from_a_list(
    shapes: list[tuple[list[bytes], int]],
    start: int,
    end: int,
    room: int,
    filters: tuple[bytes, ...] | None,
    piece_size: int,
) -> None:
    blocks = []
    offset = 0
    for topics, size in shapes:
        blocks.append((offset, offset + len(topics), topics, block(offset, topics, bytes(size))))
        offset += len(topics)
    piece = b"".join(data for *_, data in blocks)[:piece_size]
    picked = picked_of(piece, start, end, room, None if filters is None else Selection(filters))

    expected: list[bytes] = []
    next_offset, at, done = start, 0, False
    for first, last, topics, data in blocks:
        if len(piece) - at < 56:
            break
        if first >= end or (expected and sum(map(len, expected)) + len(data) > room):
            done = True
            break
        if at + len(data) > len(piece):
            break
        if last > start:
            if filters is None or any(
                topic in topics for topic in (b"a", b"b", b"c/d") if Selection(filters).has(topic)
            ):
                expected.append(data)
            next_offset = last
        at += len(data)
    assert b"".join(piece[first:last] for first, last in picked.parts) == b"".join(expected)
    assert (picked.next_offset, picked.used, picked.done) == (next_offset, at, done)
    assert picked.size == sum(map(len, expected))


def test_a_block_that_is_not_whole_in_the_piece_is_wanted() -> None:
    one, two = block(0, [b"a"]), block(1, [b"b"], bytes(500))
    picked = picked_of(one + two[:-1], 0, 2, 10_000, None)
    assert (picked.used, picked.wanted, picked.done) == (len(one), len(two), False)


def test_damage_is_noticed() -> None:
    data = bytearray(block(0, [b"a"], b"payload"))
    data[-1] ^= 1
    with pytest.raises(DamagedBlock, match="the block of offset 0 does not have its checksum"):
        picked_of(bytes(data), 0, 1, 1000, None)
    with pytest.raises(DamagedBlock, match="no block begins 0 bytes into the piece"):
        picked_of(bytes(100), 0, 1, 1000, None)


@pytest.mark.parametrize("changed", range(8, 52))
@pytest.mark.parametrize("start", [0, 1, 2])
def test_a_changed_header_is_noticed_or_does_not_matter(changed: int, start: int) -> None:
    """Nothing is left out, and a read moves on, whatever a header says."""
    blocks = [block(offset, [b"a"], b"payload") for offset in range(3)]
    for flipped in (1, 0x80):
        data = bytearray(b"".join(blocks))
        data[len(blocks[0]) + changed] ^= flipped
        try:
            picked = picked_of(bytes(data), start, 3, 10_000, None)
            if picked.done and picked.size:  # the answer is full; the next read begins there
                del data[: picked.used]
                picked = picked_of(bytes(data), picked.next_offset, 3, 10_000, None)
        except DamagedBlock:
            continue
        assert picked.wanted > len(data) - picked.used, "no block of this size is there: the reader knows the damage"


def test_the_first_record_of_an_instant() -> None:
    builder = BlockBuilder()
    builder.add(b"t", b"", 0, ("", "", ""), b"", BEGIN)
    builder.add_run(b"t", b"\x30\x04\x00\x01ta" * 3, 3, 1, ("", "", ""), BEGIN + 5000)
    builder.add(b"t", b"", 0, ("", "", ""), b"", BEGIN + 5000)
    builder.add(b"t", b"", 0, ("", "", ""), b"", BEGIN + 9000)
    data = builder.take(70)
    header = read_header(data)
    assert header is not None
    first, run, last, none = (70, BEGIN), (71, BEGIN + 5000), (75, BEGIN + 9000), (76, 0)
    expected = {-1: first, 0: first, 1: run, 5000: run, 5001: last, 9000: last, 9001: none}
    assert {passed: record_at(data, 0, header, BEGIN + passed) for passed in expected} == expected
