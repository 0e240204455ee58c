"""Blocks as Arrow batches: the same rows as a decoder that takes one record after the other, within the bounds."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec.properties import encode_publish_properties
from broker.event_log.block import CHECKED_FROM, NO_EXPIRY, BlockBuilder, encode_extra
from broker.event_log.records import records
from broker.event_log.staged_rows import MARKER
from broker.routing.trie import Trie
from pipeline.frames import FrameFault, Frames
from pipeline.schema import ARROW_SCHEMA

TIME = 1_700_000_000_123_456_789
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

texts = st.text(st.characters(exclude_characters="+#\0", exclude_categories=["Cs"]), min_size=1, max_size=6)
topics = st.one_of(st.sampled_from(["a/b", "a/c", "b", "$SYS/x"]), texts)
publishers = st.tuples(st.sampled_from(["", "c1", "ü"]), st.sampled_from(["", "u"]), st.sampled_from(["", "up"]))
pairs = st.lists(st.tuples(st.sampled_from(["k", MARKER]), texts), max_size=2)
extras = st.one_of(
    st.just(b""),
    st.builds(
        lambda expiry, kind, data, pairs: encode_extra(
            expiry, encode_publish_properties(content_type=kind, correlation_data=data, user_properties=pairs)
        ),
        st.sampled_from([NO_EXPIRY, 0, 60]),
        st.one_of(st.none(), st.just(""), st.just("text/plain")),
        st.one_of(st.none(), st.binary(max_size=3)),
        pairs,
    ),
)
messages = st.tuples(st.just("one"), topics, st.binary(max_size=9), st.integers(0, 6), publishers, extras)
runs = st.tuples(st.just("run"), topics, st.integers(0, 4), st.integers(1, 5), publishers, st.integers(0, 250))
sections = st.lists(st.one_of(messages, runs), min_size=1, max_size=6)


def a_log(blocks: Sequence[Sequence[Any]], offset: int = 40) -> bytes:
    builder = BlockBuilder()
    data = b""
    time_ns = TIME
    for block in blocks:
        for kind, topic, *fields in block:
            name = topic.encode()
            time_ns += 1_500
            if kind == "one":
                payload, flags, publisher, extra = fields
                builder.add(name, payload, flags, publisher, extra, time_ns)
            else:
                size, count, publisher, first = fields
                packets = b"".join(
                    bytes([0x30, 2 + len(name) + size, 0, len(name)]) + name + bytes([first + n]) * size
                    for n in range(count)
                )
                builder.add_run(name, packets, count, size, publisher, time_ns)
        records = builder.records
        data += builder.take(offset)
        offset += records
        offset += 3  # what a read with topic filters left out
    return data


def naive(data: bytes, start: int, end: int, filters: Sequence[str], include_pipeline: bool) -> list[dict[str, object]]:
    trie = Trie()
    for each in filters:
        trie.set(each.encode(), True)
    return [
        {
            "node": "n1",
            "log": "id",
            "offset": record.offset,
            "time": record.time_ns,
            "ts": EPOCH + timedelta(microseconds=record.time_ns // 1000),
            "topic": record.topic,
            "payload": record.payload,
            "qos": record.qos,
            "retain": record.retain,
            "client_id": record.client_id,
            "user_name": record.user_name,
            "content_type": record.content_type,
            "response_topic": record.response_topic,
            "correlation_data": record.correlation_data,
            "user_properties": [{"key": key, "value": value} for key, value in record.user_properties] or None,
            "expiry": record.expiry,
            "origin": record.origin,
        }
        for record in records(data)
        if start <= record.offset < end
        and (not filters or trie.match(record.topic.encode()))
        and (include_pipeline or record.client_id or all(key != MARKER for key, _ in record.user_properties))
    ]


def rows(batches: Sequence[pa.RecordBatch]) -> list[dict[str, object]]:
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(ARROW_SCHEMA, check_metadata=True)
    return [row for batch in batches for row in batch.to_pylist()]


@given(
    st.lists(sections, min_size=1, max_size=5),
    st.integers(30, 80),
    st.integers(30, 120),
    st.sampled_from([(), ("#",), ("a/#",), ("+", "a/c"), ("nothing",)]),
    st.booleans(),
    st.integers(1, 7),
    st.sampled_from([1, 200, 400, 1 << 20]),
)
def test_rows_are_those_of_the_naive_decoder(
    blocks: Any, start: int, end: int, filters: tuple[str, ...], include: bool, rows_max: int, bytes_max: int
) -> None:
    data = a_log(blocks)
    batches = list(Frames("n1", "id", filters, include, rows_max, bytes_max).decode(data, start, end))
    assert rows(batches) == naive(data, start, end, filters, include)
    assert all(0 < batch.num_rows <= rows_max for batch in batches)
    if bytes_max == 1:
        assert all(batch.num_rows == 1 for batch in batches)


def test_an_empty_response_has_no_batch() -> None:
    assert list(Frames("n1", "id").decode(b"", 0, 10)) == []


def test_batches_are_bounded_by_bytes() -> None:
    data = a_log([[("one", "t", bytes(1000), 0, ("", "", ""), b"")] * 50, [("run", "t", 100, 20, ("", "", ""), 0)] * 5])
    batches = list(Frames("n1", "id", bytes_max=10_000).decode(data, 0, 1000))
    assert sum(batch.num_rows for batch in batches) == 150
    assert all(batch.nbytes <= 10_000 for batch in batches)
    assert max(batch.num_rows for batch in batches) > 30


def test_all_texts_of_a_row_count() -> None:
    """32,768 rows of the longest topics and properties would pass the 2 GiB of an Arrow array."""
    extra = encode_extra(NO_EXPIRY, encode_publish_properties(correlation_data=bytes(30_000)))
    publisher = ("c" * 30_000, "u" * 30_000, "")
    data = a_log([[("one", "t" * 60_000, b"", 0, publisher, extra)] * 40])
    batches = list(Frames("n1", "id", bytes_max=1_000_000).decode(data, 0, 1000))
    assert sum(batch.num_rows for batch in batches) == 40
    assert all(batch.nbytes <= 1_000_000 for batch in batches)


def test_a_record_larger_than_the_bound_is_a_batch_of_its_own() -> None:
    data = a_log([[("one", "t", bytes(size), 0, ("", "", ""), b"") for size in (5, 50_000, 5)]])
    batches = list(Frames("n1", "id", bytes_max=10_000).decode(data, 0, 1000))
    assert [len(payload) for batch in batches for payload in batch["payload"].to_pylist()] == [5, 50_000, 5]
    assert {"rows": 1} in [{"rows": batch.num_rows} for batch in batches]


A_BLOCK = a_log([[("one", "a/b", b"payload", 1, ("c", "u", ""), b""), ("run", "t", 3, 4, ("c", "", ""), 7)]])


def test_each_damaged_byte_is_an_error_that_names_node_log_and_offset() -> None:
    for at in range(len(A_BLOCK)):
        damaged = bytearray(A_BLOCK)
        damaged[at] ^= 0x10
        with pytest.raises(FrameFault, match=r"node n1, log id, read from offset 17: "):
            list(Frames("n1", "id").decode(bytes(damaged), 17, 100))


@pytest.mark.parametrize("size", [1, 55, 56, 60, len(A_BLOCK) - 1])
def test_a_block_that_was_cut_is_an_error(size: int) -> None:
    with pytest.raises(FrameFault, match="log id"):
        list(Frames("n1", "id").decode(A_BLOCK + A_BLOCK[:size], 0, 100))


def changed(at: int, value: int) -> bytes:
    """A_BLOCK with another u32 at `at`, and the checksum of that."""
    data = bytearray(A_BLOCK)
    data[at : at + 4] = value.to_bytes(4, "little")
    data[4:8] = zlib.crc32(data[CHECKED_FROM:]).to_bytes(4, "little")
    return bytes(data)


@pytest.mark.parametrize("value", [0, 1, 3, 0x7FFFFFFF, 0xFFFFFFFF])
@pytest.mark.parametrize("at", [8, 12, 32, 36, 40, 44, *range(60, 120, 4)])
def test_numbers_that_cannot_be_are_an_error_or_no_danger(at: int, value: int) -> None:
    """Not one of them leads outside of the bytes, also when the checksum is right."""
    try:
        batches = list(Frames("n1", "id").decode(changed(at, value), 0, 1 << 62))
    except FrameFault:
        return
    assert len(rows(batches)) == 5


def test_blocks_that_overlap_are_an_error() -> None:
    with pytest.raises(FrameFault, match="begins before the end of the block before"):
        list(Frames("n1", "id").decode(A_BLOCK * 2, 0, 100))


def test_a_topic_that_is_not_utf8_is_an_error() -> None:
    builder = BlockBuilder()
    builder.add(b"\xff", b"", 0, ("", "", ""), b"", TIME)
    with pytest.raises(FrameFault, match="offset 3"):
        list(Frames("n1", "id").decode(builder.take(5), 3, 100))
