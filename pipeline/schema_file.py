"""The file that declares schemas for payloads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any

import pyarrow as pa

from broker.event_log.selection import Selection
from gmqttctl.text import printable
from pipeline.decoding.births import EdgeNode, read_topic
from pipeline.decoding.paths import Undecodable
from pipeline.decoding.rows import RowDecoder
from pipeline.decoding.schemas import SPARKPLUG, DeclaredSchema, SchemaError, read_schemas
from pipeline.decoding.values import TYPES
from pipeline.errors import OptionError


def load_schemas(file: str) -> list[DeclaredSchema]:
    """The schemas of a file; descriptors stand beside it. Each has a decoder. Raises OptionError."""
    path = Path(file)
    try:
        found = read_schemas(path.read_text(encoding="utf-8"), lambda name: (path.parent / name).read_bytes())
        for schema in found:
            RowDecoder(schema)
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(
            "schemas", file, f"cannot be read: {error}. It is a YAML file that declares schemas"
        ) from None
    except SchemaError as error:
        raise OptionError("schemas", file, f"is not right: {error}") from None
    return found


def shown(schemas: Iterable[DeclaredSchema], topic: str = "", payload: bytes | None = None) -> dict[str, Any]:
    """The tables that schemas make. With a payload: those whose filter has the topic, and the row, or why there is none."""
    found = []
    for schema in schemas:
        if payload is not None and not Selection([schema.filter.encode()]).has(topic.encode()):
            continue
        each: dict[str, Any] = {
            "schema": schema.name,
            "filter": schema.filter,
            "format": schema.format,
            "columns": {column.name: {"type": column.type, "path": column.path} for column in schema.columns},
        }
        if payload is not None:
            values, each["reason"] = row_of(schema, topic, payload)
            each["row"] = dict(zip(each["columns"], values, strict=True))
        found.append(each)
    return {"schemas": found}


def row_of(schema: DeclaredSchema, topic: str, payload: bytes) -> tuple[list[Any], str | None]:
    """(values for JSON, why there are none) of one payload. One of Sparkplug is taken as the first of its edge node."""
    try:
        if schema.format == SPARKPLUG:
            payload = EdgeNode().resolve(read_topic(topic), payload)
    except Undecodable as reason:
        return [None] * len(schema.columns), str(reason)
    values, why = RowDecoder(schema).row(payload)
    types = (TYPES[column.type].arrow for column in schema.columns)
    return [_for_json(pa.array([value], kind)[0].as_py()) for value, kind in zip(values, types, strict=True)], why


def _for_json(value: Any) -> Any:
    """Bytes as hexadecimal digits, instants as RFC 3339, numbers that JSON does not have as texts."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def schema_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The result of `shown` for people."""
    if not found["schemas"]:
        yield "no schema has this topic"
    for each in found["schemas"]:
        yield f"decoded-{each['schema']}: {each['format']}, {each['filter']}"
        if each.get("reason"):
            yield f"    does not decode: {printable(each['reason'])}"
            continue
        for name, column in each["columns"].items():
            value = f" = {printable(str(each['row'][name]))}" if "row" in each else ""
            yield f"    {name} {column['type']}  {column['path']}{value}"
