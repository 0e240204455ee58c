"""Records of blocks: what was added comes back, and damage is named."""

from __future__ import annotations

import pytest

from broker.codec.properties import encode_publish_properties
from broker.codec.writer import encode_publish
from broker.event_log.block import NO_EXPIRY, BlockBuilder, encode_extra
from broker.event_log.records import BlockFault, Record, records

TIME = 1_700_000_000_000_000_000
PROPERTIES = encode_publish_properties(
    content_type="text/plain",
    response_topic=b"re/ply",
    correlation_data=b"\0",
    user_properties=[("k", "1"), ("k", "2")],
)


def two_blocks() -> bytes:
    builder = BlockBuilder()
    builder.add("ä/b".encode(), b"first", 1, ("c1", "user", ""), b"", TIME)
    run = b"".join(encode_publish(5, b"run", b"%03d" % number, 0, False, False, 0, b"") for number in range(3))
    builder.add_run(b"run", run, 3, 3, ("c2", "", ""), TIME + 2_000)
    first = builder.take(7)
    builder.add(b"run", b"", 6, ("", "", "other"), encode_extra(60, PROPERTIES), TIME + 9_000)
    builder.add(b"x", b"y", 0, ("", "", ""), encode_extra(NO_EXPIRY, b"\x01\x01"), TIME + 9_000)
    return first + builder.take(11)


def test_every_record_comes_back_with_its_fields() -> None:
    found = list(records(two_blocks()))
    assert found[0] == Record(7, TIME, "ä/b", b"first", 1, False, "c1", "user", None, None, None, [], None, None)
    assert [(one.offset, one.time_ns, one.topic, one.payload, one.client_id, one.qos) for one in found[1:4]] == [
        (8, TIME + 2_000, "run", b"000", "c2", 0),
        (9, TIME + 2_000, "run", b"001", "c2", 0),
        (10, TIME + 2_000, "run", b"002", "c2", 0),
    ]
    assert found[4] == Record(
        11,
        TIME + 9_000,
        "run",
        b"",
        2,
        True,
        None,
        None,
        "text/plain",
        "re/ply",
        b"\0",
        [("k", "1"), ("k", "2")],
        60,
        "other",
    )
    assert (found[5].offset, found[5].expiry, found[5].user_properties) == (12, None, [])
    assert len(found) == 6


def test_no_bytes_are_no_records() -> None:
    assert list(records(b"")) == []


@pytest.mark.parametrize("cut", [1, 60, 200])
def test_a_block_that_is_not_whole_is_named_by_its_place(cut: int) -> None:
    blocks = two_blocks()
    with pytest.raises(BlockFault, match=r"byte \d+ of \d+ begins no whole block"):
        list(records(blocks[:-cut]))


def test_a_changed_byte_is_noticed() -> None:
    blocks = bytearray(two_blocks())
    blocks[-1] ^= 1
    with pytest.raises(BlockFault):
        list(records(bytes(blocks)))
