"""Filters of Spark -> what nodes and readers leave out, against the filters themselves on rows that hypothesis draws."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from broker.event_log.selection import Selection
from pipeline.narrow import ALL, Bounds, Narrow
from pipeline.pushdown import narrow

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]

topics = st.sampled_from(["a", "a/b", "a/b/c", "ab", "/", "/a", "b", "$S/x"])
rows = st.fixed_dictionaries(
    {
        "node": st.sampled_from(["n1", "n2"]),
        "topic": topics,
        "offset": st.integers(0, 5),
        "time": st.integers(0, 5000),
        "qos": st.integers(0, 2),
        "retain": st.booleans(),
    }
)
OPERATORS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    StringStartsWith: str.startswith,
    StringContains: operator.contains,
}
equal = st.sampled_from([EqualTo, EqualNullSafe])
compared = st.sampled_from([EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual])
instants = st.integers(0, 6).map(lambda number: EPOCH + timedelta(microseconds=number))
some = st.one_of(
    st.builds(lambda kind, value: kind(("node",), value), equal, st.sampled_from(["n1", "n2", "n3"])),
    st.builds(lambda kind, value: kind(("topic",), value), equal, topics),
    st.builds(lambda values: In(("topic",), tuple(values)), st.lists(st.one_of(topics, st.none()), min_size=1)),
    st.builds(lambda value: StringStartsWith(("topic",), value), st.sampled_from(["", "a", "a/", "a/b", "/", "$S/"])),
    st.builds(lambda value: StringContains(("topic",), value), st.sampled_from(["a", "/"])),
    st.builds(lambda kind, value: kind(("offset",), value), compared, st.integers(0, 5)),
    st.builds(lambda values: In(("offset",), tuple(values)), st.lists(st.integers(0, 5), min_size=1)),
    st.builds(lambda kind, value: kind(("time",), value), compared, st.integers(0, 5000)),
    st.builds(lambda kind, value: kind(("ts",), value), compared, instants),
    st.builds(lambda kind, value: kind(("qos",), value), compared, st.integers(0, 2)),
    st.builds(lambda value: EqualTo(("retain",), value), st.booleans()),
)
filters = st.one_of(some, some.map(Not))


def passes(row: Row, wanted: Filter) -> bool:
    if isinstance(wanted, Not):
        return not passes(row, wanted.child)
    (column,) = wanted.attribute  # type: ignore[attr-defined]
    value = EPOCH + timedelta(microseconds=row["time"] // 1000) if column == "ts" else row[column]
    if isinstance(wanted, In):
        return value in wanted.value
    return OPERATORS[type(wanted)](value, wanted.value)  # type: ignore[attr-defined]


def has(found: Narrow, row: Row) -> bool:
    bounds = ((found.offsets, row["offset"]), (found.times_ns, row["time"]), (found.qos, row["qos"]))
    return (
        found.has_node(row["node"])
        and found.has_topic(row["topic"])
        and all(low <= value < high for (low, high), value in bounds)
        and found.retain in (None, row["retain"])
    )


@given(st.lists(filters, max_size=4), rows, st.lists(st.sampled_from(["#", "a/#", "+/b", "$S/#"]), max_size=2))
def test_no_row_that_passes_is_left_out(wanted: list[Filter], row: Row, given: list[str]) -> None:
    """Neither by the reader, nor by the topic filters that the node gets."""
    found = narrow(wanted)
    if all(passes(row, each) for each in wanted):
        assert has(found, row)
        asked = found.filters(tuple(given))
        is_given = not given or Selection([each.encode() for each in given]).has(row["topic"].encode())
        if asked and is_given:
            assert Selection([each.encode() for each in asked]).has(row["topic"].encode())


exact = some.filter(
    lambda each: not isinstance(each, StringContains) and not (isinstance(each, In) and each.attribute == ("offset",))
)


@given(st.lists(exact, max_size=4), rows)
def test_rows_that_do_not_pass_are_left_out(wanted: list[Filter], row: Row) -> None:
    assert has(narrow(wanted), row) == all(passes(row, each) for each in wanted)


@pytest.mark.parametrize(
    "wanted",
    [
        EqualTo(("topic",), None),
        EqualTo(("topic", "x"), "a"),
        EqualTo(("payload",), b"x"),
        EqualTo(("offset",), 1.5),
        EqualTo(("ts",), datetime(2026, 1, 1)),  # of which zone is not said
        IsNotNull(("topic",)),
        Not(EqualTo(("topic",), "a")),
        In(("offset",), (None,)),
    ],
)
def test_other_filters_leave_nothing_out(wanted: Filter) -> None:
    assert narrow([wanted]) == ALL


@pytest.mark.parametrize(
    ("found", "given", "asked"),
    [
        (ALL, (), ()),
        (ALL, ("x/#",), ("x/#",)),
        (Narrow(topics=frozenset(("b", "a"))), (), ("a", "b")),
        (Narrow(topics=frozenset(("b", "a"))), ("a/#",), ("a",)),
        (Narrow(topics=frozenset(("b", "a")), prefixes=("b",)), (), ("b",)),
        (Narrow(topics=frozenset(("a", "+"))), (), ()),
        (Narrow(topics=frozenset(("", "a"))), ("#",), ("a",)),
        (Narrow(topics=frozenset(("$share/a/b",))), (), ()),
        (Narrow(topics=frozenset(map(str, range(1001)))), (), ()),
        (Narrow(prefixes=("a/b/c",)), (), ("a/b/#",)),
        (Narrow(prefixes=("a/", "a/b/c")), (), ("a/b/#",)),
        (Narrow(prefixes=("a/b",)), ("a/+/c",), ("a/+/c",)),
        (Narrow(prefixes=("ab",)), (), ()),
        (Narrow(prefixes=("a/+/b",)), (), ()),
        (Narrow(prefixes=("/",)), (), ("/#",)),
    ],
)
def test_what_the_node_is_asked_for(found: Narrow, given: tuple[str, ...], asked: tuple[str, ...]) -> None:
    assert found.filters(given) == asked


def test_bounds_meet() -> None:
    assert Bounds(2, 9).both(Bounds(4, 20)) == (4, 9)
