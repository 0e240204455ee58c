"""Declared schemas: what a file may say, and which fault is named how."""

from __future__ import annotations

import pytest

from pipeline.decoding.schemas import DeclaredColumn, DeclaredSchema, SchemaError, read_schemas

WHOLE = """
schemas:
  climate:
    filter: plant/+/climate
    format: json
    columns:
      temperature: {path: $.t, type: double, required: true}
      unit: {type: string}
  motor:
    filter: motor/#
    format: protobuf
    descriptor: motor.desc
    message: plant.Motor
    columns:
      speed: {path: "$.state['speed']", type: bigint}
"""


def read_file(name: str) -> bytes:
    if name == "motor.desc":
        return b"descriptor"
    raise FileNotFoundError(2, "No such file", name)


def test_a_file_is_read() -> None:
    assert read_schemas(WHOLE, read_file) == [
        DeclaredSchema(
            "climate",
            "plant/+/climate",
            "json",
            (
                DeclaredColumn("temperature", "$.t", ("t",), "double", True),
                DeclaredColumn("unit", "$.unit", ("unit",), "string"),
            ),
        ),
        DeclaredSchema(
            "motor",
            "motor/#",
            "protobuf",
            (DeclaredColumn("speed", "$.state['speed']", ("state", "speed"), "bigint"),),
            b"descriptor",
            "plant.Motor",
        ),
    ]


def schema(columns: str = "{t: {type: double}}", **keys: str) -> str:
    found = {"filter": "a/#", "format": "json", "columns": columns, **keys}
    keys_text = ", ".join(f"{key}: {value}" for key, value in found.items() if value)
    return f"schemas: {{s: {{{keys_text}}}}}"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a: [", "is no YAML"),
        ("[1]", "the file is"),
        ("", "the file is missing"),
        ("schemas: {}", "schemas has 0 entries, may have 1 to"),
        ("other: 1", "key 'other'; known are schemas"),
        ("schemas: {A: {}}", r"schemas\.A: a name has"),
        ("schemas: {s: {filter: a, filter: b}}", "stands twice"),
        ("schemas: {s: {[1]: b}}", "no text"),
        ("schemas: {s: 1}", r"schemas\.s is 1, and must be a mapping"),
        (schema(filter=""), r"schemas\.s\.filter is missing"),
        (schema(filter="a/#/b"), r"schemas\.s\.filter 'a/#/b' is no topic filter"),
        (schema(filter="$share/g/a"), "shared subscription"),
        (schema(format="xml"), r"schemas\.s\.format is 'xml', which is not one of json, cbor"),
        (schema(more="1"), "key 'more'; known are filter, format"),
        (schema(message="M"), r"schemas\.s\.message is of format protobuf only"),
        (schema(format="protobuf"), r"schemas\.s\.message is missing"),
        (schema(format="protobuf", message="M", descriptor="x"), r"descriptor 'x' cannot be read: No such file"),
        (schema("{}"), r"columns has 0 entries"),
        (schema("{t: {type: float}}"), r"columns\.t\.type is 'float', which is not one of double"),
        (schema("{t: {path: t, type: double}}"), r"columns\.t\.path 't' is no path; right are"),
        (schema("{t: {type: double, required: 1}}"), "required is 1, may be true or false"),
        (schema("{t: {type: double, unit: C}}"), "key 'unit'; known are path, type, required"),
        (schema("{1t: {type: double}}"), r"columns\.1t: a name has"),
        (schema("{Topic: {type: double}}"), r"columns\.Topic: another column"),
        (schema("{t: {type: double}, T: {type: double}}"), r"columns\.T: another column"),
    ],
)
def test_what_is_wrong_is_named(text: str, named: str) -> None:
    with pytest.raises(SchemaError, match=named):
        read_schemas(text, read_file)
