"""Blocks of the event log: what the header says, and that every damaged byte is noticed."""

from __future__ import annotations

import pytest

from broker.event_log.block import (
    DELTA_MICROSECONDS_MAX,
    HEADER_BYTES,
    SECTION_BYTES,
    BlockBuilder,
    encode_extra,
    is_whole,
    read_header,
)

TIME = 1_700_000_000_000_000_000
PUBLISHER = ("client", "user", "")


def a_block() -> bytes:
    builder = BlockBuilder()
    builder.add(b"a/b", b"payload", 1, PUBLISHER, b"", TIME)
    builder.add_run(b"a/b", b"\x30\x08\x00\x03a/bone\x30\x08\x00\x03a/btwo", 2, 3, PUBLISHER, TIME + 5_000)
    builder.add(b"c", b"", 5, ("other", "", "upstream"), encode_extra(60, b"\x01\x01"), TIME + 7_000)
    return builder.take(40)


def test_the_header_has_offsets_times_and_counts() -> None:
    block = a_block()
    header = read_header(block)
    assert header is not None
    assert (header.offset, header.records, header.end_offset) == (40, 4, 44)
    assert (header.time_ns, header.last_time_ns) == (TIME, TIME + 7_000)
    assert (header.sections, header.topics, header.publishers, header.extras) == (3, 2, 2, 1)
    assert header.size == len(block)
    assert is_whole(block, 0, header)


def test_a_run_stays_as_it_was_received() -> None:
    assert b"\x30\x08\x00\x03a/bone\x30\x08\x00\x03a/btwo" in a_block()


def test_every_changed_byte_is_noticed() -> None:
    block = a_block()
    for at in range(len(block)):
        damaged = bytearray(block)
        damaged[at] ^= 0x10
        header = read_header(bytes(damaged))
        assert header is None or not is_whole(bytes(damaged), 0, header), at


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + SECTION_BYTES])
def test_a_block_that_was_cut_is_not_whole(size: int) -> None:
    block = a_block()[:size]
    header = read_header(block)
    assert header is None or not is_whole(block, 0, header)


def test_the_size_of_a_builder_is_that_of_its_block() -> None:
    builder = BlockBuilder()
    builder.add(b"topic", b"x" * 100, 0, PUBLISHER, encode_extra(1, b"p"), TIME)
    builder.add(b"topic", b"x" * 100, 0, PUBLISHER, encode_extra(1, b"p"), TIME)
    builder.add(b"other", b"", 0, ("", "ü", ""), encode_extra(1, b"p"), TIME)
    size = builder.size
    assert len(builder.take(0)) == size


def test_records_that_differ_in_their_content_only_share_a_section() -> None:
    builder = BlockBuilder()
    for payload in (b"one", b"two", b"six"):
        builder.add(b"t", payload, 1, PUBLISHER, b"", TIME)
    for number, (topic, payload, flags, extra, time_ns) in enumerate(
        [
            (b"u", b"one", 1, b"", TIME),
            (b"u", b"four", 1, b"", TIME),
            (b"u", b"four", 2, b"", TIME),
            (b"u", b"four", 2, encode_extra(1, b""), TIME),
            (b"u", b"four", 2, encode_extra(1, b""), TIME + 1000),
        ]
    ):
        builder.add(topic, payload, flags, PUBLISHER, extra, time_ns)
        header = read_header(builder.take(0)) if number == 4 else None
    assert header is not None
    assert (header.records, header.sections, header.extras) == (8, 6, 1)


def test_a_record_that_is_too_late_for_its_block_is_not_taken() -> None:
    builder = BlockBuilder()
    assert builder.takes(TIME)
    builder.add(b"t", b"", 0, PUBLISHER, b"", TIME)
    assert builder.takes(TIME + DELTA_MICROSECONDS_MAX * 1000)
    assert not builder.takes(TIME + (DELTA_MICROSECONDS_MAX + 1) * 1000)
