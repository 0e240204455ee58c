"""The expression of `federation-upstream-pattern`, matched against names of upstreams in bounded time.

It is a part of the regular expressions of RabbitMQ (and of Python) whose worst case is known: quantifiers stand behind
single characters and classes only, and at most REPEATS_MAX of them are `*` or `+`. A name has at most 128 bytes.
"""

from __future__ import annotations

import re
from typing import Final

from federation.definitions.error import DefinitionError, shown

PATTERN_BYTES_MAX: Final = 256
REPEATS_MAX: Final = 3

_CLASS: Final = r"\[\^?\]?(?:\\[^\dpPNuUxo]|[^\]\\\[])*\]"
_ATOM: Final = re.compile(rf"(?:\\[\W_dDsSwW]|{_CLASS}|[^\\\[\]()|*+?{{}}^$])([*+?]?)")


class UpstreamPattern:
    """Raises DefinitionError that names `key` for an expression outside of this syntax."""

    def __init__(self, text: str, key: str = "definition.federation-upstream-pattern") -> None:
        if len(text.encode()) > PATTERN_BYTES_MAX:
            raise DefinitionError(key, f"an expression has at most {PATTERN_BYTES_MAX} bytes")
        _check(text, key)
        try:
            self._pattern = re.compile(text)
        except re.error as error:
            raise DefinitionError(key, f"{shown(text)} is no regular expression: {error.msg}") from None

    def matches(self, name: str) -> bool:
        """Return whether the expression is found in a name, at any place unless it has ^ or $."""
        return self._pattern.search(name) is not None


def _check(text: str, key: str) -> None:
    position = repeats = 0
    while position < len(text):
        if text[position] in "()|^$":
            is_special = text.startswith("(?", position)
            is_repeated = text[position] == ")" and text[position + 1 : position + 2] in ("*", "+", "?", "{")
            if is_special or is_repeated:
                what = "(? is not possible" if is_special else "a group cannot be repeated"
                raise DefinitionError(key, f"{shown(text)}: {what} here; use . * + ? | [] ( ) ^ $")
            position += 1
            continue
        match = _ATOM.match(text, position)
        if match is None:
            raise DefinitionError(
                key, f"{shown(text)} cannot be read at character {position + 1}; use . * + ? | [] ( ) ^ $"
            )
        repeats += match.group(1) in ("*", "+")
        position = match.end()
    if repeats > REPEATS_MAX:
        raise DefinitionError(key, f"{shown(text)} has {repeats} of * and +, at most {REPEATS_MAX} are possible")
