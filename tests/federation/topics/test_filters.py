"""Covering and common filters against a naive matcher: each filter of up to three levels with each other one, and longer ones
by hypothesis."""

from itertools import product
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec.wire import STRING_BYTES_MAX
from broker.routing.names import check_topic_filter, filter_matches
from federation.topics.filters import covers, filter_of, intersection, levels_of

# `z` is in no filter: only a wildcard matches it.
TOPIC_LEVELS: Final = (b"", b"a", b"$s", b"z")
FILTER_LEVELS: Final = (b"", b"a", b"$s", b"+")
TOPICS: Final = [
    topic
    for depth in range(1, 5)
    for topic in (b"/".join(levels) for levels in product(TOPIC_LEVELS, repeat=depth))
    if topic
]


def all_filters() -> list[bytes]:
    found = [b"#"]
    for depth in range(1, 4):
        for levels in product(FILTER_LEVELS, repeat=depth):
            text = b"/".join(levels)
            if text:
                found += [text, text + b"/#"] if depth < 3 else [text]
    return found


def topics_of(topic_filter: bytes) -> int:
    """The set of topics that a filter matches, one bit each."""
    return sum(1 << index for index, topic in enumerate(TOPICS) if filter_matches(topic_filter, topic))


SETS: Final = {text: topics_of(text) for text in all_filters()}


def test_covering_is_that_of_the_sets_of_topics() -> None:
    wrong = [(a, b) for a in SETS for b in SETS if covers(a, b) != (SETS[b] & ~SETS[a] == 0)]
    assert wrong == []


def test_a_common_filter_matches_the_common_topics() -> None:
    wrong = []
    for a, b in product(SETS, SETS):
        common = intersection(a, b)
        if (0 if common is None else SETS.get(common) or topics_of(common)) != SETS[a] & SETS[b]:
            wrong.append((a, b, common))
    assert wrong == []


LEVELS: Final = st.lists(st.sampled_from([b"", b"a", b"b", b"$s", b"+"]), min_size=1, max_size=8)
FILTERS: Final = st.builds(filter_of, LEVELS, st.booleans()).filter(lambda text: text != b"")
NAMES: Final = st.builds(
    b"/".join, st.lists(st.sampled_from([b"", b"a", b"b", b"$s", b"z"]), min_size=1, max_size=8)
).filter(lambda text: text != b"")


@given(FILTERS, FILTERS, NAMES)
def test_long_filters_and_any_topic(a: bytes, b: bytes, topic: bytes) -> None:
    both = filter_matches(a, topic) and filter_matches(b, topic)
    common = intersection(a, b)
    assert (common is not None and filter_matches(common, topic)) == both
    if common is not None:
        check_topic_filter(common)
        assert covers(a, common)
        assert covers(b, common)
        assert intersection(b, a) == common
    if covers(a, b):
        assert common is not None
        assert covers(common, b)


@given(FILTERS)
def test_levels_and_back(topic_filter: bytes) -> None:
    assert filter_of(*levels_of(topic_filter)) == (b"#" if topic_filter == b"+/#" else topic_filter)
    assert covers(topic_filter, topic_filter)


@pytest.mark.parametrize(("wide", "narrow"), [(b"#", b"+/#"), (b"+/#", b"#")])
def test_a_topic_has_at_least_one_level(wide: bytes, narrow: bytes) -> None:
    assert covers(wide, narrow)


def test_a_common_filter_that_is_too_long_is_none() -> None:
    level = b"a" * (STRING_BYTES_MAX - 2)
    assert intersection(level + b"/+", b"+/" + level) is None
