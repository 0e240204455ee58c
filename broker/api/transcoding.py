"""Between HTTP and protobuf: a request message from path, query and JSON body; JSON from a response message.

Names in the input may be those of the definition or their lowerCamelCase form; the output has those of the definition.
A message of which one field has a `json_name` of its own has them for all fields that would differ.
As the Go broker's gateway does, the input may have query parameters that no field has, and the output has zero values
and empty lists.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from broker.api.errors import invalid_argument
from broker.api.long_calls import Steps
from broker.api.route import Route
from broker.api.strict_json import find_field, has_own_name, load_object, written_name

INDENT: Final = "    "  # people read answers with curl as often as programs do
JSON_DEPTH_MAX: Final = 32  # nested messages; the definitions need three
ERROR_CHARACTERS_MAX: Final = 500  # of an error of protobuf, which quotes the value: it may be the whole body
JSON_VALUES: Final = ("google.protobuf.Value", "google.protobuf.Struct")
PYTHON_WORDS: Final = "invalid literal for int() with base 10"
TRUE_TEXTS: Final = ("1", "t", "true")
FALSE_TEXTS: Final = ("0", "f", "false")


def read_request(route: Route, path_fields: dict[str, str], query: Iterable[tuple[str, str]], body: bytes) -> Message:
    """The request message. Raises ApiError (INVALID_ARGUMENT) that names the field."""
    request = route.method.request_class()
    if route.has_body:
        if body.strip():
            merge_json(request, route.method.descriptor.input_type, body)
    elif body.strip():
        raise invalid_argument(f"{route.verb} {route.template} takes no body: the fields are query parameters")
    else:
        merge_query(request, route.method.descriptor.input_type, query, path_fields)
    for name, value in path_fields.items():
        given = getattr(request, name)
        if given and str(given) != value:
            shown = one_line(f'"{given}" in the body and "{value}" in the path')
            raise invalid_argument(f"{name} is {shown}; leave it out of the body")
        merge_value(request, name, value)
    return request


def merge_json(request: Message, descriptor: Descriptor, body: bytes) -> None:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise invalid_argument(f"the body is not UTF-8: byte {error.start} is wrong") from None
    value = load_object(text, descriptor)
    try:
        json_format.ParseDict(value, request, max_recursion_depth=JSON_DEPTH_MAX)
    except (json_format.ParseError, ValueError, TypeError) as error:
        raise invalid_argument(f"the body does not fit {descriptor.full_name}: {one_line(error)}") from None


def merge_query(
    request: Message, descriptor: Descriptor, query: Iterable[tuple[str, str]], path_fields: dict[str, str]
) -> None:
    given: dict[str, list[str | bool]] = {}
    for name, text in query:
        field = find_field(descriptor, name)
        if field is None or field.name in path_fields or field.message_type is not None:
            continue
        given.setdefault(field.name, []).append(query_value(field, text))
    for name, values in given.items():
        if descriptor.fields_by_name[name].is_repeated:
            merge_value(request, name, values)
        elif len(values) > 1:
            raise invalid_argument(f'query parameter "{name}" is given {len(values)} times, it takes one value')
        else:
            merge_value(request, name, values[0])


def query_fields(descriptor: Descriptor, path_fields: Iterable[str]) -> list[FieldDescriptor]:
    return [field for field in descriptor.fields if field.message_type is None and field.name not in path_fields]


def query_value(field: FieldDescriptor, text: str) -> str | bool:
    """Protobuf's JSON takes numbers as text, but not booleans."""
    if field.type != FieldDescriptor.TYPE_BOOL:
        return text
    if text.lower() in TRUE_TEXTS:
        return True
    if text.lower() in FALSE_TEXTS:
        return False
    raise invalid_argument(f'query parameter "{field.name}" is "{text}", must be true or false')


def merge_value(request: Message, name: str, value: str | bool | list[str | bool]) -> None:
    try:
        json_format.ParseDict({name: value}, request)
    except (json_format.ParseError, ValueError) as error:
        raise invalid_argument(f'"{name}" does not fit: {one_line(error)}') from None


def one_line(error: object) -> str:
    """A text that quotes a value, such as an error of protobuf, which names the field: on one line, without words of Python."""
    text = " ".join(str(error).split())
    text = text.replace(PYTHON_WORDS, "not a whole number")
    return text if len(text) <= ERROR_CHARACTERS_MAX else f"{text[:ERROR_CHARACTERS_MAX]}…"


def write_response(response: Message) -> Steps[str]:
    """The JSON of a response, in steps of one element of its lists. The lists are taken out of the response."""
    lists: dict[str, str] = {}
    for field in response.DESCRIPTOR.fields:
        if field.is_repeated and field.message_type is not None and not field.message_type.GetOptions().map_entry:
            elements = []
            for element in getattr(response, field.name):
                elements.append(indented(as_json(as_values(element)), 2))
                yield
            lists[field.name] = f"[{','.join(elements)}\n{INDENT}]" if elements else "[]"
            response.ClearField(field.name)
    values = as_values(response)
    members = [
        f'\n{INDENT}"{name}": {lists.get(field.name) or indented(as_json(values[name]), 1).strip()}'
        for field in response.DESCRIPTOR.fields
        if (name := written_name(field)) in values
    ]
    return f"{{{','.join(members)}\n}}" if members else "{}"


def as_values(message: Message) -> dict[str, Any]:
    """The fields of a message as JSON has them."""
    own_names = any(has_own_name(field) for field in message.DESCRIPTOR.fields)
    values: dict[str, Any] = json_format.MessageToDict(
        message, preserving_proto_field_name=not own_names, always_print_fields_with_no_presence=True
    )
    for field in message.DESCRIPTOR.fields:
        name = written_name(field)
        if name in values and field.message_type is not None and field.message_type.full_name in JSON_VALUES:
            values[name] = _with_whole_numbers(values[name])
    return values


def _with_whole_numbers(value: Any) -> Any:
    """A JSON value that went through protobuf, which has floats only."""
    if isinstance(value, dict):
        return {key: _with_whole_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def as_json(value: object) -> str:
    return json.dumps(value, indent=INDENT, ensure_ascii=False)


def indented(text: str, depth: int) -> str:
    """A JSON text on lines of its own, `depth` levels in. Line ends within strings are escaped and stay."""
    return ("\n" + text).replace("\n", "\n" + INDENT * depth)
