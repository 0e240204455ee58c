"""The marks of rows: what the log tells about them afterwards."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.codec.properties import encode_publish_properties
from broker.event_log.block import NO_EXPIRY, BlockBuilder, encode_extra
from broker.event_log.staged_rows import MARKER, RowSet, marked_rows, marker_prefix, marker_properties


def block_of(*records: tuple[str, bytes]) -> bytes:
    """Records with a client id and properties."""
    builder = BlockBuilder()
    for client_id, properties in records:
        extra = encode_extra(NO_EXPIRY, properties) if properties else b""
        builder.add(b"t", b"payload", 1, (client_id, "", ""), extra, 1)
    return builder.take(0)


def test_the_rows_of_a_batch_are_found_in_the_log() -> None:
    prefix = marker_prefix("query", 7)
    own = encode_publish_properties(user_properties=[("k", "v")])
    blocks = block_of(
        ("", b""),
        ("", own + marker_properties(prefix, 0)),
        ("", marker_properties(prefix, 12)),
        ("", marker_properties(marker_prefix("query", 70), 3)),
        ("", marker_properties(marker_prefix("other", 7), 4)),
    ) + block_of(("", marker_properties(prefix, 13)))
    assert list(marked_rows(blocks, prefix)) == [0, 12, 13]


def test_a_client_cannot_make_a_row_look_published() -> None:
    prefix = marker_prefix("query", 7)
    assert list(marked_rows(block_of(("client", marker_properties(prefix, 0))), prefix)) == []


@given(st.lists(st.integers(0, 30)))
def test_a_set_of_rows(added: list[int]) -> None:
    found = RowSet()
    for row in added:
        found.add(row)
    assert found.count == len(set(added))
    assert [row for row in range(31) if row in found] == sorted(set(added))
    for first in range(31):
        assert found.has_any(first, first + 3) == any(first <= row < first + 3 for row in added)


def test_the_marker_is_a_user_property() -> None:
    assert marker_properties(marker_prefix("query", 7), 12) == encode_publish_properties(
        user_properties=[(MARKER, "query/7/12")]
    )
