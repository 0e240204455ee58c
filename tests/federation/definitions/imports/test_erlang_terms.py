"""Erlang terms as text: every form that a rabbitmq.config has, and the line of every fault."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.definitions.imports.erlang_terms import NESTING_MAX, Atom, Term, TermError, parse_terms


def plain(term: Term) -> Any:
    """A term without lines."""
    if isinstance(term.value, list):
        return [plain(item) for item in term.value]
    return tuple(plain(item) for item in term.value) if isinstance(term.value, tuple) else term.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("atom.", Atom("atom")),
        ("'EXTERNAL'.", Atom("EXTERNAL")),
        ("a_B@9.", Atom("a_B@9")),
        (r"'it\'s'.", Atom("it's")),
        ('"text".', "text"),
        ('"one " "two".', "one two"),
        (r'"\n\t\"\\\x{e9}\x41\101\s\^a".', '\n\t"\\éAA \x01'),
        ('"two\nlines".', "two\nlines"),
        ('<<"binary">>.', "binary"),
        ("<<>>.", ""),
        ("-5672.", -5672),
        ("16#ff.", 255),
        ("-2#101.", -5),
        ("$a.", 97),
        (r"$\n.", 10),
        ("1.5e3.", 1500.0),
        ("[].", []),
        ("{}.", ()),
        ("[a, {b, 1}].", [Atom("a"), (Atom("b"), 1)]),
        ("% comment\n[a, % another ] }\n b].", [Atom("a"), Atom("b")]),
        ("{without, 'the', dot}", (Atom("without"), Atom("the"), Atom("dot"))),
    ],
)
def test_forms_of_terms(text: str, expected: object) -> None:
    assert [plain(term) for term in parse_terms(text)] == [expected]


def test_a_text_has_several_terms() -> None:
    assert [plain(term) for term in parse_terms("a. 1.\n[].")] == [Atom("a"), 1, []]


def test_terms_know_their_lines() -> None:
    (term,) = parse_terms('[\n a,\n "x\ny",\n {b}]')
    assert isinstance(term.value, list)
    assert [item.line for item in term.value] == [2, 3, 5]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[a,\n b", "line 2: the end of the file stands where , or ] is expected"),
        ("[a,\n]", "line 2: ] stands where a term is expected"),
        ("{a b}", "line 1: an atom stands where , or } is expected"),
        ("a b.", r"line 1: an atom stands where the end of a term \(.\) is expected"),
        ('\n\n"abc', 'line 3: the " that begins here has no end'),
        ("Variable.", "line 1: the character 'V' begins no Erlang term"),
        ("#{a => 1}.", "line 1: the character '#' begins no Erlang term"),
        ("[a|b].", r"line 1: \| stands where , or \] is expected"),
        ("<<1,2>>.", 'line 1: an integer in a binary; binaries are written <<"TEXT">>'),
        ("1#0.", "line 1: an integer is not of base 1"),
        ("3#9.", "line 1: an integer is not of base 3"),
        ("9" * 50, "line 1: an integer is not of base 10 with at most 40 digits"),
        ("[" * (NESTING_MAX + 2), f"line 1: more than {NESTING_MAX} lists and tuples"),
        (r'"\x{110000}".', "line 1: .* is no character"),
    ],
)
def test_faults_name_the_line(text: str, fault: str) -> None:
    with pytest.raises(TermError, match=f"^{fault}"):
        parse_terms(text)


def test_faults_show_no_part_of_a_text() -> None:
    with pytest.raises(TermError) as caught:
        parse_terms('[{password, "se"cret"}]')
    assert "cret" not in str(caught.value)


@given(st.text(alphabet="[]{},.'\"<>|$#%\\ab1-\n ", max_size=60))
def test_any_text_gives_terms_or_a_fault(text: str) -> None:
    with suppress(TermError):
        assert all(isinstance(term, Term) for term in parse_terms(text))


TERMS = st.recursive(
    st.integers(-(10**30), 10**30)
    | st.text(st.characters(codec="utf-8"))
    | st.from_regex(r"[a-z]\w*", fullmatch=True).map(Atom),
    lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple),
    max_leaves=20,
)


def written(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, tuple):
        return "{" + ",\n".join(map(written, value)) + "}"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"'{value.name}'" if isinstance(value, Atom) else str(value)


@given(st.lists(TERMS, max_size=3))
def test_a_written_term_is_read_as_the_same_one(values: list[object]) -> None:
    text = "".join(f"{written(value)}.\n" for value in values)
    assert [plain(term) for term in parse_terms(text)] == values
