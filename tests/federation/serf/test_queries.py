"""Filters of queries."""

from __future__ import annotations

import pytest

from federation.gossip.msgpack_fields import encode
from federation.serf.queries import filters_match


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
        ([tag_filter("role", "(e+)+$")], False),  # could run for ever on a longer value
        ([tag_filter("role", "x*" * 20)], False),
        ([tag_filter("role", "^(web|edge)$")], True),
        ([tag_filter("role", "^(web|db)$")], False),
        ([tag_filter("role", "^(web|ed).*")], True),
        ([tag_filter("role", "(web|ed).*g?")], False),  # a group and two repetitions
        ([tag_filter("role", "(e)*")], False),
        ([tag_filter("role", "(e){1,9}")], False),
        ([tag_filter("role", "(e)(d)")], False),
        ([tag_filter("role", "(?=e)edge")], False),
        ([tag_filter("role", r"(e)dg\1")], False),
        ([tag_filter("role", "x" * 200)], False),
        ([b"\x02\x90"], False),
        ([b""], False),
        ([b"\x00\xc1"], False),
    ],
)
def test_query_filters(filters: list[bytes], matches: bool) -> None:
    assert filters_match(tuple(filters), "c", {"role": "edge"}) == matches
