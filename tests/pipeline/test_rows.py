"""Rows for the sink: what they become, and errors that name the row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from broker.event_log.block import read_header
from broker.event_log.records import records
from broker.event_log.staged_block import ROWS_MAX, RowLimits, StagedBlock
from pipeline.errors import PipelineError
from pipeline.rows import BLOCK_BYTES, BLOCK_ROWS, RowError, Rows, check_columns
from pipeline.schema import USER_PROPERTIES

KINDS = {
    "topic": pa.string(),
    "payload": pa.binary(),
    "qos": pa.int32(),
    "retain": pa.bool_(),
    "properties": USER_PROPERTIES,
}


def a_batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    names = [name for name in KINDS if any(name in row for row in rows)]
    return pa.RecordBatch.from_arrays(
        [pa.array([row.get(name) for row in rows], KINDS[name]) for name in names], names=names
    )


Published = tuple[str, bytes, int, bool, list[tuple[str, str]]]


def blocks(*batches: pa.RecordBatch) -> list[list[Published]]:
    """The rows of each block, which the node takes."""
    found = []
    for data in Rows("partition 3").blocks(iter(batches)):
        header = read_header(data)
        assert header is not None
        StagedBlock(data, 0, header).check("query", RowLimits(1 << 28, 128, True))
        assert len(data) <= BLOCK_BYTES or header.records == 1
        found.append([(row.topic, row.payload, row.qos, row.retain, row.user_properties) for row in records(data)])
    return found


def test_rows_with_all_columns_and_with_few() -> None:
    full = a_batch(
        {"topic": "a", "payload": b"1", "qos": 2, "retain": True, "properties": [{"key": "k", "value": "v"}]},
        {"topic": "b", "payload": b"", "qos": None, "retain": None, "properties": None},
        {"topic": "a", "payload": b"22", "qos": 0, "retain": False, "properties": []},
        {"topic": "ä", "payload": b"3", "qos": 1, "properties": [{"key": "k", "value": "v"}, {"key": "", "value": ""}]},
    )
    assert blocks(full, a_batch({"topic": "c", "payload": b"3"})) == [
        [
            ("a", b"1", 2, True, [("k", "v")]),
            ("b", b"", 1, False, []),
            ("a", b"22", 0, False, []),
            ("ä", b"3", 1, False, [("k", "v"), ("", "")]),
        ],
        [("c", b"3", 1, False, [])],
    ]


def test_a_part_of_a_batch() -> None:
    batch = a_batch(
        *({"topic": f"t{n % 3}", "payload": b"x" * n, "qos": n % 3, "retain": n % 2 == 0} for n in range(9))
    )
    assert blocks(batch.slice(2, 5)) == [
        [(f"t{n % 3}", b"x" * n, n % 3, n % 2 == 0, []) for n in range(2, 7)],
    ]


def test_payloads_may_be_texts() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["t", "t"]), pa.array(["ü", ""])], names=["topic", "payload"])
    assert [payload for _, payload, *_ in blocks(batch)[0]] == ["ü".encode(), b""]


def test_blocks_are_bounded_in_rows_and_bytes() -> None:
    small = a_batch(*({"topic": "t", "payload": b"x"} for _ in range(2 * BLOCK_ROWS + 1)))
    assert [len(rows) for rows in blocks(small)] == [BLOCK_ROWS, BLOCK_ROWS, 1]
    assert BLOCK_ROWS <= ROWS_MAX
    large = a_batch(*({"topic": "t", "payload": bytes(BLOCK_BYTES * 2 // 5)} for _ in range(5)))
    assert [len(rows) for rows in blocks(large)] == [2, 2, 1]
    with_properties = a_batch(
        *({"topic": "t", "payload": b"", "properties": [{"key": "k", "value": "v" * 60_000}]} for _ in range(20))
    )
    assert [len(rows) for rows in blocks(with_properties)] == [17, 3]
    one = a_batch(
        {"topic": "t", "payload": b"1"}, {"topic": "t", "payload": bytes(BLOCK_BYTES)}, {"topic": "t", "payload": b"3"}
    )
    assert [len(rows) for rows in blocks(one)] == [1, 1, 1]
    assert blocks() == []
    assert blocks(small.slice(0, 0)) == []


def test_a_payload_of_300_mb_is_named() -> None:
    """Without the memory of one: its bytes are never looked at."""
    size = 300 << 20
    data = pa.py_buffer(np.zeros(size, np.uint8))
    offsets = pa.py_buffer(np.array([0, 0, size], np.int64).tobytes())
    payloads = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 2, [None, offsets, data])
    batch = pa.RecordBatch.from_arrays([pa.array(["t", "t"]), payloads], names=["topic", "payload"])
    with pytest.raises(
        RowError, match="row 1 of partition 3: payload of 314572800 bytes; a packet of MQTT has at most"
    ):
        blocks(batch)


def test_a_null_of_a_later_batch_is_named() -> None:
    with pytest.raises(RowError, match="row 3 of partition 3: topic is NULL"):
        blocks(
            a_batch({"topic": "t", "payload": b""}, {"topic": "t", "payload": b""}),
            a_batch({"topic": "t", "payload": b""}, {"topic": None, "payload": b""}),
        )


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"topic": None, "payload": b""}, "topic is NULL"),
        ({"topic": "", "payload": b""}, "empty topic name"),
        ({"topic": "a/+", "payload": b""}, "has a wildcard"),
        ({"topic": "a\0", "payload": b""}, "U\\+0000"),
        ({"topic": "a", "payload": None}, "payload is NULL"),
        ({"topic": "a", "payload": b"", "qos": 3}, "qos is 3"),
        ({"topic": "a", "payload": b"", "qos": -1}, "qos is -1"),
        ({"topic": "a", "payload": b"", "properties": [None]}, r"properties\[0\] has a NULL"),
        ({"topic": "a", "payload": b"", "properties": [{"key": "k", "value": None}]}, r"properties\[0\] has a NULL"),
        (
            {"topic": "a", "payload": b"", "properties": [{"key": "k" * 70_000, "value": ""}]},
            "user property name of 70000 bytes, at most 65535",
        ),
    ],
)
def test_a_bad_row_is_named(row: dict[str, Any], text: str) -> None:
    good = {"topic": "a", "payload": b""}
    with pytest.raises(RowError, match=rf"row 2 of partition 3: .*{text}.* Nothing of the batch was published"):
        blocks(a_batch(good), a_batch(good, row))


@pytest.mark.parametrize(
    ("types", "text"),
    [
        ({"topic": "string"}, "column payload is missing"),
        ({"payload": "binary"}, "column topic is missing"),
        ({"topic": "string", "payload": "binary", "key": "string"}, "column key is unknown"),
        ({"topic": "binary", "payload": "binary"}, "column topic is binary, and must be string"),
        ({"topic": "string", "payload": "int"}, "column payload is int, and must be binary or string"),
        ({"topic": "string", "payload": "binary", "properties": "map<string,string>"}, "column properties is map"),
    ],
)
def test_columns_that_do_not_fit_are_named(types: dict[str, str], text: str) -> None:
    with pytest.raises(PipelineError, match=text):
        check_columns(types)
    check_columns({"topic": "string", "payload": "string", "qos": "int", "retain": "boolean"})
