"""Filters of a tree that have a topic in common with another one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.auth.acl_rules import intersect
from broker.routing.overlap import overlapping
from broker.routing.trie import Trie
from effort import effort

filters = st.lists(st.sampled_from(["a", "b", "+", "$a", "", "a"]), min_size=1, max_size=4).flatmap(
    lambda levels: st.sampled_from(["/".join(levels), "/".join([*levels, "#"]), "#"]).map(str.encode)
)


def tree_of(topic_filters: list[bytes]) -> Trie:
    tree = Trie()
    for topic_filter in topic_filters:
        tree.set(topic_filter, topic_filter)
    return tree


@pytest.mark.thorough
@settings(max_examples=effort(500))
@given(st.lists(filters.filter(bool), max_size=8), filters.filter(bool))
def test_filters_with_a_common_topic(topic_filters: list[bytes], topic_filter: bytes) -> None:
    found = overlapping(tree_of(topic_filters), topic_filter)
    assert sorted(map(str, found)) == sorted(
        {str(one) for one in topic_filters if intersect(one, topic_filter) is not None}
    )


@pytest.mark.parametrize("topic_filter", [b"/".join([b"x"] * 128), b"a/7/+", b"a/7/#", b"b/#"])
def test_other_branches_are_not_compared(topic_filter: bytes) -> None:
    tree = tree_of([b"a/%d/x" % number for number in range(10_000)])
    overlapping(tree, topic_filter)
    assert tree.visited <= 4
