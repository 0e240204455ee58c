"""The google.api.http option of a method as a route: the HTTP method, the path template, the place of the fields."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from google.api import annotations_pb2  # type: ignore[import-untyped]
from google.protobuf.descriptor import FieldDescriptor

from broker.api.errors import invalid_argument
from broker.api.method import ApiMethod

VERBS: Final = ("get", "put", "post", "delete", "patch")
FIELD_SEGMENT: Final = re.compile(r"\{([a-z_][a-z0-9_]*)\}")
LITERAL_SEGMENT: Final = re.compile(r"[A-Za-z0-9._~-]+")


class Route:
    """One HTTP method and path template of an API method.

    template  as in the definition: `/v1/clients/{client_id}`. A field is one segment; %2F in it is a slash of the value
    has_body  `body: "*"`. All other fields are one JSON object in the body; otherwise they are query parameters
    """

    __slots__ = ("has_body", "method", "segments", "template", "verb")

    def __init__(self, method: ApiMethod, verb: str, template: str, body: str) -> None:
        if body not in ("", "*"):
            raise ValueError(f'{method.descriptor.full_name}: body "{body}" is not possible, only "*"')
        self.method = method
        self.verb = verb
        self.template = template
        self.has_body = body == "*"
        self.segments = tuple(template.removeprefix("/").split("/"))
        for segment in self.segments:
            name = field_name(segment)
            if not name and not LITERAL_SEGMENT.fullmatch(segment):
                raise ValueError(
                    f'{method.descriptor.full_name}: "{segment}" of {template} is neither a name nor a {{field}}'
                )
            if name and not is_text(method.descriptor.input_type.fields_by_name.get(name)):
                raise ValueError(f"{method.descriptor.full_name}: {{{name}}} of {template} is not a text field")

    def path_fields(self) -> list[str]:
        return [name for segment in self.segments if (name := field_name(segment))]

    def match(self, segments: list[str]) -> dict[str, str] | None:
        """The fields in the segments of a percent-encoded path, None when the path is another one."""
        if len(segments) != len(self.segments):
            return None
        values: dict[str, str] = {}
        for own, given in zip(self.segments, segments, strict=True):
            name = field_name(own)
            if name and given:
                values[name] = decoded(given, name)
            elif own != given:
                return None
        return values


def is_text(field: FieldDescriptor | None) -> bool:
    return field is not None and field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated


def field_name(segment: str) -> str:
    """`client_id` of `{client_id}`, empty for a literal segment."""
    match = FIELD_SEGMENT.fullmatch(segment)
    return match.group(1) if match else ""


def decoded(segment: str, name: str) -> str:
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise invalid_argument(f"{name} in the path is not UTF-8") from None


def method_routes(method: ApiMethod) -> list[Route]:
    """The routes of a method's option, none without the option. Raises ValueError for an option that has no route here."""
    options = method.descriptor.GetOptions()
    if not options.HasExtension(annotations_pb2.http):
        return []
    rule = options.Extensions[annotations_pb2.http]
    routes: list[Route] = []
    for binding in (rule, *rule.additional_bindings):
        verb = binding.WhichOneof("pattern")
        if verb not in VERBS or binding.response_body:
            raise ValueError(f"{method.descriptor.full_name}: only {', '.join(VERBS)} and whole responses are possible")
        routes.append(Route(method, verb.upper(), getattr(binding, verb), binding.body))
    return routes
