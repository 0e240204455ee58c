"""Expressions over names of upstreams: what they match, and that their time is bounded by their syntax."""

from __future__ import annotations

import pytest

from federation.definitions.error import DefinitionError
from federation.definitions.policy import UpstreamPattern


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("eu", "site-eu-1", True),
        ("^eu", "site-eu-1", False),
        ("^(eu|us)-[0-9]+$", "us-12", True),
        ("^(eu|us)-[0-9]+$", "us-12a", False),
        ("^site-.*", "site-", True),
        ("a.?b", "ab", True),
        (r"^\w+\.\d$", "x.1", True),
        ("[^]a]", "a]", False),
        ("", "any", True),
    ],
)
def test_an_expression_is_found_in_a_name(text: str, name: str, expected: bool) -> None:
    assert UpstreamPattern(text).matches(name) is expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("(a+)+", "cannot be repeated"),
        ("(a|a)*b", "cannot be repeated"),
        ("(?=a)", "not possible"),
        ("a{2,9}", "cannot be read"),
        (r"(a)\1", "cannot be read"),
        (".*.*.*.*x", "at most 3"),
        ("[a", "cannot be read"),
        ("(a", "no regular expression"),
        ("a)", "no regular expression"),
        ("*a", "cannot be read"),
        ("a++", "cannot be read"),
        ("[z-a]", "no regular expression"),
        ("a" * 257, "bytes"),
    ],
)
def test_an_expression_outside_of_the_syntax_is_refused(text: str, part: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        UpstreamPattern(text)
    assert caught.value.key == "definition.federation-upstream-pattern"
    assert part in caught.value.text
