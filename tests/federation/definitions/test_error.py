"""Values of keys: shown safely, read strictly."""

from __future__ import annotations

import pytest

from federation.definitions.error import DefinitionError, read_whole, shown


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\x1b[1m", '"a?[1m"'),
        ("a" * 61, '"' + "a" * 60 + '…"'),
        ("\ud800", '"?"'),
        (True, "true"),
        (None, "nothing"),
        (1.5, "1.5"),
        (10**400, "1" + "0" * 59),
        ({}, "an object"),
        ([], "a list"),
    ],
)
def test_a_value_is_shown_short_and_printable(value: object, expected: str) -> None:
    assert shown(value) == expected


def test_a_whole_number_may_come_as_a_float() -> None:
    assert read_whole("key", 3.0, 1, 5) == 3
    with pytest.raises(DefinitionError, match=r"^key: 3\.5 is not a whole number"):
        read_whole("key", 3.5, 1, 5)


def test_an_error_names_the_whole_path() -> None:
    assert str(DefinitionError("uri", "bad").below("upstreams.a")) == "upstreams.a.uri: bad"
    assert str(DefinitionError("", "bad").below("sets.a")) == "sets.a: bad"
