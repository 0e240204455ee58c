"""Rows for the sink: what they become, and errors that name the row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from broker.event_log.pb import event_log_pb2 as pb
from pipeline.errors import PipelineError
from pipeline.rows import REQUEST_BYTES, REQUEST_ROWS, RowError, Rows, check_columns
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


def requests(*batches: pa.RecordBatch) -> list[list[pb.SinkRow]]:
    return list(Rows("partition 3").requests(iter(batches)))


def test_rows_with_all_columns_and_with_few() -> None:
    full = a_batch(
        {"topic": "a", "payload": b"1", "qos": 2, "retain": True, "properties": [{"key": "k", "value": "v"}]},
        {"topic": "b", "payload": b"", "qos": None, "retain": None, "properties": None},
    )
    assert requests(full, a_batch({"topic": "c", "payload": b"3"})) == [
        [
            pb.SinkRow(topic="a", payload=b"1", qos=2, retain=True, properties=[pb.SinkProperty(key="k", value="v")]),
            pb.SinkRow(topic="b", payload=b"", qos=1),
            pb.SinkRow(topic="c", payload=b"3", qos=1),
        ]
    ]


def test_payloads_may_be_texts() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["t"]), pa.array(["ü"])], names=["topic", "payload"])
    assert requests(batch)[0][0].payload == "ü".encode()


def test_requests_are_bounded_in_rows_and_bytes() -> None:
    small = a_batch(*({"topic": "t", "payload": b"x"} for _ in range(REQUEST_ROWS + 1)))
    assert [len(rows) for rows in requests(small)] == [REQUEST_ROWS, 1]
    large = a_batch(*({"topic": "t", "payload": bytes(REQUEST_BYTES * 2 // 5)} for _ in range(5)))
    assert [len(rows) for rows in requests(large)] == [2, 2, 1]
    assert requests() == []


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"topic": None, "payload": b""}, "topic is NULL"),
        ({"topic": "", "payload": b""}, "empty topic name"),
        ({"topic": "a/+", "payload": b""}, "has a wildcard"),
        ({"topic": "a\0", "payload": b""}, "U\\+0000"),
        ({"topic": "a", "payload": None}, "payload is NULL"),
        (
            {"topic": "a", "payload": bytes(5 << 20)},
            r"it has 52428\d\d bytes \(payload 5242880\), a node takes 4128768",
        ),
        ({"topic": "a", "payload": b"", "qos": 3}, "qos is 3"),
        ({"topic": "a", "payload": b"", "qos": -1}, "qos is -1"),
        ({"topic": "a", "payload": b"", "properties": [None]}, r"properties\[0\] has a NULL"),
        ({"topic": "a", "payload": b"", "properties": [{"key": "k", "value": None}]}, r"properties\[0\] has a NULL"),
        ({"topic": "a", "payload": b"", "properties": [{"key": "k" * 70_000, "value": ""}]}, "more than 65535"),
    ],
)
def test_a_bad_row_is_named(row: dict[str, Any], text: str) -> None:
    good = {"topic": "a", "payload": b""}
    with pytest.raises(RowError, match=rf"row 2 of partition 3: .*{text}.* Nothing of the batch was published"):
        requests(a_batch(good), a_batch(good, row))


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
