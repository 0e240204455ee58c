"""Erlang terms as they stand in a `rabbitmq.config` file, read from text. Each term knows its line.

Read are atoms, strings, binaries, numbers, lists and tuples (Erlang Reference Manual, "Data Types"). Maps, funs, variables
and `[Head|Tail]` do not occur in such files and are refused. A term ends with `.`; the last one of a text may end without it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

TEXT_CHARACTERS_MAX: Final = 4 * 2**20  # of a file
NESTING_MAX: Final = 64  # lists and tuples inside each other
DIGITS_MAX: Final = 40  # of an integer

_TOKEN: Final = re.compile(
    r"""
      (?P<space>[ \t\r\f\v]+|%[^\n]*)
    | (?P<newline>\n)
    | (?P<float>[+-]?[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    | (?P<based>[+-]?[0-9]{1,2}\#[0-9A-Za-z]+)
    | (?P<integer>[+-]?[0-9]+)
    | (?P<character>\$(?:\\.|[^\\\s]))
    | (?P<atom>[a-z][A-Za-z0-9_@]*)
    | (?P<quoted>'(?:[^'\\]|\\.)*')
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<sign><<|>>|[\[\]{},.|])
    """,
    re.VERBOSE | re.DOTALL,
)
_ARTICLES: Final = {"atom": "an", "integer": "an"}
_ESCAPE: Final = re.compile(r"\\(x\{[0-9A-Fa-f]+\}|x[0-9A-Fa-f]{2}|[0-7]{1,3}|\^.|.)", re.DOTALL)
_ESCAPES: Final = {"b": "\b", "d": "\x7f", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "s": " ", "t": "\t", "v": "\v"}


class TermError(ValueError):
    """The text is no Erlang term, or not the one that is wanted. The text begins with the line."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"line {line}: {text}")


@dataclass(frozen=True, slots=True)
class Atom:
    """A name that stands for itself, such as `true` or `'EXTERNAL'`."""

    name: str

    def __str__(self) -> str:
        return self.name if re.fullmatch(r"[a-z][A-Za-z0-9_@]*", self.name) else f"'{self.name}'"


@dataclass(frozen=True, slots=True)
class Term:
    """A value and the line where it begins. A string and a binary are both `str`."""

    value: Atom | str | int | float | list[Term] | tuple[Term, ...]
    line: int

    def kind(self) -> str:
        """Name the term in an error."""
        value = self.value
        if isinstance(value, Atom):
            return "an atom"
        if isinstance(value, tuple):
            return f"a tuple of {len(value)}"
        return {str: "a string", int: "an integer", float: "a float", list: "a list"}[type(value)]


def parse_terms(text: str) -> list[Term]:
    """All terms of a text. Raises TermError."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise TermError(1, f"the file has more than {TEXT_CHARACTERS_MAX} characters")
    return _Reader(_tokens(text)).terms()


class _Token(NamedTuple):
    kind: str
    text: str
    line: int

    def shown(self) -> str:
        """The token in an error. Of texts only the kind: a password may be torn by a wrong quote."""
        return self.text if self.kind in ("sign", "end") else f"{_ARTICLES.get(self.kind, 'a')} {self.kind}"


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    position = 0
    line = 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            if text[position] in "\"'":
                raise TermError(line, f"the {text[position]} that begins here has no end")
            raise TermError(line, f"the character {text[position]!a} begins no Erlang term")
        kind = str(match.lastgroup)
        if kind not in ("space", "newline"):
            found.append(_Token(kind, match.group(), line))
        line += match.group().count("\n")
        position = match.end()
    found.append(_Token("end", "the end of the file", line))
    return found


class _Reader:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._index = 0

    def terms(self) -> list[Term]:
        found: list[Term] = []
        while self._next().kind != "end":
            found.append(self._term(0))
            if self._next().kind != "end":
                self._expect(".", "the end of a term")
        return found

    def _next(self) -> _Token:
        return self._tokens[self._index]

    def _take(self) -> _Token:
        token = self._tokens[self._index]
        self._index += token.kind != "end"
        return token

    def _expect(self, sign: str, what: str) -> None:
        token = self._take()
        if token.text != sign or token.kind != "sign":
            raise TermError(token.line, f"{token.shown()} stands where {what} ({sign}) is expected")

    def _term(self, depth: int) -> Term:
        token = self._take()
        if depth > NESTING_MAX:
            raise TermError(token.line, f"more than {NESTING_MAX} lists and tuples inside each other")
        line = token.line
        match token.kind, token.text:
            case "atom", text:
                return Term(Atom(text), line)
            case "quoted", text:
                return Term(Atom(_unescaped(text[1:-1], line)), line)
            case "string", text:
                return Term(self._string(text, line), line)
            case "integer", text:
                return Term(_integer(text, 10, line), line)
            case "based", text:
                sign, base, digits = _parts_of_based(text)
                return Term(_integer(sign + digits, base, line), line)
            case "character", text:
                return Term(ord(_unescaped(text[1:], line)), line)
            case "float", text:
                return Term(float(text), line)
            case "sign", "[":
                return Term(self._items("]", depth), line)
            case "sign", "{":
                return Term(tuple(self._items("}", depth)), line)
            case "sign", "<<":
                return Term(self._binary(line), line)
        raise TermError(line, f"{token.shown()} stands where a term is expected")

    def _string(self, text: str, line: int) -> str:
        """A string; strings that follow each other are one."""
        parts = [_unescaped(text[1:-1], line)]
        while self._next().kind == "string":
            token = self._take()
            parts.append(_unescaped(token.text[1:-1], token.line))
        return "".join(parts)

    def _items(self, end: str, depth: int) -> list[Term]:
        found: list[Term] = []
        if self._next().text == end:
            self._take()
            return found
        while True:
            found.append(self._term(depth + 1))
            token = self._take()
            if token.kind == "sign" and token.text == end:
                return found
            if token.kind != "sign" or token.text != ",":
                raise TermError(token.line, f"{token.shown()} stands where , or {end} is expected")

    def _binary(self, line: int) -> str:
        """The text of `<<"…">>`. A binary of numbers is no text and is refused."""
        token = self._take()
        if token.kind == "sign" and token.text == ">>":
            return ""
        if token.kind != "string":
            raise TermError(token.line, f'{token.shown()} in a binary; binaries are written <<"TEXT">>')
        value = self._string(token.text, line)
        self._expect(">>", "the end of a binary")
        return value


def _parts_of_based(text: str) -> tuple[str, int, str]:
    """(sign, base, digits) of an integer such as `16#ff`."""
    base, _, digits = text.lstrip("+-").partition("#")
    return "-" if text.startswith("-") else "", int(base), digits


def _integer(text: str, base: int, line: int) -> int:
    try:
        if len(text) <= DIGITS_MAX:
            return int(text, base)
    except ValueError:
        pass
    raise TermError(line, f"an integer is not of base {base} with at most {DIGITS_MAX} digits")


def _unescaped(text: str, line: int) -> str:
    """The characters of a quoted text (Reference Manual, "Escape Sequences")."""

    def character(match: re.Match[str]) -> str:
        escape = match.group(1)
        if escape[0] in "x01234567" and len(escape.strip("x{}")) > 0 and escape != "x":
            code = int(escape.strip("x{}"), 16 if escape[0] == "x" else 8)
            if code > 0x10FFFF:
                raise TermError(line, f"\\{escape} is no character")
            return chr(code)
        if escape[0] == "^" and len(escape) == 2:
            return chr(ord(escape[1]) & 31)
        return _ESCAPES.get(escape, escape)

    return _ESCAPE.sub(character, text)
