"""Declared schemas: which payloads, by topic filter, have which format, and which of their values become columns.

The file is YAML; docs/pipeline-tables.md has its keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from broker.errors import MqttError
from broker.routing.names import SHARE_PREFIX, check_topic_filter
from pipeline.decoding.paths import Steps, read_path
from pipeline.decoding.values import TYPES

FORMATS: Final = ("json", "cbor", "msgpack", "protobuf", "sparkplug")
PROTOBUF: Final = "protobuf"
SPARKPLUG: Final = "sparkplug"
MESSAGE_COLUMNS: Final = ("node", "log", "offset", "time", "ts", "topic", "client_id")
OWN_COLUMNS: Final = (*MESSAGE_COLUMNS, "payload", "reason", "outcome", "date")
SCHEMAS_MAX: Final = 16  # each is a query of its own, with a Python process that plans it
COLUMNS_MAX: Final = 1_000
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_COLUMN: Final = re.compile(r"[A-Za-z_]\w{0,127}", re.ASCII)
_SCHEMA_KEYS: Final = ("filter", "format", "columns", "descriptor", "message")
_COLUMN_KEYS: Final = ("path", "type", "required")


class SchemaError(Exception):
    """A declaration that is not right; the text names the key and what would be right."""


@dataclass(frozen=True)
class DeclaredColumn:
    """required  a payload without this value goes aside"""

    name: str
    path: str
    steps: Steps
    type: str
    required: bool = False


@dataclass(frozen=True)
class DeclaredSchema:
    """descriptor  of format protobuf: a FileDescriptorSet, which `message` names a type of"""

    name: str
    filter: str
    format: str
    columns: tuple[DeclaredColumn, ...]
    descriptor: bytes = b""
    message: str = ""


def read_schemas(text: str, read_file: Callable[[str], bytes]) -> list[DeclaredSchema]:
    """The schemas of a file with this text. `read_file` reads a descriptor by its name. Raises SchemaError."""
    try:
        found = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise SchemaError(f"is no YAML: {' '.join(str(error).split())}") from None
    whole = _mapping("the file", found, ("schemas",))
    schemas = _mapping("schemas", whole.get("schemas"))
    if not 1 <= len(schemas) <= SCHEMAS_MAX:
        raise SchemaError(f"schemas has {len(schemas)} entries, may have 1 to {SCHEMAS_MAX}")
    return [_schema(str(name), each, read_file) for name, each in schemas.items()]


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice."""


def _pairs(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    pairs = [tuple(loader.construct_object(each, deep=True) for each in pair) for pair in node.value]
    try:
        found = dict(pairs)
    except TypeError:
        raise yaml.YAMLError(f"a key is no text{node.start_mark}") from None
    if len(found) < len(pairs):
        raise yaml.YAMLError(f"a key stands twice{node.start_mark}")
    return found


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _pairs)


def _schema(name: str, found: Any, read_file: Callable[[str], bytes]) -> DeclaredSchema:
    place = f"schemas.{name}"
    if _NAME.fullmatch(name) is None:
        raise SchemaError(f"{place}: a name has 1 to 64 of a-z, 0-9, _ and -, the first a letter or digit")
    keys = _mapping(place, found, _SCHEMA_KEYS)
    topic_filter = _text(f"{place}.filter", keys.get("filter"))
    try:
        check_topic_filter(topic_filter.encode())
    except MqttError as error:
        raise SchemaError(f"{place}.filter {topic_filter!r} is no topic filter: {error.text}") from None
    if topic_filter.startswith(SHARE_PREFIX.decode()):
        raise SchemaError(
            f"{place}.filter {topic_filter!r} is of a shared subscription; write the filter behind its group"
        )
    format_ = _text(f"{place}.format", keys.get("format"))
    if format_ not in FORMATS:
        raise SchemaError(f"{place}.format is {format_!r}, which is not one of {', '.join(FORMATS)}")
    descriptor, message = b"", ""
    if format_ == PROTOBUF:
        message = _text(f"{place}.message", keys.get("message"))
        file = _text(f"{place}.descriptor", keys.get("descriptor"))
        try:
            descriptor = read_file(file)
        except OSError as error:
            raise SchemaError(f"{place}.descriptor {file!r} cannot be read: {error.strerror}") from None
    else:
        for key in ("descriptor", "message"):
            if key in keys:
                raise SchemaError(f"{place}.{key} is of format {PROTOBUF} only")
    columns = tuple(_columns(f"{place}.columns", keys.get("columns")))
    return DeclaredSchema(name, topic_filter, format_, columns, descriptor, message)


def _columns(place: str, found: Any) -> Iterator[DeclaredColumn]:
    declared = _mapping(place, found)
    if not 1 <= len(declared) <= COLUMNS_MAX:
        raise SchemaError(f"{place} has {len(declared)} entries, may have 1 to {COLUMNS_MAX}")
    taken = set(OWN_COLUMNS)
    for name, each in declared.items():
        here = f"{place}.{name}"
        if not isinstance(name, str) or _COLUMN.fullmatch(name) is None:
            raise SchemaError(f"{here}: a name has letters, digits and _, the first no digit, 128 at most")
        if name.lower() in taken:  # names of Spark ignore case
            own = ", ".join(OWN_COLUMNS)
            raise SchemaError(f"{here}: another column has this name, in whatever case; each table has {own}")
        taken.add(name.lower())
        keys = _mapping(here, each, _COLUMN_KEYS)
        type_ = _text(f"{here}.type", keys.get("type"))
        if type_ not in TYPES:
            raise SchemaError(f"{here}.type is {type_!r}, which is not one of {', '.join(TYPES)}")
        path = _text(f"{here}.path", keys.get("path", f"$.{name}"))
        try:
            steps = read_path(path)
        except ValueError as error:
            raise SchemaError(f"{here}.path {path!r} {error}") from None
        required = keys.get("required", False)
        if not isinstance(required, bool):
            raise SchemaError(f"{here}.required is {required!r}, may be true or false")
        yield DeclaredColumn(name, path, steps, type_, required)


def _mapping(place: str, found: Any, known: tuple[str, ...] = ()) -> Mapping[Any, Any]:
    """`known` are all keys that it may have; () for any."""
    if not isinstance(found, dict):
        raise SchemaError(f"{place} is {'missing' if found is None else repr(found)[:40]}, and must be a mapping")
    for key in found:
        if known and key not in known:
            raise SchemaError(f"{place} has the key {key!r}; known are {', '.join(known)}")
    return found


def _text(place: str, found: Any) -> str:
    if not isinstance(found, str) or not found:
        raise SchemaError(f"{place} is {'missing' if found is None else repr(found)[:40]}, and must be a text")
    return found
