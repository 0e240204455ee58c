"""Property lists: keys once, kinds of values, and the line of every fault."""

from __future__ import annotations

import pytest

from federation.definitions.imports.erlang_properties import Properties, text_of
from federation.definitions.imports.erlang_terms import TermError, parse_terms


def properties(text: str) -> Properties:
    (term,) = parse_terms(text)
    return Properties(term, "the list")


def test_values_have_their_kinds() -> None:
    found = properties("[{host, \"h\"}, {port, 5671}, {mechanism, 'EXTERNAL'}, {expires, none}, durable]")
    assert found.text("host") == "h"
    assert found.number("port") == 5671
    assert found.word("mechanism") == "EXTERNAL"
    assert found.word("host") == "h"
    assert found.word("durable") == "true"
    assert found.number("expires") is None
    assert found.text("absent") is None


def test_an_empty_string_is_an_empty_list() -> None:
    assert properties('""').get("key") is None


def test_keys_that_nobody_asks_for_have_the_nearest_known_one() -> None:
    found = properties('[\n{hots, "h"}, {port, 1}]')
    assert (found.text("host"), found.number("port")) == (None, 1)
    ((line, text),) = found.unread()
    assert line == 2
    assert "unknown key hots is left out; the nearest known one is host" in text


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[{a, 1},\n{a, 2}]", "line 2: the list: a stands here twice, first in line 1"),
        ("[{a}]", "line 1: the list has a tuple of 1, wanted is {key, Value}"),
        ('[{"a", 1}]', "line 1: the list: a key is a string, wanted is an atom such as host"),
        ("{a, 1}", "line 1: the list is a tuple of 2, wanted is a list"),
    ],
)
def test_faulty_lists(text: str, fault: str) -> None:
    with pytest.raises(TermError, match=fault):
        properties(text)


def test_faulty_values() -> None:
    found = properties('[{host, 1}, {port, "x"}, {name, ""}]')
    with pytest.raises(TermError, match='the list: host is an integer, wanted is a "string"'):
        found.text("host")
    with pytest.raises(TermError, match="port is a string, wanted is a number or none"):
        found.number("port")
    with pytest.raises(TermError, match="name is an empty string"):
        found.text("name")


def test_named_items_are_unique() -> None:
    found = properties('[{sets, [{"a", 1}, {<<"b">>, 2}]}, {twice, [{"a", 1},\n{"a", 2}]}, {atoms, [a]}]')
    assert list(found.named("sets")) == ["a", "b"]
    assert found.named("absent") == {}
    with pytest.raises(TermError, match="line 2: twice: a stands here twice, first in line 1"):
        found.named("twice")
    with pytest.raises(TermError, match="atoms has an atom"):
        found.named("atoms")


def test_a_text_is_a_string() -> None:
    (term,) = parse_terms("atom")
    with pytest.raises(TermError, match="the name is an atom"):
        text_of(term, "the name")
