"""The OpenAPI 3.0 description of the REST API, made from the definitions and their comments.

A comment that ends with `Example: ` and JSON gives its message or field that example.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from broker.api.route import Route
from broker.api.strict_json import written_name
from broker.api.transcoding import query_fields

Schema = dict[str, Any]

OPENAPI_VERSION: Final = "3.0.3"
ERROR_SCHEMA: Final = "Error"
# Messages of protobuf with a JSON form of their own.
WELL_KNOWN: Final[dict[str, Schema]] = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Struct": {"type": "object"},
    "google.protobuf.Value": {},
}
EXAMPLE_MARK: Final = "Example: "

# Protobuf's JSON mapping: 64-bit numbers are strings, bytes are base64. The documentation page fills its forms with the
# example where there is one, and with the maximum where there is none.
INT32: Final[Schema] = {"type": "integer", "format": "int32"}
UINT32: Final[Schema] = {"type": "integer", "format": "int64", "minimum": 0, "maximum": 2**32 - 1, "example": 0}
INT64: Final[Schema] = {"type": "string", "format": "int64", "example": "0"}
UINT64: Final[Schema] = {"type": "string", "format": "uint64", "example": "0"}
SCALARS: Final[dict[int, Schema]] = {
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "format": "byte", "example": "AA=="},
    FieldDescriptor.TYPE_DOUBLE: {"type": "number", "format": "double"},
    FieldDescriptor.TYPE_FLOAT: {"type": "number", "format": "float"},
    FieldDescriptor.TYPE_INT32: INT32,
    FieldDescriptor.TYPE_SINT32: INT32,
    FieldDescriptor.TYPE_SFIXED32: INT32,
    FieldDescriptor.TYPE_UINT32: UINT32,
    FieldDescriptor.TYPE_FIXED32: UINT32,
    FieldDescriptor.TYPE_INT64: INT64,
    FieldDescriptor.TYPE_SINT64: INT64,
    FieldDescriptor.TYPE_SFIXED64: INT64,
    FieldDescriptor.TYPE_UINT64: UINT64,
    FieldDescriptor.TYPE_FIXED64: UINT64,
}


class OpenApi:
    """One description. It collects the schemas that the operations refer to."""

    def __init__(self, version: str, needs_token: bool = False) -> None:
        self._version = version
        self._needs_token = needs_token
        self._schemas: Schema = {ERROR_SCHEMA: error_schema()}
        self._comments: dict[str, str] = {}
        self._files: set[str] = set()

    def document(self, routes: Iterable[Route]) -> Schema:
        paths: dict[str, Schema] = {}
        tags: dict[str, Schema] = {}
        for route in routes:
            service = route.method.descriptor.containing_service
            self._read_comments(service.file.name)
            tags.setdefault(service.name, self._commented({"name": service.name}, service.full_name))
            paths.setdefault(route.template, {})[route.verb.lower()] = self._operation(route)
        document: Schema = {
            "openapi": OPENAPI_VERSION,
            "info": {"title": "gmqttd", "version": self._version, "description": "The API of one node, over REST."},
            "tags": list(tags.values()),
            "paths": paths,
            "components": {"schemas": dict(sorted(self._schemas.items()))},
        }
        if self._needs_token:
            document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"token": []}]
        return document

    def _read_comments(self, file_name: str) -> None:
        """Read the comments of a definition, which scripts/build_proto writes beside the generated code."""
        if file_name in self._files:
            return
        self._files.add(file_name)
        try:
            module = importlib.import_module(f"{file_name.removesuffix('.proto').replace('/', '.')}_comments")
        except ModuleNotFoundError:
            return  # the plugin of another distribution: its definition is described without comments
        self._comments.update(module.COMMENTS)

    def _operation(self, route: Route) -> Schema:
        method = route.method.descriptor
        operation: Schema = {
            "tags": [method.containing_service.name],
            "operationId": f"{method.containing_service.name}_{method.name}",
            "parameters": [
                self._parameter(method.input_type.fields_by_name[name], "path") for name in route.path_fields()
            ],
            "responses": {
                "200": response("The call's result.", self._reference(method.output_type), route.method.is_stream),
                "default": response("An error.", {"$ref": f"#/components/schemas/{ERROR_SCHEMA}"}),
            },
        }
        if route.has_body:
            schema = self._reference(method.input_type)
            operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
        else:
            fields = query_fields(method.input_type, route.path_fields())
            operation["parameters"] += [self._parameter(field, "query") for field in fields]
        comment = self._comments.get(method.full_name, "")
        if comment:
            operation["summary"] = comment
        return operation

    def _parameter(self, field: FieldDescriptor, place: str) -> Schema:
        parameter: Schema = {"name": field.name, "in": place, "schema": self._field(field)}
        if place == "path":
            parameter["required"] = True
        return self._commented(parameter, field.full_name)

    def _field(self, field: FieldDescriptor) -> Schema:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return {"type": "object", "additionalProperties": self._element(field.message_type.fields_by_name["value"])}
        element = self._element(field)
        return {"type": "array", "items": element} if field.is_repeated else element

    def _element(self, field: FieldDescriptor) -> Schema:
        if field.message_type is not None:
            return self._reference(field.message_type)
        if field.enum_type is not None:
            return self._enum(field.enum_type)
        return dict(SCALARS[field.type])

    def _reference(self, descriptor: Descriptor) -> Schema:
        if descriptor.full_name in WELL_KNOWN:
            return dict(WELL_KNOWN[descriptor.full_name])
        name = descriptor.full_name
        if name not in self._schemas:
            self._schemas[name] = {}  # entered first: a message may contain itself
            properties = {written_name(field): self._property(field) for field in descriptor.fields}
            self._schemas[name] = self._commented({"type": "object", "properties": properties}, name)
        return {"$ref": f"#/components/schemas/{name}"}

    def _property(self, field: FieldDescriptor) -> Schema:
        schema = self._field(field)
        if "$ref" in schema and field.full_name in self._comments:
            schema = {"allOf": [schema]}  # a description beside $ref is ignored
        return self._commented(schema, field.full_name)

    def _enum(self, descriptor: EnumDescriptor) -> Schema:
        name = descriptor.full_name
        if name not in self._schemas:
            values = [value.name for value in descriptor.values]
            schema = self._commented({"type": "string", "enum": values}, name)
            lines = [
                schema.get("description", ""),
                *(f"{v.name}: {c}" for v in descriptor.values if (c := self._of(v))),
            ]
            if any(lines):
                schema["description"] = "\n\n".join(line for line in lines if line)
            self._schemas[name] = schema
        return {"$ref": f"#/components/schemas/{name}"}

    def _of(self, value: Any) -> str:
        return self._comments.get(f"{value.type.full_name}.{value.name}", "")

    def _commented(self, schema: Schema, full_name: str) -> Schema:
        description, _, example = self._comments.get(full_name, "").partition(EXAMPLE_MARK)
        if description:
            schema["description"] = description.rstrip()
        if example:
            schema["example"] = json.loads(example)
        return schema


def response(text: str, schema: Schema, is_stream: bool = False) -> Schema:
    content_type = "text/event-stream" if is_stream else "application/json"
    return {"description": text, "content": {content_type: {"schema": schema}}}


def error_schema() -> Schema:
    return {
        "type": "object",
        "properties": {
            "code": {"type": "integer", "description": "gRPC status code: 3 is INVALID_ARGUMENT."},
            "message": {"type": "string", "description": "What is wrong, and what would be right."},
            "details": {"type": "array", "items": {"type": "object"}, "description": "Always empty."},
        },
    }
