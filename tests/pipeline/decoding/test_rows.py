"""Payloads of each format -> rows, or the reason why not; no bytes make a decoder fail otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import cbor2
import msgpack  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from pipeline.decoding.births import EdgeNode, Place
from pipeline.decoding.formats import decode_json
from pipeline.decoding.paths import Undecodable, find, read_path
from pipeline.decoding.rows import FAULT, RESOLVED, RowDecoder
from pipeline.decoding.schemas import MESSAGE_COLUMNS, DeclaredColumn, DeclaredSchema, SchemaError
from pipeline.decoding.values import TYPES
from pipeline.schema import ARROW_SCHEMA
from sparkplug_messages import (
    BOOLEAN,
    DATETIME,
    DOUBLE,
    INT8,
    INT16_ARRAY,
    INT32,
    STRING,
    TIME_MS,
    UINT64,
    metric,
    payload,
)

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def column(path: str, type_: str, required: bool = False, name: str = "c") -> DeclaredColumn:
    return DeclaredColumn(name, path, read_path(path), type_, required)


def decoder(format_: str, path: str, type_: str, required: bool = False, **more: Any) -> RowDecoder:
    return RowDecoder(DeclaredSchema("s", "#", format_, (column(path, type_, required),), **more))


def value(format_: str, data: bytes, path: str, type_: str, **more: Any) -> Any:
    """The value of the column as Arrow has it, or the reason as a text that begins with a mark."""
    rows = RowDecoder(DeclaredSchema("s", "#", format_, (column(path, type_),), **more))
    found, reason = rows.row(data)
    if reason is not None:
        return f"! {reason}"
    return pa.array(found, TYPES[type_].arrow)[0].as_py()


@pytest.mark.parametrize(
    ("data", "path", "type_", "expected"),
    [
        (b'{"t": 21.5}', "$.t", "double", 21.5),
        (b'{"t": 21}', "$.t", "double", 21.0),
        (
            b'{"t": 9007199254740993}',
            "$.t",
            "double",
            "! column c double: the whole number 9007199254740993 has no exact",
        ),
        (b'{"t": "21"}', "$.t", "double", "! column c double: a text does not fit"),
        (b'{"t": true}', "$.t", "double", "! column c double: a boolean does not fit"),
        (b'{"t": null}', "$.t", "double", None),
        (b"{}", "$.t", "double", None),
        (b'{"t": {"x": [1, 7]}}', "$.t.x[1]", "bigint", 7),
        (b'{"t": [1]}', "$.t[5]", "bigint", None),
        (b'{"t": 1}', "$.t.x", "bigint", "! column c bigint: a whole number stands where 'x' should be found"),
        (b'{"a b/c": 1}', "$['a b/c']", "bigint", 1),
        (b'{"t": 3.0}', "$.t", "bigint", 3),
        (b'{"t": 3.5}', "$.t", "bigint", "! column c bigint: a number does not fit"),
        (b'{"t": 9223372036854775808}', "$.t", "bigint", "! column c bigint: 9223372036854775808 is beyond 64 bits"),
        (b'{"t": 9007199254740991.0}', "$.t", "bigint", 2**53 - 1),
        (
            b'{"t": 9007199254740993.0}',
            "$.t",
            "bigint",
            "! column c bigint: the number 9007199254740992.0 may be round",
        ),
        (b'{"t": 9007199254740993}', "$.t", "bigint", 2**53 + 1),
        (b'{"t": -1e400}', "$.t", "double", "! not JSON: -1e400 is beyond a double"),
        (b'"x"', "$", "string", "x"),
        (b'"\\ud800"', "$", "string", "! column c string: the text has half a surrogate pair"),
        (b'{"t": [1]}', "$.t", "string", "! column c string: an array does not fit"),
        (b"true", "$", "boolean", True),
        (b"1", "$", "boolean", "! column c boolean: a whole number does not fit"),
        (b'"2026-11-22T13:00:00+01:00"', "$", "timestamp", NOON),
        (b'"2026-11-22T12:00:00Z"', "$", "timestamp", NOON),
        (b'"2026-11-22T12:00:00"', "$", "timestamp", "! column c timestamp: the time 2026-11-22 12:00:00 has no zone"),
        (b'"noon"', "$", "timestamp", "! column c timestamp: the text 'noon' is no time of RFC 3339"),
        (b'"0001-01-01T00:00:00+14:00"', "$", "timestamp", "! column c timestamp: datetime"),
        (b"1795348800", "$", "timestamp", "! column c timestamp: a whole number does not fit"),
        (b"1795348800", "$", "timestamp_seconds", NOON),
        (b"1795348800000", "$", "timestamp_millis", NOON),
        (b"1e300", "$", "timestamp_millis", "! column c timestamp_millis: 1e+300 is not in the years"),
        (b'"2026-11-22t12:00:00.0000009z"', "$", "timestamp", NOON),
        (
            b'"20261122T120000Z"',
            "$",
            "timestamp",
            "! column c timestamp: the text '20261122T120000Z' is no time of RFC",
        ),
        (b'"2026-W47-7T12:00:00Z"', "$", "timestamp", "! column c timestamp: the text '2026-W47-7T12:00:00Z' is no"),
        (b'"2026-11-22"', "$", "timestamp", "! column c timestamp: the text '2026-11-22' is no time of RFC 3339"),
        (b'"x"', "$", "binary", "! column c binary: a text does not fit"),
        (b"", "$", "bigint", "! not JSON: "),
        (b"{", "$", "bigint", "! not JSON: "),
        (b"\xff", "$", "bigint", "! not JSON: "),
        (b"NaN", "$", "double", "! not JSON: NaN is no number"),
        (b'{"t": 1, "t": 2}', "$.t", "bigint", "! not JSON: a key stands twice"),
        (b"[" * 200_000, "$", "bigint", "! not JSON: nested too deep"),
        (b"9" * 5_000, "$", "bigint", "! not JSON: "),
    ],
)
def test_json(data: bytes, path: str, type_: str, expected: object) -> None:
    found = value("json", data, path, type_)
    if isinstance(expected, str) and expected.startswith("! "):
        assert str(found).startswith(expected)
    else:
        assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("format_", "pack"), [("cbor", cbor2.dumps), ("msgpack", lambda each: msgpack.packb(each, datetime=True))]
)
def test_cbor_and_msgpack(format_: str, pack: Callable[[object], bytes]) -> None:
    data = pack({"t": 1.5, "b": b"\xff", "at": NOON, 7: [True, None]})
    assert value(format_, data, "$.t", "double") == 1.5
    assert value(format_, data, "$.b", "binary") == b"\xff"
    assert value(format_, data, "$.at", "timestamp") == NOON
    assert value(format_, data, "$[7][0]", "boolean") is True
    assert value(format_, data, "$[7][1]", "boolean") is None
    assert value(format_, data, "$.b", "string") == "! column c string: bytes does not fit"
    for wrong in (b"", data[:-1], data + b"\x00", pack([[[]]])[:1]):
        assert value(format_, wrong, "$", "bigint").startswith("! not ")


@pytest.mark.parametrize(
    ("format_", "data"),
    [
        ("cbor", b"\x9b" + b"\xff" * 8),  # an array of 2 ** 64 - 1 elements
        ("cbor", b"\x5b" + b"\x7f" + b"\xff" * 7),
        ("cbor", b"\x81" * 100_000),
        ("cbor", b"\xa2\x01\x01\x01\x02"),
        ("cbor", b"\xc1\xfb\x7f\xf0" + bytes(6)),  # an infinite time
        ("cbor", b"\xd8\x1d\x00"),
        ("cbor", b"\xd8\x1e\x82\x01\x00"),  # a rational number with denominator 0
        ("msgpack", b"\xdd" + b"\xff" * 4),
        ("msgpack", b"\xdf" + b"\xff" * 4),
        ("msgpack", b"\x91" * 100_000),
        ("msgpack", b"\x82\x01\x01\x01\x02"),
        ("msgpack", b"\x81\x90\x01" + b"\x00"),
        ("msgpack", b"\xa1\xff"),
        ("msgpack", b"\xc7\x0c\xff" + b"\xff" * 12),  # a timestamp beyond year 9999
        ("msgpack", b"\xc1"),
    ],
)
def test_payloads_that_attack_go_aside(format_: str, data: bytes) -> None:
    assert value(format_, data, "$", "bigint").startswith("! not ")


# --- protobuf ---


def motor_descriptor() -> bytes:
    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="motor.proto", package="plant", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    state = file.enum_type.add(name="State")
    for number, name in enumerate(("STOPPED", "RUNS")):
        state.value.add(name=name, number=number)
    motor = file.message_type.add(name="Motor")
    entry = motor.nested_type.add(name="LimitsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=types.TYPE_STRING, label=types.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=types.TYPE_DOUBLE, label=types.LABEL_OPTIONAL)
    for number, (name, kind, of, is_many) in enumerate(
        (
            ("speed", types.TYPE_SINT32, "", False),
            ("state", types.TYPE_ENUM, ".plant.State", False),
            ("at", types.TYPE_MESSAGE, ".google.protobuf.Timestamp", False),
            ("parts", types.TYPE_MESSAGE, ".plant.Motor", True),
            ("limits", types.TYPE_MESSAGE, ".plant.Motor.LimitsEntry", True),
        ),
        1,
    ):
        label = types.LABEL_REPEATED if is_many else types.LABEL_OPTIONAL
        motor.field.add(name=name, number=number, type=kind, type_name=of or None, label=label)
    stamp = descriptor_pb2.FileDescriptorProto(name="google/protobuf/timestamp.proto", package="google.protobuf")
    stamp.syntax = "proto3"
    message = stamp.message_type.add(name="Timestamp")
    message.field.add(name="seconds", number=1, type=types.TYPE_INT64, label=types.LABEL_OPTIONAL)
    message.field.add(name="nanos", number=2, type=types.TYPE_INT32, label=types.LABEL_OPTIONAL)
    return descriptor_pb2.FileDescriptorSet(file=[stamp, file]).SerializeToString()


MOTOR: dict[str, Any] = {"descriptor": motor_descriptor(), "message": "plant.Motor"}
# speed -2, state RUNS, at noon, one part with speed 1, limits {"x": 0.5}.
MOTOR_DATA = b"".join(
    (
        b"\x08\x03\x10\x01",
        b"\x1a\x06\x08\xc0\xb2\x8b\xd8\x06",
        b"\x22\x02\x08\x02",
        b"\x2a\x0c\x0a\x01x\x11\x00\x00\x00\x00\x00\x00\xe0?",
    )
)


@pytest.mark.parametrize(
    ("path", "type_", "expected"),
    [
        ("$.speed", "bigint", -2),
        ("$.state", "string", "RUNS"),
        ("$.at", "timestamp", NOON),
        ("$.parts[0].speed", "bigint", 1),
        ("$.parts[0].at", "timestamp", None),
        ("$.parts[0].state", "string", "STOPPED"),
        ("$.limits['x']", "double", 0.5),
        ("$.state", "bigint", "! column c bigint: a text does not fit"),
    ],
)
def test_protobuf(path: str, type_: str, expected: object) -> None:
    assert value("protobuf", MOTOR_DATA, path, type_, **MOTOR) == expected


def test_protobuf_that_does_not_decode() -> None:
    assert value("protobuf", b"\xff", "$.speed", "bigint", **MOTOR) == "! no message plant.Motor"
    assert value("protobuf", b"\x10\x07", "$.state", "string", **MOTOR) == "7"
    late = b"\x1a\x0a\x08" + b"\xff" * 8 + b"\x7f"
    assert "not in the years" in value("protobuf", late, "$.at", "timestamp", **MOTOR)


@pytest.mark.parametrize(
    ("path", "more", "named"),
    [
        (
            "$.speed",
            {**MOTOR, "message": "plant.Engine"},
            "message is 'plant.Engine'; the descriptor has .*plant.Motor",
        ),
        ("$.sped", MOTOR, r"path '\$\.sped': plant.Motor has no field sped; it has speed"),
        ("$.at.hours", MOTOR, "Timestamp has no field hours"),
        ("$.speed", {**MOTOR, "descriptor": b"\xff"}, "descriptor is no file of protoc"),
    ],
)
def test_a_descriptor_that_is_wrong_is_named(path: str, more: dict[str, Any], named: str) -> None:
    with pytest.raises(SchemaError, match=named):
        decoder("protobuf", path, "bigint", **more)


def test_a_descriptor_without_its_imports_is_named() -> None:
    files = descriptor_pb2.FileDescriptorSet.FromString(MOTOR["descriptor"])
    del files.file[0]
    with pytest.raises(SchemaError, match="include_imports"):
        decoder("protobuf", "$.speed", "bigint", descriptor=files.SerializeToString(), message="plant.Motor")


# --- sparkplug ---


@pytest.mark.parametrize(
    ("given", "type_", "expected"),
    [
        (metric("m", datatype=INT8, int_value=0xFF), "bigint", -1),
        (metric("m", datatype=INT8, int_value=0xFFFFFFFF), "bigint", -1),
        (metric("m", datatype=INT32, int_value=2**31), "bigint", -(2**31)),
        (metric("m", datatype=UINT64, long_value=2**63), "bigint", "! column c bigint: 9223372036854775808 is beyond"),
        (metric("m", datatype=DOUBLE, double_value=0.5), "double", 0.5),
        (metric("m", datatype=BOOLEAN, boolean_value=True), "boolean", True),
        (metric("m", datatype=STRING, string_value="on"), "string", "on"),
        (metric("m", datatype=DATETIME, long_value=TIME_MS), "timestamp", datetime(2026, 11, 22, 10, tzinfo=UTC)),
        (metric("m", datatype=DATETIME, long_value=2**63), "timestamp", "! the time of"),
        (metric("m", datatype=STRING, is_null=True), "string", None),
        (metric("other", datatype=DOUBLE, double_value=0.5), "double", None),
        (metric("m", datatype=DOUBLE, string_value="x"), "double", "! metric 'm' of data type 10 has string_value"),
        (metric("m", datatype=DOUBLE), "double", "! metric 'm' of data type 10 has no value"),
        (metric("m", datatype=99, double_value=1.0), "double", "! metric 'm' of data type 99 has double_value"),
    ],
)
def test_sparkplug(given: Any, type_: str, expected: object) -> None:
    found = value("sparkplug", payload(given), "$.metrics['m']", type_)
    if isinstance(expected, str) and expected.startswith("! "):
        assert found.startswith(expected)
    else:
        assert found == expected


def test_sparkplug_beside_its_metrics() -> None:
    data = payload(metric("a", datatype=INT16_ARRAY, bytes_value=b"\x01\x00\xfe\xff"), seq=7)
    assert value("sparkplug", data, "$.seq", "bigint") == 7
    assert value("sparkplug", data, "$.timestamp", "timestamp") == datetime(2026, 11, 22, 10, tzinfo=UTC)
    assert value("sparkplug", data, "$.metrics.a[1]", "bigint") == -2
    twice = payload(*[metric("a", datatype=DOUBLE, double_value=1.0)] * 2)
    assert value("sparkplug", twice, "$.metrics.a", "double") == "! column c double: what stands twice does not fit"
    assert value("sparkplug", b"\xff", "$.seq", "bigint") == "! no payload of Sparkplug B"
    assert "compressed" in value("sparkplug", payload(uuid="SPBV1.0_COMPRESSED", body=b"x"), "$.seq", "bigint")
    odd = payload(metric("a", datatype=INT16_ARRAY, bytes_value=b"\x01"))
    assert "array of 1 bytes" in value("sparkplug", odd, "$.metrics.a[0]", "bigint")


# --- rows ---


def messages(*payloads: bytes, **more: list[Any]) -> pa.RecordBatch:
    rows = [
        {"node": "n", "log": "l", "offset": at, "time": at, "ts": at, "topic": "t", "client_id": None, "payload": each}
        for at, each in enumerate(payloads)
    ]
    fields = [ARROW_SCHEMA.field(name) for name in (*MESSAGE_COLUMNS, "payload")]
    table = pa.Table.from_pylist(rows, pa.schema(fields))
    for name, values in more.items():
        table = table.append_column(name, pa.array(values))
    return table.combine_chunks().to_batches()[0]


def test_each_message_is_a_row() -> None:
    rows = decoder("json", "$.t", "double", required=True)
    batch = rows.batch(messages(b'{"t": 1}', b"x", b"{}", b'{"t": 2}'))
    assert batch.schema == rows.schema
    found = batch.to_pylist()
    assert [each["offset"] for each in found] == [0, 1, 2, 3]
    assert [each["c"] for each in found] == [1.0, None, None, 2.0]
    assert [each["payload"] for each in found] == [None, b"x", b"{}", None]
    assert [each["outcome"] for each in found] == ["decoded", "undecoded", "undecoded", "decoded"]
    assert found[2]["reason"] == "column c double: is required and missing"


def test_what_was_resolved_is_decoded_and_what_came_is_kept() -> None:
    rows = decoder("sparkplug", "$.seq", "bigint")
    more: dict[str, list[Any]] = {RESOLVED: [payload(seq=1), None], FAULT: [None, "no birth" + "!" * 500]}
    came = messages(b"a", b"b", **more)
    first, second = rows.batch(came).to_pylist()
    assert (first["c"], first["payload"], first["reason"]) == (1, None, None)
    assert (second["c"], second["payload"], second["reason"][:8], len(second["reason"])) == (
        None,
        b"b",
        "no birth",
        200,
    )


FORMATS: dict[str, dict[str, Any]] = {
    "json": {},
    "cbor": {},
    "msgpack": {},
    "protobuf": MOTOR,
    "sparkplug": {},
}
DECODERS = [decoder(name, "$", type_, **more) for name, more in FORMATS.items() for type_ in TYPES]


@given(st.binary(max_size=60) | st.sampled_from([MOTOR_DATA, payload(metric("m", datatype=INT8, int_value=1))]))
def test_any_bytes_decode_or_go_aside(data: bytes) -> None:
    for rows in DECODERS:
        (found,) = rows.batch(messages(data)).to_pylist()
        assert (found["reason"] is None) == (found["outcome"] == "decoded") == (found["payload"] is None)
    edge = EdgeNode()
    try:
        assert edge.resolve(Place("g/n", "NBIRTH", ""), data) == data
    except Undecodable:
        assert not edge.births


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(TREES)
def test_json_is_read_as_python_reads_it(tree: object) -> None:
    data = json.dumps(tree).encode()
    try:
        found = decode_json(data)
    except Undecodable:
        assert b"Infinity" in data or len(data) > 4_000
        return
    assert found == json.loads(data)


@given(TREES, st.sampled_from(sorted(TYPES)))
def test_a_value_that_fits_is_not_changed(tree: object, type_: str) -> None:
    """What an Arrow array gives back is what came; only instants are other types."""
    try:
        fitted = TYPES[type_].fit(tree)
    except Undecodable:
        return
    found = pa.array([fitted], TYPES[type_].arrow)[0].as_py()
    if not type_.startswith("timestamp"):
        assert found == tree


@given(TREES, st.lists(st.text(min_size=1, max_size=3) | st.integers(0, 3), max_size=3))
def test_a_place_is_found_as_by_hand(tree: object, steps: list[str | int]) -> None:
    expected: Any = tree
    try:
        for step in steps:
            if isinstance(expected, str):
                raise TypeError("a text has no parts")
            expected = expected[step]
    except (KeyError, IndexError):
        expected = None
    except TypeError:
        if expected is not None:
            with pytest.raises(Undecodable):
                find(tree, tuple(steps))
            return
    assert find(tree, tuple(steps)) == expected
