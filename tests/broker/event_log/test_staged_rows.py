"""Rows of a pipeline: what is refused, what is staged, what the log tells about them afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec.properties import USER_PROPERTY, publish_properties_to_dict
from broker.codec.writer import encode_publish
from broker.event_log.block import NO_EXPIRY, BlockBuilder, encode_extra
from broker.event_log.staged_rows import (
    FRAME,
    MARKER,
    NUMBER_DIGITS,
    Row,
    RowFault,
    RowLimits,
    RowSet,
    encode_frame,
    encode_row,
    is_whole_frame,
    marked_properties,
    marked_rows,
    marker_prefix,
    read_frame_header,
    rows_of,
)

LIMITS = RowLimits(1_000, 8, True)


def encoded(**changes: Any) -> bytes:
    row: dict[str, Any] = {"topic": "a/b", "payload": b"x", "qos": 1, "retain": False, "user_properties": []}
    limits = changes.pop("limits", LIMITS)
    return encode_row("query", limits=limits, **(row | changes))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"topic": ""}, "topic: empty topic name"),
        ({"topic": "a/+"}, "topic: topic name 'a/[+]' has a wildcard"),
        ({"topic": "a\0"}, "topic: .*U[+]0000"),
        ({"topic": "/".join("123456789")}, "topic has 9 levels, mqtt.max_topic_levels is 8"),
        ({"qos": 3}, "qos is 3, may be 0, 1 or 2"),
        ({"retain": True, "limits": LIMITS._replace(retain_available=False)}, "retain must be false"),
        ({"payload": b"x" * 1_000}, r"payload of 1000 bytes makes a packet of 10\d\d, mqtt.max_packet_size is 1000"),
        ({"user_properties": [("a", "b"), (MARKER, "x")]}, r"properties\[1\]: the node sets gmqttd-pipeline itself"),
        ({"user_properties": [("a", "b\0")]}, "properties: .*U[+]0000"),
        ({"user_properties": [("a", "b")] * 1_001}, "properties has 1001 pairs, may have at most 1000"),
        ({"user_properties": [("a", "x" * 65_536)]}, "properties: user property value of 65536 bytes"),
    ],
)
def test_a_row_that_mqtt_cannot_carry_is_refused_by_its_field(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(RowFault, match=text):
        encoded(**changes)


def test_a_row_that_is_taken_fits_the_packet_with_the_longest_marker() -> None:
    """The largest payload that is taken makes a packet of the limit, when batch and row have NUMBER_DIGITS digits."""
    size = 0
    for size in range(1_000, 0, -1):
        try:
            encoded(payload=b"x" * size)
        except RowFault:
            continue
        break
    longest = 10**NUMBER_DIGITS - 1
    properties = marked_properties(b"", marker_prefix("query", longest), longest)
    assert len(encode_publish(5, b"a/b", b"x" * size, 1, False, False, 1, properties)) == LIMITS.packet_bytes_max


rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "a/b", "ä"]),
        st.binary(max_size=20),
        st.integers(0, 2),
        st.booleans(),
        st.lists(st.tuples(st.sampled_from(["k", ""]), st.text("abc", max_size=3)), max_size=3),
    ),
    max_size=5,
)


@given(rows)
def test_staged_rows_come_back(given_rows: list[tuple[str, bytes, int, bool, list[tuple[str, str]]]]) -> None:
    frame = encode_frame([encode_row("query", *row, LIMITS) for row in given_rows])
    assert read_frame_header(frame) == (len(frame) - FRAME.size, len(given_rows))
    assert is_whole_frame(frame)
    for row, (topic, payload, qos, retain, pairs) in zip(rows_of(frame), given_rows, strict=True):
        assert row == Row(topic.encode(), row.properties, payload, qos, retain)
        assert publish_properties_to_dict(row.properties).get(USER_PROPERTY, []) == pairs


def test_every_changed_byte_of_a_frame_is_noticed() -> None:
    frame = encode_frame([encoded(), encoded(payload=b"second")])
    for at in range(len(frame)):
        damaged = bytearray(frame)
        damaged[at] ^= 0x10
        header = read_frame_header(bytes(damaged))
        assert header is None or header[0] != len(frame) - FRAME.size or not is_whole_frame(bytes(damaged)), at
    assert read_frame_header(frame[: FRAME.size - 1]) is None


def block_of(*records: tuple[str, bytes]) -> bytes:
    """Records with a client id and properties."""
    builder = BlockBuilder()
    for client_id, properties in records:
        extra = encode_extra(NO_EXPIRY, properties) if properties else b""
        builder.add(b"t", b"payload", 1, (client_id, "", ""), extra, 1)
    return builder.take(0)


def test_the_rows_of_a_batch_are_found_in_the_log() -> None:
    prefix = marker_prefix("query", 7)
    own = encoded(user_properties=[("k", "v")])
    (row,) = rows_of(encode_frame([own]))
    blocks = block_of(
        ("", b""),
        ("", marked_properties(row.properties, prefix, 0)),
        ("", marked_properties(b"", prefix, 12)),
        ("", marked_properties(b"", marker_prefix("query", 70), 3)),
        ("", marked_properties(b"", marker_prefix("other", 7), 4)),
    ) + block_of(("", marked_properties(b"", prefix, 13)))
    assert list(marked_rows(blocks, prefix)) == [0, 12, 13]


def test_a_client_cannot_make_a_row_look_published() -> None:
    prefix = marker_prefix("query", 7)
    assert list(marked_rows(block_of(("client", marked_properties(b"", prefix, 0))), prefix)) == []


@given(st.lists(st.integers(0, 30)))
def test_a_set_of_rows(added: list[int]) -> None:
    found = RowSet()
    for row in added:
        found.add(row)
    assert found.count == len(set(added))
    assert [row for row in range(31) if row in found] == sorted(set(added))
