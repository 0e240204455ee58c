"""Staged blocks: what is refused and by which row, and what the log gets of them."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec.properties import USER_PROPERTY, encode_publish_properties, publish_properties_to_dict
from broker.codec.writer import encode_publish
from broker.event_log.block import (
    HEADER_BYTES,
    NO_EXPIRY,
    SECTION_BYTES,
    BlockBuilder,
    encode_block,
    encode_extra,
    read_header,
)
from broker.event_log.records import BlockFault, records
from broker.event_log.staged_block import (
    ROWS_MAX,
    MarkedRows,
    RowFault,
    RowLimits,
    StagedBlock,
    check_large,
)
from broker.event_log.staged_rows import MARKER, NUMBER_DIGITS, marker_prefix, marker_properties
from row_blocks import Row, a_row, block_of

LIMITS = RowLimits(1_000, 8, True)


def staged(data: bytes) -> StagedBlock:
    header = read_header(data)
    assert header is not None
    return StagedBlock(data, 0, header)


@pytest.mark.parametrize(
    ("row", "limits", "text"),
    [
        (a_row(""), LIMITS, "topic: empty topic name"),
        (a_row("a/+"), LIMITS, "topic: topic name 'a/[+]' has a wildcard"),
        (a_row("a\0"), LIMITS, "topic: .*U[+]0000"),
        (a_row("/".join("123456789")), LIMITS, "topic: 9 levels, mqtt.max_topic_levels is 8"),
        (a_row("a", qos=3), LIMITS, "qos is 3, may be 0, 1 or 2"),
        (a_row("a", qos=8), LIMITS, "flags are 8"),
        (a_row("a", retain=True), LIMITS._replace(retain_available=False), "retain must be false"),
        (
            a_row("a", b"x" * 1_000),
            LIMITS,
            r"payload of 1000 bytes makes a packet of 10\d\d, mqtt.max_packet_size is 1000",
        ),
        (a_row("a", properties=[("a", "b"), (MARKER, "x")]), LIMITS, r"properties\[1\]: the node sets gmqttd-pipeline"),
        (a_row("a", properties=[("a", "b")] * 1_001), LIMITS, "properties has 1001 pairs, may have at most 1000"),
    ],
)
def test_a_row_that_mqtt_cannot_carry_is_refused_by_its_field(row: Row, limits: RowLimits, text: str) -> None:
    block = staged(block_of([a_row("b"), a_row("b", b"1"), a_row("b", b"2"), row, row]))
    with pytest.raises(RowFault, match=text) as caught:
        block.check("query", limits)
    assert caught.value.row == 3


@pytest.mark.parametrize(
    "properties",
    [b"\x26", b"\x26\0\1a\0\2\0b", b"\x01\x01", encode_publish_properties(content_type="text")],
)
def test_properties_that_are_no_user_properties_are_refused(properties: bytes) -> None:
    builder = BlockBuilder()
    builder.add(b"t", b"", 0, ("", "", ""), encode_extra(NO_EXPIRY, properties), 0)
    with pytest.raises(RowFault, match="properties: "):
        staged(builder.take(0)).check("query", LIMITS)


def test_the_largest_row_fits_the_packet_with_the_longest_marker() -> None:
    """The largest payload that is taken makes a packet of the limit, when batch and row have NUMBER_DIGITS digits."""
    size = 0
    for size in range(1_000, 0, -1):
        try:
            staged(block_of([a_row("a/b", b"x" * size, properties=[("k", "v")])])).check("query", LIMITS)
        except RowFault:
            continue
        break
    longest = 10**NUMBER_DIGITS - 1
    properties = encode_publish_properties(user_properties=[("k", "v")])
    properties += marker_properties(marker_prefix("query", longest), longest)
    assert len(encode_publish(5, b"a/b", b"x" * size, 1, False, False, 1, properties)) == LIMITS.packet_bytes_max


def built(**changes: Any) -> bytes:
    """A block of one row whose parts need not fit."""
    fields = [0, 1, 0, 0, 2, 2, 0, 1]
    for index, value in changes.pop("fields", {}).items():
        fields[index] = value
    wanted: dict[str, Any] = {
        "sections": struct.pack("<8I", *fields),
        "sizes": struct.pack("<4I", 1, 0, 0, 0),
        "texts": [b"t"],
        "heap": b"xy",
        "counts": (1, 1, 0),
        "records": 1,
    }
    return b"".join(encode_block(**(wanted | changes)))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"fields": {1: 0}}, "not as many records"),
        ({"fields": {1: 2}}, "not as many records"),
        ({"sections": b""}, "not as many records"),
        ({"fields": {0: 1}}, "times"),
        ({"fields": {2: 1}}, "names a topic or an extra"),
        ({"fields": {6: 1}}, "names a topic or an extra"),
        ({"fields": {3: 1}}, "one publisher"),
        ({"sizes": struct.pack("<4I", 1, 1, 0, 0), "texts": [b"tc"]}, "one publisher"),
        ({"fields": {4: 1}}, "more than its payload"),
        ({"fields": {4: 3, 5: 3}}, "have 3 bytes, its heap has 2"),
        ({"heap": b"x"}, "have 2 bytes, its heap has 1"),
        ({"counts": (100, 1, 0)}, "the tables of a block end 3"),
        ({"records": ROWS_MAX + 1, "fields": {1: ROWS_MAX + 1}}, "2001 rows, may have at most 2000"),
    ],
)
def test_a_block_whose_parts_do_not_fit_is_refused(changes: dict[str, Any], text: str) -> None:
    staged(built()).check("query", LIMITS)
    with pytest.raises(BlockFault, match=text):
        staged(built(**changes)).check("query", LIMITS)


def test_a_block_larger_than_a_request_is_checked_by_its_first_part() -> None:
    def check(block: bytes, length: int, packet_bytes_max: int = 5_000) -> None:
        header = read_header(block)
        assert header is not None
        check_large("query", block[:length], header, LIMITS._replace(packet_bytes_max=packet_bytes_max))

    tables = HEADER_BYTES + SECTION_BYTES
    large = block_of([a_row("topic", b"x" * 4_000, properties=[("k", "v")])])
    check(large, tables + 20)
    with pytest.raises(RowFault, match=r"payload of 4000 bytes makes a packet of 40\d\d, mqtt.max_packet_size is 4000"):
        check(large, tables + 20, 4_000)
    with pytest.raises(BlockFault, match="must have all its tables"):
        check(large, tables + 19)
    with pytest.raises(BlockFault, match="a block of 2 rows is larger than a request"):
        check(block_of([a_row("t", b"1" * 100), a_row("t", b"22")]), 100)
    with pytest.raises(BlockFault, match="one section, one topic"):
        check(built(counts=(2, 1, 0)), 200)
    with pytest.raises(BlockFault, match="the parts of a block make"):
        check(built(fields={4: 1_000}), 200)


rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "a/b", "ä"]),
        st.binary(max_size=2),
        st.integers(0, 2),
        st.booleans(),
        st.lists(st.tuples(st.sampled_from(["k", ""]), st.text("abc", max_size=3)), max_size=3),
    ),
    min_size=1,
    max_size=12,
)


@given(rows, st.integers(0, 12))
def test_staged_rows_are_logged_with_their_markers(given_rows: list[Row], first: int) -> None:
    block = staged(block_of(given_rows))
    block.check("query", LIMITS)
    assert block.has_retained == any(retain for _, _, _, retain, _ in given_rows)
    marked = MarkedRows(block, marker_prefix("query", 7), first)
    marked.time_ns = 5_000
    size = marked.size
    found = b"".join(marked.take_parts(40, 3))
    assert len(found) <= size
    header = read_header(found)
    assert header is not None
    assert (header.time_ns, header.earlier, header.last_delta) == (5_000, 3, 0)
    numbered = enumerate(given_rows)
    for record, (index, (topic, payload, qos, retain, pairs)) in zip(records(found), numbered, strict=True):
        assert (record.offset, record.time_ns, record.client_id) == (40 + index, 5_000, None)
        assert (record.topic, record.payload, record.qos, record.retain) == (topic, payload, qos, retain)
        assert record.user_properties == [*pairs, (MARKER, f"query/7/{first + index}")]


def test_own_properties_are_kept_as_they_are() -> None:
    block = staged(block_of([a_row("t", properties=[("b", "1"), ("a", "2")])]))
    assert publish_properties_to_dict(block.extras[0][4:])[USER_PROPERTY] == [("b", "1"), ("a", "2")]
