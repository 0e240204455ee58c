"""Regular expressions of policies as topic filters: the forms that have one, and a reason for each other."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.routing.names import check_topic_filter, filter_matches
from federation.definitions.imports.namespaces import topics_of
from federation.definitions.imports.regular_expressions import ALTERNATIVES_MAX, PatternError, filters_of, names_of


@pytest.mark.parametrize(
    ("pattern", "filters"),
    [
        ("", ["#"]),
        ("^", ["#"]),
        (".*", ["#"]),
        ("^.*$", ["#"]),
        (r"^federated\.", ["federated/#"]),
        (r"^federated\..*", ["federated/#"]),
        (r"^federated\..+$", ["federated/#"]),
        ("^orders$", ["orders/#"]),
        (r"^amq\.topic$", ["#"]),
        (r"^eu\.[^.]+\.temperature$", ["eu/+/temperature/#"]),
        (r"^eu\.[^\.]*$", ["eu/+/#"]),
        ("^(orders|stock)$", ["orders/#", "stock/#"]),
        (r"^eu\.(?:a|b\.c)$", ["eu/a/#", "eu/b/c/#"]),
        (r"^orders$|^stock\.", ["orders/#", "stock/#"]),
        (r"^a\-b_c$", ["a-b_c/#"]),
        ("^orders$|.*", ["#"]),
    ],
)
def test_expressions_with_filters(pattern: str, filters: list[str]) -> None:
    assert filters_of(pattern) == filters


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("federated", "begin it with"),
        (".*orders", "begin it with"),
        ("^federated", "end it with"),
        ("^federated.", "matches any character"),
        (r"^fed.*\.x$", "can only be the end"),
        (r"^a\.b[^.]+$", "only a part of a level"),
        (r"^(?!amq\.).*", "look-ahead"),
        ("^[ab]$", "has no topic filter"),
        ("^(a)+$", "repeated has no topic filter"),
        ("^a{2}$", "has no topic filter"),
        (r"^\d$", "has no topic filter"),
        ("^(a", r"has no \)"),
        ("a)", "ends no group"),
        ("^$", "only the exchange without a name"),
        ("^a^$", "can only be the beginning"),
        (r"^amq\.", "only amq.topic"),
        (r"^a\.\.b$", "an empty level"),
        ("^a#$", "in a level"),
        ("^(" + "|".join(map(str, range(ALTERNATIVES_MAX + 1))) + ")$", "alternatives"),
        ("(" * 10, "groups inside each other"),
        ("^" + "a" * 1100, "characters"),
    ],
)
def test_expressions_without_a_filter_say_why_and_name_the_expression(pattern: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason) as caught:
        filters_of(pattern)
    assert f'"{pattern[:100]}"' in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (".*", ["+"]),
        ("", ["+"]),
        ("^jobs$", ["jobs"]),
        (r"^jobs\.eu$", ["jobs.eu"]),
        ("^(a|b)$", ["a", "b"]),
        ("^[^.]+$", ["+"]),
    ],
)
def test_names_that_match(pattern: str, names: list[str]) -> None:
    assert names_of(pattern) == names


@pytest.mark.parametrize("pattern", ["^jobs", r"^jobs\..*$", "jobs"])
def test_names_that_cannot_be_listed(pattern: str) -> None:
    with pytest.raises(PatternError, match=re.escape(f'pattern "{pattern}"')):
        names_of(pattern)


NAMES = st.lists(st.sampled_from(["a", "b", "ab", "federated"]), min_size=1, max_size=4).map(".".join)
PATTERNS = st.text(alphabet="^$|()ab.\\[^.]+*", max_size=16) | st.lists(
    st.sampled_from(["a", "b", r"\.", "[^.]+", ".*", "^", "$", "(a|b)", "|"]), max_size=8
).map("".join)


@given(PATTERNS, NAMES)
def test_the_filters_have_the_topics_of_every_exchange_that_matches(pattern: str, name: str) -> None:
    try:
        filters = [text.encode() for text in filters_of(pattern)]
    except PatternError:
        return
    for topic_filter in filters:
        check_topic_filter(topic_filter)
    topic = topics_of("/", name).replace("#", "x").encode()
    if re.search(pattern, name):
        assert any(filter_matches(topic_filter, topic) for topic_filter in filters)
