"""The error of a definition that cannot be meant, and the values of its keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any, Final

NAME_BYTES_MAX: Final = 128
TEXT_BYTES_MAX: Final = 4096
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
NOT_IN_NAME: Final = re.compile(r"[/+#]")  # a name is one level of a topic below $SYS


class DefinitionError(ValueError):
    """A definition is refused. `key` is the path of the key in the body of the definition, `text` says what would be right.

    The text never has a value that may be a secret.
    """

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key}: {text}" if key else text)
        self.key = key
        self.text = text

    def below(self, key: str) -> DefinitionError:
        """The same error of a definition that stands at `key` of another."""
        inner = key + self.key if self.key.startswith("[") or not self.key else f"{key}.{self.key}"
        return DefinitionError(inner, self.text)


def check_name(key: str, name: object) -> str:
    """The name of an upstream, a set or a policy. Raises DefinitionError."""
    text = read_text(key, name, NAME_BYTES_MAX)
    if NOT_IN_NAME.search(text) or text != text.strip():
        raise DefinitionError(key, f"{shown(text)} is no name: a name has no /, + or #, and no blank at its ends")
    return text


def read_mapping(key: str, value: object, known: Mapping[str, object]) -> dict[str, object]:
    """An object of JSON whose keys are all known; keys with null are left out. Raises DefinitionError."""
    if not isinstance(value, Mapping):
        raise DefinitionError(key, f"{shown(value)} is not an object; its keys are {', '.join(known)}")
    found: dict[str, object] = {}
    for name, inner in value.items():
        if not isinstance(name, str) or name not in known:
            word = shown(str(name)).strip('"')
            raise DefinitionError(f"{key}.{word}" if key else word, f"unknown key; {nearest(str(name), known)}")
        if inner is not None:
            found[name] = inner
    return found


Readers = Mapping[str, tuple[str, Callable[[str, object], Any]]]
"""By key in JSON: the field ("" for none), and the function that reads its value."""


def read_fields(
    prefix: str, value: object, readers: Readers, ignored: Mapping[str, str] | None = None
) -> tuple[tuple[str, Any], ...]:
    """The keys that an object sets, as (field, value) sorted by field. `prefix` is for errors; the values of keys that are
    `ignored` are not read."""
    found = read_mapping(prefix, value, {**readers, **(ignored or {})})
    fields: dict[str, Any] = {}
    for key, inner in found.items():
        if key in readers:
            field, read = readers[key]
            fields[field] = read(f"{prefix}.{key}" if prefix else key, inner)
    fields.pop("", None)
    return tuple(sorted(fields.items()))


def nearest(word: str, known: Collection[str]) -> str:
    """Name what an unknown word may have been meant for."""
    near = get_close_matches(word, list(known), n=1)
    return f"the nearest known one is {near[0]}" if near else f"known are {', '.join(known)}"


def read_text(key: str, value: object, bytes_max: int = TEXT_BYTES_MAX) -> str:
    if not isinstance(value, str) or not value:
        raise DefinitionError(key, f"{shown(value)} is not a text of 1..{bytes_max} bytes")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise DefinitionError(key, "the text has a half of a surrogate pair, which is not UTF-8") from None
    if size > bytes_max or CONTROL.search(value):
        raise DefinitionError(key, f"{shown(value)} is not a text of 1..{bytes_max} bytes without control characters")
    return value


def read_flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise DefinitionError(key, f"{shown(value)} is not true or false")
    return value


def read_whole(key: str, value: object, minimum: int, maximum: int) -> int:
    # JSON that went through a protobuf Struct has its whole numbers as floats.
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(number, bool) or not isinstance(number, int) or not minimum <= number <= maximum:
        raise DefinitionError(key, f"{shown(value)} is not a whole number of {minimum}..{maximum}")
    return number


def read_number(key: str, value: object, minimum: float, maximum: float, unit: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= maximum:
        raise DefinitionError(key, f"{shown(value)} is not a number of {minimum:g}..{maximum:.15g} {unit}")
    return float(value)


def read_word(key: str, value: object, words: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in words:
        near = get_close_matches(str(value)[:64].lower(), words, n=1)
        hint = f"; the nearest is {near[0]}" if near else ""
        raise DefinitionError(key, f"{shown(value)} is not one of {', '.join(words)}{hint}")
    return value


def shown(value: object) -> str:
    """A value for an error text: quoted, at most 60 characters of it. A URI may have a password, wherever it stands."""
    if isinstance(value, str):
        if "://" in value:
            return "a URI"
        text = CONTROL.sub("?", value[:60]).encode("utf-8", "replace").decode()
        return f'"{text}…"' if len(value) > 60 else f'"{text}"'
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "nothing"
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)[:60]
    return "an object" if isinstance(value, Mapping) else "a list"
