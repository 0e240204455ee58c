"""Filters of queries."""

from __future__ import annotations

import pytest

from federation.gossip.counters import Counters, DropReason
from federation.gossip.msgpack_fields import encode
from federation.serf.expressions import Expression
from federation.serf.queries import EXPRESSIONS_MAX, QueryFilters


def node_filter(*names: str) -> bytes:
    return b"\x00" + encode(list(names))


def tag_filter(tag: str, expression: str) -> bytes:
    return b"\x01" + encode({"Expr": expression, "Tag": tag})


@pytest.mark.parametrize(
    ("filters", "matches"),
    [
        ([], True),
        ([bytes.fromhex("0091a163")], True),  # wire-gossip 7: node c
        ([bytes.fromhex("0182a445787072a465646765a3546167a4726f6c65")], True),  # wire-gossip 7: role edge
        ([node_filter("a", "b")], False),
        ([node_filter("a", "c"), tag_filter("role", "^ed.e$")], True),
        ([node_filter("c"), tag_filter("role", "^web")], False),
        ([tag_filter("missing", "^$")], True),
        ([tag_filter("role", "[")], False),
        ([tag_filter("role", "^(web|edge)$")], True),
        ([tag_filter("role", "^(web|db)$")], False),
        ([tag_filter("role", "(e)(d)")], True),
        ([tag_filter("role", "(?i)EDGE")], True),
        ([tag_filter("role", "(?=e)edge")], False),  # Go knows neither this
        ([tag_filter("role", r"(e)dg\1")], False),  # nor this
        ([tag_filter("role", r"e\Z")], False),
        ([tag_filter("role", "e{1001}")], False),
        ([tag_filter("role", r"^\pL+$")], True),
        ([tag_filter("role", r"\pL{10}|e")], False),  # takes more memory than it may
        ([tag_filter("role", "e|" + "x" * 1024)], False),
        ([tag_filter("role", "^e")] * 30, True),
        ([tag_filter("role", "^e")] * 60, False),  # more bytes than a query may have
        ([b"\x02\x90"], False),
        ([b""], False),
        ([b"\x00\xc1"], False),
    ],
)
def test_query_filters(filters: list[bytes], matches: bool) -> None:
    assert QueryFilters(Counters()).match(tuple(filters), "c", {"role": "edge"}, 0.0) == matches


def test_a_flood_of_expressions_matches_nothing_and_is_counted() -> None:
    """They are compiled and matched on the loop's thread, and one datagram brings a thousand queries."""
    counters = Counters()
    queries = QueryFilters(counters)

    def matching(count: int, now: float) -> int:
        return sum(queries.match((tag_filter("role", "e"),), "c", {"role": "edge"}, now) for _ in range(count))

    assert matching(1000, 5.0) == EXPRESSIONS_MAX
    assert counters.dropped[DropReason.EXPRESSIONS_FULL] == 1000 - EXPRESSIONS_MAX
    assert queries.match((node_filter("c"),), "c", {}, 5.0)  # costs nothing
    assert matching(1000, 5.5) == EXPRESSIONS_MAX // 2
    assert matching(1000, 60.0) == EXPRESSIONS_MAX


@pytest.mark.parametrize(
    ("expression", "text", "matches"),
    [
        ("[[:digit:]]+", "rack7", True),
        ("^[[:alpha:]]+$", "rack7", False),
        (r"\d\z", "rack7", True),
        (r"\Arack", "rack7", True),
        ("7$", "rack7\n", False),  # Python's $ would match before the end of the line
        ("^7", "rack\n7", False),
        ("(?m)^7$", "rack\n7", True),
        (r"^\pL+$", "äö", True),
        (r"\d", "\u0663", False),  # a digit of Arabic: Go's \d is ASCII
        (r"\w", "ä", False),
        (r"\Q7.1\E", "7.1", True),
        (r"\Q7.1\E", "7x1", False),
        ("a.c", "a\nc", False),
        ("(?s)a.c", "a\nc", True),
        ("x*", "", True),
    ],
)
def test_expressions_are_those_of_go(expression: str, text: str, matches: bool) -> None:
    assert Expression(expression).matches(text) is matches


@pytest.mark.parametrize("expression", ["(a+)+$", "^(a|aa)*$", "(.*)*x", "(a?){30}a{30}$", "(.*)(.*)(.*)(.*)(.*)x$"])
def test_no_expression_runs_long(expression: str) -> None:
    """With backtracking each of these would not end before the sun does; the text is as long as tags can be."""
    assert Expression(expression).matches("a" * 512 + "b") is False
