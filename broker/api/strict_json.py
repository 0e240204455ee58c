"""The API refuses JSON that the parser of protobuf lets pass: text that is not base64, a field that is given twice,
a list in place of an object, more values than a call can handle in one piece.

Names in the input may be those of the definition, their lowerCamelCase form, or the `json_name` that a definition sets.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from broker.api.errors import invalid_argument

VALUES_MAX: Final = 4096  # of one body, so that it is read within some 10 ms
WELL_KNOWN: Final = "google.protobuf."  # messages with a JSON form of their own: protobuf checks them
URL_ALPHABET: Final = str.maketrans("-_", "+/")
SHOWN_CHARACTERS_MAX: Final = 60  # of a value in an error
OBJECT: Final = "google.protobuf.Struct"
WHOLE_NUMBERS: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def load_object(text: str, descriptor: Descriptor) -> dict[str, Any]:
    """The JSON object for a message. Raises ApiError that names the place and what would be right there."""
    if count_values(text) > VALUES_MAX:
        raise invalid_argument(f"the body has more than {VALUES_MAX} values; send them in several requests")
    try:
        value = json.loads(text, object_pairs_hook=without_repetition)
    except RecursionError:
        raise invalid_argument("the body is nested too deeply") from None
    except ValueError as error:
        raise invalid_argument(f"the body is not JSON: {error}") from None
    return check_object(value, descriptor, "")


def count_values(text: str) -> int:
    """An upper bound of the number of values in a JSON text, without parsing it. Text within strings does not count."""
    unescaped = text.replace("\\\\", "").replace('\\"', "")
    quotes = unescaped.count('"')
    if quotes > 4 * VALUES_MAX:
        return quotes
    outside = "".join(unescaped.split('"')[::2])
    return 1 + outside.count(",") + outside.count("[") + outside.count("{")


def without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise invalid_argument(f'"{name}" is given more than once')
        found[name] = value
    return found


def find_field(descriptor: Descriptor, name: str) -> FieldDescriptor | None:
    if not name.isascii():
        return None  # protobuf's tables fail for a lone surrogate
    # The second table has the `json_name` of a field where its definition sets one.
    return descriptor.fields_by_name.get(name) or descriptor.fields_by_camelcase_name.get(name)


def has_own_name(field: Any) -> bool:
    """Return whether the definition sets a `json_name`, such as `apply-to`."""
    first, *words = field.name.split("_")
    return bool(field.json_name != first + "".join(word[:1].upper() + word[1:] for word in words))


def written_name(field: Any) -> str:
    return str(field.json_name if has_own_name(field) else field.name)


def check_object(value: object, descriptor: Descriptor, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise invalid_argument(f"{place or 'the body'} must be a JSON object: the fields of {descriptor.full_name}")
    seen: set[str] = set()
    for name, inner in value.items():
        field = find_field(descriptor, name)
        inner_place = f"{place}.{name}" if place else name
        if field is None:
            known = ", ".join(written_name(field) for field in descriptor.fields)
            raise invalid_argument(f'{inner_place}: there is no field named "{name}"; known here: {known or "none"}')
        if field.name in seen:
            raise invalid_argument(f"{inner_place}: {field.name} is given more than once")
        seen.add(field.name)
        if inner is not None:  # null stands for the default
            check_field(inner, field, inner_place)
    return value


def check_field(value: object, field: FieldDescriptor, place: str) -> None:
    is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
    if is_map:
        return  # the values of a map are scalars, which protobuf checks
    if not field.is_repeated:
        check_element(value, field, place)
        return
    if not isinstance(value, list):
        raise invalid_argument(f"{place} must be a list")
    for index, element in enumerate(value):
        check_element(element, field, f"{place}[{index}]")


def check_element(value: object, field: FieldDescriptor, place: str) -> None:
    if field.message_type is not None:
        if not field.message_type.full_name.startswith(WELL_KNOWN):
            check_object(value, field.message_type, place)
        elif field.message_type.full_name == OBJECT and not isinstance(value, dict):
            raise invalid_argument(f"{place} must be a JSON object")
    elif wanted := wanted_kind(value, field):
        raise invalid_argument(f"{place} must be {wanted}")


def wanted_kind(value: object, field: FieldDescriptor) -> str:
    """Return what a value of a scalar field must be; "" for a value that may be one. Protobuf checks numbers with a fraction
    and names of enumerations."""
    if field.type == FieldDescriptor.TYPE_BYTES:
        return "" if is_base64(value) else "text in base64: it stands for bytes"
    if field.type == FieldDescriptor.TYPE_STRING:
        return "" if isinstance(value, str) else "text"
    if field.type == FieldDescriptor.TYPE_BOOL:
        return "" if isinstance(value, bool) else "true or false"
    if field.cpp_type in WHOLE_NUMBERS:
        minimum, maximum = WHOLE_NUMBERS[field.cpp_type]
        if not is_whole(value, minimum, maximum):
            return f"a whole number of {minimum}..{maximum}, not {json.dumps(value)[:SHOWN_CHARACTERS_MAX]}"
    return ""


def is_whole(value: object, minimum: int, maximum: int) -> bool:
    """Return whether a value is a whole number in bounds. JSON has large ones as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    if isinstance(value, float) and not value.is_integer():
        return False
    try:
        return minimum <= int(value) <= maximum
    except ValueError:
        return False


def is_base64(value: object) -> bool:
    """Return whether a value is text in base64, of either alphabet, with or without padding."""
    if not isinstance(value, str):
        return False
    text = value.rstrip("=").translate(URL_ALPHABET)
    try:
        base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True
