"""Regular expressions of RabbitMQ's policies as topic filters, where a filter can say the same.

An expression has alternatives, and each one is `^`, levels, and `$` or an open end. A level is a text or `[^.]+`; levels are
separated by `\\.`. Everything else (a name that begins with a text but ends anywhere, classes, repetitions, look-ahead) has no
filter and raises PatternError.
"""

from __future__ import annotations

import re
from typing import Final

from federation.definitions.imports.namespaces import MQTT_EXCHANGE

PATTERN_CHARACTERS_MAX: Final = 1024
GROUPS_MAX: Final = 8  # inside each other
ALTERNATIVES_MAX: Final = 32  # of one expression, when all its groups are multiplied out

_START: Final = "^"
_END: Final = "$"
_ANY: Final = ".*"
_ONE: Final = "[^.]+"
_DOT: Final = "\\."
_TOKEN: Final = re.compile(
    r"(?P<any>\.[*+])|(?P<one>\[\^\\?\.\][*+])|(?P<group>\(\?:|\()(?!\?)|(?P<sign>[)|^$])|\\(?P<escaped>[^A-Za-z0-9])"
    r"|(?P<literal>[^\\.*+?\[\]{}()|^$])"
)

_ITEMS: Final = {"any": _ANY, "one": _ONE}

_Sequence = tuple[str, ...]
"""The parts of an alternative: _START, _END, _ANY, _ONE, _DOT, or one literal character each."""


class PatternError(ValueError):
    """The expression has no topic filter. The text names the expression and what would be right."""

    def __init__(self, pattern: str, text: str) -> None:
        super().__init__(f'pattern "{pattern[:100]}": {text}')


def filters_of(pattern: str) -> list[str]:
    """Topic filters without virtual host for the exchanges whose names match. Raises PatternError."""
    found = dict.fromkeys(_filter_of(pattern, sequence) for sequence in _alternatives(pattern))
    return ["#"] if "#" in found else list(found)


def names_of(pattern: str) -> list[str]:
    """The names that match, where they are a few; `+` stands for all names. Raises PatternError."""
    return list(dict.fromkeys(_name_of(pattern, sequence) for sequence in _alternatives(pattern)))


def _filter_of(pattern: str, sequence: _Sequence) -> str:
    body, is_exact = _body(pattern, sequence)
    if not body:
        return "#"
    if is_exact and _text(body) == MQTT_EXCHANGE:
        return "#"
    levels: list[list[str]] = [[]]
    for index, item in enumerate(body):
        if item == _ANY:
            if levels[-1] or index != len(body) - 1:
                raise PatternError(pattern, ".* can only be the end, behind \\.: a filter has # as its last level")
            break
        if item in (_DOT, "/"):
            levels.append([])
        else:
            levels[-1].append(item)
    else:
        if levels[-1] and not is_exact:
            raise PatternError(pattern, "names go on behind its end: end it with $, or with \\. for all names below")
    if levels[-1] == []:
        levels.pop()
    texts = []
    for level in levels:
        if _ONE in level and len(level) > 1:
            raise PatternError(pattern, "[^.]+ is only a part of a level: a filter has + as a whole level")
        texts.append("+" if level == [_ONE] else "".join(level))
    if texts[:1] == ["amq"]:
        raise PatternError(pattern, f"of the exchanges of RabbitMQ itself only {MQTT_EXCHANGE} has topics of MQTT")
    if any(not text or (text != "+" and ("+" in text or "#" in text)) for text in texts):
        raise PatternError(pattern, "an empty level, or + or # in a level, has no topic filter")
    return "/".join(texts) + "/#"


def _name_of(pattern: str, sequence: _Sequence) -> str:
    body, is_exact = _body(pattern, sequence)
    if not body or body == (_ANY,) or (body == (_ONE,) and is_exact):
        return "+"
    if not is_exact or _ANY in body or _ONE in body:
        raise PatternError(pattern, "it has more names than can be listed: write ^NAME$, or .* for all")
    return _text(body)


def _text(body: _Sequence) -> str:
    return "".join("." if item == _DOT else item for item in body)


def _body(pattern: str, sequence: _Sequence) -> tuple[_Sequence, bool]:
    """(what stands between the anchors, whether the name ends there)."""
    is_exact = sequence[-1:] == (_END,)
    body = sequence[:-1] if is_exact else sequence
    if body[:1] == (_START,):
        body = body[1:]
    elif body[:1] != (_ANY,) and body:
        raise PatternError(pattern, "it matches in the middle of a name: begin it with ^")
    if is_exact and not body:
        raise PatternError(pattern, "it matches only the exchange without a name, which is not federated")
    if _START in body or _END in body:
        raise PatternError(pattern, "^ can only be the beginning and $ only the end")
    if body[:1] == (_ANY,):
        if len(body) > 1:
            raise PatternError(pattern, "it matches in the middle of a name: begin it with ^ and a level")
        body = ()
    return body, is_exact and bool(body)


def _alternatives(pattern: str) -> list[_Sequence]:
    """The alternatives of an expression, its groups multiplied out."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise PatternError(pattern, f"an expression has at most {PATTERN_CHARACTERS_MAX} characters")
    outer: list[tuple[list[_Sequence], list[_Sequence]]] = []  # `done` and `begun` around each open group
    done: list[_Sequence] = []  # alternatives in front of the last |
    begun: list[_Sequence] = [()]
    position = 0
    while position < len(pattern):
        match = _TOKEN.match(pattern, position)
        if match is None:
            raise PatternError(pattern, _fault_at(pattern, position))
        position = match.end()
        token = match.group()
        if match["group"]:
            if len(outer) >= GROUPS_MAX:
                raise PatternError(pattern, f"more than {GROUPS_MAX} groups inside each other")
            outer.append((done, begun))
            done, begun = [], [()]
        elif token == ")":
            if not outer:
                raise PatternError(pattern, f") at character {position} ends no group")
            if pattern.startswith(("*", "+", "?", "{"), position):
                raise PatternError(pattern, "a group that is repeated has no topic filter")
            inner = done + begun
            done, begun = outer.pop()
            begun = [first + second for first in begun for second in inner]
        elif token == "|":
            done, begun = done + begun, [()]
        else:
            item = _ITEMS.get(str(match.lastgroup)) or (_DOT if token == _DOT else match["escaped"] or token)
            begun = [(*sequence, item) for sequence in begun]
        if len(done) + len(begun) > ALTERNATIVES_MAX:
            raise PatternError(pattern, f"more than {ALTERNATIVES_MAX} alternatives")
    if outer:
        raise PatternError(pattern, "a group has no )")
    return done + begun


def _fault_at(pattern: str, position: int) -> str:
    where = f"at character {position + 1}"
    if pattern[position] == ".":
        return f". {where} matches any character, which a filter cannot say: write \\. for the dot itself"
    if pattern.startswith("(?", position):
        return f"look-ahead and other (? {where} have no topic filter: name the exchanges that are wanted"
    return f"{pattern[position]} {where} has no topic filter: use levels, \\., [^.]+, .* at the end, and (A|B)"
