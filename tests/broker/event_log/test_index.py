"""The sparse index: where to begin, and that no damaged index file is believed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.event_log.block import BlockHeader
from broker.event_log.index import INDEX_BYTES, Segment, decode_index, encode_index

HEADER_BYTES = 50
BEGIN = 10**18

# Of each block: bytes, records, microseconds from its first to its last record and from there to the next block.
BLOCKS = st.lists(
    st.tuples(st.integers(100, INDEX_BYTES), st.integers(1, 100), st.integers(0, 1000), st.integers(0, 1000)),
    max_size=40,
)


def made(blocks: list[tuple[int, int, int, int]]) -> tuple[Segment, list[tuple[int, BlockHeader]]]:
    """A segment of such blocks, and each with its position."""
    segment = Segment(7, 7, BEGIN, BEGIN, HEADER_BYTES)
    placed = []
    time_ns = BEGIN
    for size, records, inside, after in blocks:
        header = BlockHeader(0, size, records, segment.end_offset, time_ns, 1, 1, 1, 0, inside, 0)
        placed.append((segment.size, header))
        segment.add(header)
        time_ns += (inside + after) * 1000
    return segment, placed


@given(BLOCKS)
def test_the_search_begins_at_or_before_the_block(blocks: list[tuple[int, int, int, int]]) -> None:
    segment, placed = made(blocks)
    for position, header in placed:
        for offset in (header.offset, header.end_offset - 1):
            found = segment.position_of(offset)
            assert found <= position
            assert position - found < 2 * INDEX_BYTES
            assert found in [other for other, _ in placed]
        # The first block with a record of that time or later is not before the place where the search begins.
        first = next(place for place, other in placed if other.last_time_ns >= header.last_time_ns)
        assert segment.position_at(header.last_time_ns) <= first


@given(BLOCKS)
def test_the_file_comes_back(blocks: list[tuple[int, int, int, int]]) -> None:
    segment, _ = made(blocks)
    assert decode_index(encode_index(segment)) == segment


@given(BLOCKS, st.data())
def test_a_damaged_file_is_none(blocks: list[tuple[int, int, int, int]], data: st.DataObject) -> None:
    encoded = bytearray(encode_index(made(blocks)[0]))
    at = data.draw(st.integers(0, len(encoded) - 1))
    if data.draw(st.booleans()):
        encoded[at] ^= data.draw(st.integers(1, 255))
    else:
        del encoded[at:]
    assert decode_index(bytes(encoded)) is None
