"""Upstream sets: members, their overrides, and what is refused with which key."""

from __future__ import annotations

import pytest

from federation.definitions.error import DefinitionError
from federation.definitions.upstream import UpstreamSet, parse_upstream_set


def test_a_set_has_members_with_overrides() -> None:
    value = [{"upstream": "a", "max-hops": 2, "exchange": "# -> x/{#}"}, {"upstream": "b"}, {"upstream": "a"}]
    assert parse_upstream_set("s", value) == UpstreamSet(
        "s", (("a", (("exchange", ("# -> x/{#}",)), ("max_hops", 2))), ("b", ()), ("a", ()))
    )


@pytest.mark.parametrize(
    ("name", "value", "key", "part"),
    [
        ("all", [{"upstream": "a"}], "name", "exists by itself"),
        ("a/b", [{"upstream": "a"}], "name", "no name"),
        ("s", [], "", "1..1000"),
        ("s", {"upstream": "a"}, "", "is a list"),
        ("s", None, "", "is a list"),
        ("s", ["a"], "[0]", "key upstream"),
        ("s", [{"upstream": "a"}, {}], "[1]", "key upstream"),
        ("s", [{"upstream": ""}], "[0].upstream", "text"),
        ("s", [{"upstream": "a", "max-hops": 0}], "[0].max-hops", "1..255"),
        ("s", [{"upstream": "a", "uri": "x"}], "[0].uri", "mqtt://"),
        ("s", [{"upstream": "a"}, {"upstream": "a"}], "[1]", "twice"),
        ("s", [{"upstream": "a"}] * 1001, "", "1..1000"),
    ],
)
def test_a_bad_set_is_refused_with_its_key(name: str, value: object, key: str, part: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_upstream_set(name, value)
    assert caught.value.key == key
    assert part in caught.value.text
