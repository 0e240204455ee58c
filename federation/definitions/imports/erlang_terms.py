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
      (?P<space>\s+|%[^\n]*)
    | (?P<float>[+-]?[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    | (?P<integer>[+-]?(?:[0-9]{1,2}\#[0-9A-Za-z]+|[0-9]+))
    | (?P<character>\$(?:\\.|[^\\\s]))
    | (?P<atom>[a-z][A-Za-z0-9_@]*|'(?:[^'\\]|\\.)*')
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<sign><<|>>|[\[\]{},.|])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE: Final = re.compile(r"\\(?:x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})|([0-7]{1,3})|\^(.)|(.))", re.DOTALL)
_ESCAPES: Final = {"b": "\b", "d": "\x7f", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "s": " ", "t": "\t", "v": "\v"}


class TermError(ValueError):
    """The text is no Erlang term, or not the one that is wanted. The text begins with the line."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"line {line}: {text}")


@dataclass(frozen=True, slots=True)
class Atom:
    """A name that stands for itself, such as `true` or `'EXTERNAL'`."""

    name: str


@dataclass(frozen=True, slots=True)
class Term:
    """A value and the line where it begins. A string and a binary are both `str`."""

    value: Atom | str | int | float | list[Term] | tuple[Term, ...]
    line: int

    def kind(self) -> str:
        """Name the term in an error."""
        value = self.value
        if isinstance(value, tuple):
            return f"a tuple of {len(value)}"
        kinds = {Atom: "an atom", str: "a string", int: "an integer", float: "a float", list: "a list"}
        return kinds[type(value)]


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
        if self.kind in ("sign", "end"):
            return self.text
        return f"{'an' if self.kind in ('atom', 'integer') else 'a'} {self.kind}"


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
        if match.lastgroup != "space":
            found.append(_Token(str(match.lastgroup), match.group(), line))
        line += match.group().count("\n")
        position = match.end()
    found.append(_Token("end", "the end of the file", line))
    return found


class _Reader:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens[::-1]  # the next one is the last

    def terms(self) -> list[Term]:
        found: list[Term] = []
        while self._tokens[-1].kind != "end":
            found.append(self._term(0))
            if self._tokens[-1].kind != "end":
                self._expect(".", what="the end of a term (.)")
        return found

    def _expect(self, *signs: str, what: str) -> str:
        token = self._tokens.pop()
        if token.kind != "sign" or token.text not in signs:
            raise TermError(token.line, f"{token.shown()} stands where {what} is expected")
        return token.text

    def _term(self, depth: int) -> Term:
        kind, text, line = token = self._tokens.pop()
        if depth > NESTING_MAX:
            raise TermError(line, f"more than {NESTING_MAX} lists and tuples inside each other")
        match kind, text:
            case "atom", _:
                return Term(Atom(_unescaped(text[1:-1], line) if text.startswith("'") else text), line)
            case "string", _:
                return Term(self._string(token), line)
            case "integer", _:
                return Term(_integer(text, line), line)
            case "character", _:
                return Term(ord(_unescaped(text[1:], line)), line)
            case "float", _:
                return Term(float(text), line)
            case "sign", "[":
                return Term(self._items("]", depth), line)
            case "sign", "{":
                return Term(tuple(self._items("}", depth)), line)
            case "sign", "<<":
                return Term(self._binary(), line)
        raise TermError(line, f"{token.shown()} stands where a term is expected")

    def _string(self, token: _Token) -> str:
        """A string; strings that follow each other are one."""
        text = _unescaped(token.text[1:-1], token.line)
        while self._tokens[-1].kind == "string":
            token = self._tokens.pop()
            text += _unescaped(token.text[1:-1], token.line)
        return text

    def _items(self, end: str, depth: int) -> list[Term]:
        found: list[Term] = []
        if self._tokens[-1].text == end:
            self._tokens.pop()
            return found
        while True:
            found.append(self._term(depth + 1))
            if self._expect(",", end, what=f", or {end}") == end:
                return found

    def _binary(self) -> str:
        """The text of `<<"…">>`. A binary of numbers is no text and is refused."""
        token = self._tokens.pop()
        if token.text == ">>":
            return ""
        if token.kind != "string":
            raise TermError(token.line, f'{token.shown()} in a binary; binaries are written <<"TEXT">>')
        value = self._string(token)
        self._expect(">>", what="the end of a binary (>>)")
        return value


def _integer(text: str, line: int) -> int:
    """An integer, of another base when it is such as `16#ff`."""
    base, _, digits = text.lstrip("+-").rpartition("#")
    try:
        if len(digits) <= DIGITS_MAX:
            return int(digits, int(base or 10)) * (-1 if text.startswith("-") else 1)
    except ValueError:
        pass
    raise TermError(line, f"an integer is not of base {base or 10} with at most {DIGITS_MAX} digits")


def _unescaped(text: str, line: int) -> str:
    """The characters of a quoted text (Reference Manual, "Escape Sequences")."""

    def character(match: re.Match[str]) -> str:
        wide, narrow, octal, control, other = match.groups()
        if other:
            return _ESCAPES.get(other, other)
        if control:
            return chr(ord(control) & 31)
        code = int(octal, 8) if octal else int(wide or narrow, 16)
        if code > 0x10FFFF:
            raise TermError(line, f"{match[0]} is no character")
        return chr(code)

    return _ESCAPE.sub(character, text)
