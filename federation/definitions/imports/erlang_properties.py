"""Property lists of Erlang: lists of `{Key, Value}`, read key by key."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from federation.definitions.imports.erlang_terms import Atom, Term, TermError

NONE: Final = Atom("none")


class Properties:
    """The pairs of one list. `place` says in errors what the list belongs to."""

    def __init__(self, term: Term, place: str) -> None:
        self.place = place
        self.line = term.line
        self._terms: dict[str, Term] = {}
        for item in items(term, place):
            key, value = _pair(item, place)
            if key in self._terms:
                raise TermError(item.line, f"{place}: {key} stands here twice, first in line {self._terms[key].line}")
            self._terms[key] = value

    def unknown(self, known: tuple[str, ...]) -> list[tuple[int, str]]:
        """(line, text) for each key that is not known."""
        found = []
        for key, term in self._terms.items():
            if key not in known:
                near = get_close_matches(key, known, n=1)
                hint = f"the nearest known key is {near[0]}" if near else f"known are {', '.join(known)}"
                found.append((term.line, f"{self.place}: unknown key {key} is left out; {hint}"))
        return found

    def get(self, key: str) -> Term | None:
        """The value; None when there is none or the atom `none`."""
        term = self._terms.get(key)
        return None if term is None or term.value == NONE else term

    def line_of(self, key: str) -> int:
        """The line of a key's value, or of the list without this key."""
        return self._terms[key].line if key in self._terms else self.line

    def text(self, key: str) -> str | None:
        term = self.get(key)
        return None if term is None else text_of(term, f"{self.place}: {key}")

    def word(self, key: str) -> str | None:
        """The name of an atom, or a string."""
        term = self.get(key)
        if term is None:
            return None
        return term.value.name if isinstance(term.value, Atom) else text_of(term, f"{self.place}: {key}")

    def number(self, key: str) -> int | float | None:
        term = self.get(key)
        if term is None:
            return None
        if not isinstance(term.value, int | float):
            raise TermError(term.line, f"{self.place}: {key} is {term.kind()}, wanted is a number or none")
        return term.value


def items(term: Term, place: str) -> list[Term]:
    """The items of a list."""
    if term.value == "":  # in Erlang the same as []
        return []
    if not isinstance(term.value, list):
        raise TermError(term.line, f"{place} is {term.kind()}, wanted is a list")
    return term.value


def named_items(term: Term, place: str) -> list[tuple[str, Term]]:
    """The items of a list of `{"NAME", Value}`, each name once."""
    found: dict[str, Term] = {}
    for item in items(term, place):
        if not isinstance(item.value, tuple) or len(item.value) != 2:
            raise TermError(item.line, f'{place} has {item.kind()}, wanted is {{"NAME", [...]}}')
        name = text_of(item.value[0], f"the name in {place}")
        if name in found:
            raise TermError(item.line, f'{place} has "{name}" twice, first in line {found[name].line}')
        found[name] = item.value[1]
    return list(found.items())


def text_of(term: Term, place: str) -> str:
    """A string that is not empty."""
    if not isinstance(term.value, str) or not term.value:
        kind = "an empty string" if term.value == "" else term.kind()
        raise TermError(term.line, f'{place} is {kind}, wanted is a "string"')
    return term.value


def _pair(item: Term, place: str) -> tuple[str, Term]:
    if isinstance(item.value, Atom):  # a key alone is true
        return item.value.name, Term(Atom("true"), item.line)
    if not isinstance(item.value, tuple) or len(item.value) != 2:
        raise TermError(item.line, f"{place} has {item.kind()}, wanted is {{key, Value}}")
    key = item.value[0]
    if not isinstance(key.value, Atom):
        raise TermError(key.line, f"{place}: a key is {key.kind()}, wanted is an atom such as host")
    return key.value.name, item.value[1]
