"""Entries: their order, their digest, and what damage looks like."""

from __future__ import annotations

from itertools import pairwise

import pytest

from federation.definitions.entry import BUCKETS, VALUE_BYTES_MAX, Entry, bucket_of, canonical
from federation.hybrid_clock import CLOCK_MAX


def entry(**changes: object) -> Entry:
    fields: dict[str, object] = {"component": "policy", "name": "p", "clock": 7 << 16, "node": "n", "value": "{}"}
    return Entry(**(fields | changes))  # type: ignore[arg-type]


def test_the_clock_decides_then_the_node_then_the_value() -> None:
    highest_last = [
        entry(clock=1, node="z", value="9"),
        entry(clock=2, node="a", value=None),
        entry(clock=2, node="a", value="1"),
        entry(clock=2, node="b", value=None),
    ]
    assert all(first.order < second.order for first, second in pairwise(highest_last))


@pytest.mark.parametrize(
    "change", [{"component": "x"}, {"name": "q"}, {"clock": 1}, {"node": "m"}, {"value": None}, {"value": "1"}]
)
def test_entries_that_differ_have_other_digests(change: dict[str, object]) -> None:
    assert entry(**change).digest() != entry().digest()


def test_an_entry_knows_when_it_was_made() -> None:
    assert entry(clock=(1234 << 16) + 5).time == 1.234


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"name": ""}, "name"),
        ({"component": "x" * 129}, "component"),
        ({"node": "ä" * 65}, "node"),
        ({"clock": 0}, "clock"),
        ({"clock": CLOCK_MAX + 1}, "clock"),
        ({"value": "{"}, "not JSON"),
        ({"value": "[" * 60000}, "not JSON"),
        ({"value": "NaN"}, "not JSON"),
        ({"value": '{"a": 1}'}, "canonical"),
        ({"value": '"ä"'}, "canonical"),
        ({"value": '"' + "a" * VALUE_BYTES_MAX + '"'}, "bytes"),
    ],
)
def test_damage_has_a_name(change: dict[str, object], part: str) -> None:
    assert part in entry(**change).fault()
    assert entry().fault() == ""


def test_keys_are_spread_over_the_buckets() -> None:
    found = {bucket_of(("policy", str(index))) for index in range(1000)}
    assert found == set(range(BUCKETS))


def test_equal_values_have_one_text() -> None:
    assert canonical({"b": 1, "a": [True, None]}) == canonical({"a": [True, None], "b": 1}) == '{"a":[true,null],"b":1}'
