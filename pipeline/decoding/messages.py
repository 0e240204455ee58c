"""Protobuf payloads by a descriptor file, as `protoc --include_imports --descriptor_set_out=FILE` writes it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from pipeline.decoding.paths import Undecodable
from pipeline.decoding.schemas import DeclaredSchema, SchemaError

TIMESTAMP: Final = "google.protobuf.Timestamp"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def message_decoder(schema: DeclaredSchema) -> Callable[[bytes], Any]:
    """Return what decodes the messages of a schema; that raises Undecodable. Raises SchemaError."""
    place = f"schemas.{schema.name}"
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(schema.descriptor)
    except DecodeError:
        raise SchemaError(f"{place}.descriptor is no file of protoc --include_imports --descriptor_set_out") from None
    pool = DescriptorPool()
    try:
        for file in files.file:
            pool.AddSerializedFile(file.SerializeToString())
    except TypeError as error:
        raise SchemaError(
            f"{place}.descriptor: {error}; protoc --include_imports writes one with all imports"
        ) from None
    try:
        descriptor = pool.FindMessageTypeByName(schema.message)
    except KeyError:
        names = ", ".join(
            f"{file.package}.{each.name}".lstrip(".") for file in files.file for each in file.message_type
        )
        raise SchemaError(f"{place}.message is {schema.message!r}; the descriptor has {names[:500]}") from None
    for column in schema.columns:
        _check_path(f"{place}.columns.{column.name}.path {column.path!r}", column.steps, descriptor)
    kind = message_factory.GetMessageClass(descriptor)

    def decode(payload: bytes) -> Any:
        try:
            message = kind.FromString(payload)
        except DecodeError:
            raise Undecodable(f"no message {schema.message}") from None
        if not message.IsInitialized():
            raise Undecodable(f"no message {schema.message}: required fields are missing")
        return tree_of(message)

    return decode


def _check_path(place: str, steps: tuple[str | int, ...], descriptor: Descriptor) -> None:
    """Raise SchemaError for a name that the message does not have."""
    known: Descriptor | None = descriptor
    for step in steps:
        if known is None or not isinstance(step, str):
            return
        field = known.fields_by_name.get(step)
        if field is None:
            raise SchemaError(
                f"{place}: {known.full_name} has no field {step}; it has {', '.join(known.fields_by_name)}"
            )
        known = None if field.is_repeated else field.message_type


def tree_of(message: Message) -> Any:
    """Fields by their names; those with presence that are not set are left out, others have their defaults."""
    if message.DESCRIPTOR.full_name == TIMESTAMP:
        return _instant(message)
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if not field.is_repeated:
            found[field.name] = _value(field, value)
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            of_map = field.message_type.fields_by_name["value"]
            found[field.name] = {key: _value(of_map, each) for key, each in value.items()}
        else:
            found[field.name] = [_value(field, each) for each in value]
    return found


def _value(field: Any, value: Any) -> Any:
    """An enumeration's name; the number as a text where the descriptor has none for it."""
    if field.message_type is not None:
        return tree_of(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value


def _instant(timestamp: Any) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=timestamp.seconds, microseconds=timestamp.nanos // 1000)
    except OverflowError:
        raise Undecodable(f"the time of {timestamp.seconds} seconds is not in the years 1 to 9999") from None
