"""The topics of a link: what its policies take, what higher policies leave."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from broker.routing.names import filter_matches
from federation.topics.filters import filter_of
from federation.topics.scope import Scope, near_policies

LEVELS: Final = st.lists(st.sampled_from([b"", b"a", b"b", b"+"]), min_size=1, max_size=3)
FILTERS: Final = st.builds(filter_of, LEVELS, st.booleans()).filter(len)
NAMES: Final = (
    st.lists(st.sampled_from([b"", b"a", b"b", b"c", b"$s"]), min_size=1, max_size=4).map(b"/".join).filter(len)
)


@given(st.lists(st.tuples(FILTERS, st.booleans()), max_size=5), FILTERS, NAMES)
def test_each_topic_of_the_link_is_in_a_part(policies: list[tuple[bytes, bool]], wanted: bytes, topic: bytes) -> None:
    scope = Scope(policies)
    highest = [is_own for pattern, is_own in policies if filter_matches(pattern, topic)][:1]
    assert scope.has(topic) == (highest == [True])
    in_parts = any(filter_matches(part, topic) for part in scope.parts(wanted))
    if scope.has(topic):
        assert in_parts == filter_matches(wanted, topic)
    if in_parts:
        assert filter_matches(wanted, topic)
        assert any(is_own and filter_matches(pattern, topic) for pattern, is_own in policies)


@given(st.lists(st.tuples(FILTERS, st.booleans()), max_size=5), FILTERS, NAMES)
def test_policies_that_are_not_near_change_nothing(
    policies: list[tuple[bytes, bool]], wanted: bytes, topic: bytes
) -> None:
    scope, near = Scope(policies), Scope(near_policies(policies))
    assert near.has(topic) == scope.has(topic)
    assert (near.patterns, near.parts(wanted), near.is_shared) == (scope.patterns, scope.parts(wanted), scope.is_shared)


def test_policies_with_another_first_level_or_below_all_of_the_link_are_not_near() -> None:
    policies = [(b"b/#", False), (b"+/x", False), (b"a/b", False), (b"a/#", True), (b"a/c", False)]
    assert near_policies(policies) == [(b"+/x", False), (b"a/b", False), (b"a/#", True)]
    assert near_policies([(b"a", False)]) == []


def test_a_filter_over_two_policies_has_its_part_of_each() -> None:
    policies = [(b"a/b/#", False), (b"a/#", True), (b"c/+", True), (b"c/#", False)]
    scope = Scope(policies)
    assert sorted(scope.parts(b"#")) == [b"a/#", b"c/+"]
    assert scope.parts(b"a/b/c") == []
    assert scope.parts(b"a/+/c") == [b"a/+/c"]
    assert (scope.has(b"a/x"), scope.has(b"a/b/x"), scope.has(b"c/x/y"), scope.has(b"d")) == (True, False, False, False)


def test_a_pattern_without_topics_of_its_own_has_no_part() -> None:
    scope = Scope([(b"#", True), (b"a/#", True), (b"+/#", False)])
    assert scope.patterns == [b"#"]
    assert scope.parts(b"a/b") == [b"a/b"]
