"""Property lists of Erlang: lists of `{Key, Value}`, read key by key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from federation.definitions.error import nearest
from federation.definitions.imports.erlang_terms import Atom, Term, TermError

NONE: Final = Atom("none")


class Properties:
    """The pairs of one list. `place` says in errors what the list belongs to."""

    def __init__(self, term: Term, place: str) -> None:
        self.place = place
        self.line = term.line
        self._asked: dict[str, None] = {}
        self._terms = _pairs(term, place, "{key, Value}", _key)

    def unread(self) -> list[tuple[int, str]]:
        """(line, text) for each key that nobody has asked for. Those that were asked for are the known ones."""
        return [
            (term.line, f"{self.place}: unknown key {key} is left out; {nearest(key, self._asked)}")
            for key, term in self._terms.items()
            if key not in self._asked
        ]

    def get(self, key: str) -> Term | None:
        """The value; None when there is none or the atom `none`."""
        self._asked[key] = None
        term = self._terms.get(key)
        return None if term is None or term.value == NONE else term

    def line_of(self, key: str) -> int:
        """The line of a key's value, or of the list without this key."""
        return self._terms[key].line if key in self._terms else self.line

    def text(self, key: str) -> str | None:
        term = self.get(key)
        return None if term is None else text_of(term, f"{self.place}: {key}")

    def required(self, key: str) -> str:
        """The text of a key that must be there."""
        text = self.text(key)
        if text is None:
            raise TermError(self.line, f"{self.place}: {key} is missing")
        return text

    def word(self, key: str) -> str | None:
        """The name of an atom, or a string."""
        term = self.get(key)
        return term.value.name if term is not None and isinstance(term.value, Atom) else self.text(key)

    def number(self, key: str) -> int | float | None:
        term = self.get(key)
        if term is None:
            return None
        if not isinstance(term.value, int | float):
            raise TermError(term.line, f"{self.place}: {key} is {term.kind()}, wanted is a number or none")
        return term.value

    def items(self, key: str) -> list[Term]:
        """The items of a list; none without the key."""
        term = self.get(key)
        return [] if term is None else items(term, key)

    def named(self, key: str) -> dict[str, Term]:
        """The values of a list of `{"NAME", Value}`; none without the key."""
        term = self.get(key)
        return {} if term is None else _pairs(term, key, '{"NAME", [...]}', _name)


def items(term: Term, place: str) -> list[Term]:
    """The items of a list."""
    if term.value == "":  # in Erlang the same as []
        return []
    if not isinstance(term.value, list):
        raise TermError(term.line, f"{place} is {term.kind()}, wanted is a list")
    return term.value


def text_of(term: Term, place: str) -> str:
    """A string that is not empty."""
    if not isinstance(term.value, str) or not term.value:
        kind = "an empty string" if term.value == "" else term.kind()
        raise TermError(term.line, f'{place} is {kind}, wanted is a "string"')
    return term.value


def _pairs(term: Term, place: str, wanted: str, read_key: Callable[[Term, str], str]) -> dict[str, Term]:
    """The second parts of the pairs of a list, by their first parts, each of which occurs once."""
    found: dict[str, Term] = {}
    for item in items(term, place):
        pair = item.value
        if isinstance(pair, Atom) and read_key is _key:  # a key alone is true
            pair = (item, Term(Atom("true"), item.line))
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TermError(item.line, f"{place} has {item.kind()}, wanted is {wanted}")
        key = read_key(pair[0], place)
        if key in found:
            raise TermError(item.line, f"{place}: {key} stands here twice, first in line {found[key].line}")
        found[key] = pair[1]
    return found


def _key(term: Term, place: str) -> str:
    if not isinstance(term.value, Atom):
        raise TermError(term.line, f"{place}: a key is {term.kind()}, wanted is an atom such as host")
    return term.value.name


def _name(term: Term, place: str) -> str:
    return text_of(term, f"the name in {place}")
