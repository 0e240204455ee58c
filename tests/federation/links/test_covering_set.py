"""The fewest filters, kept incrementally, against the maximal ones among all that are wanted."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from federation.links.bridging.headers import INTERESTS_MAX, Interest
from federation.links.covering_set import (
    CLIENT,
    CLIENTS,
    NO_INTEREST,
    CoveringSet,
    Interests,
    include,
    merged,
)
from federation.topics.filters import covers, filter_of, levels_of

LEVELS: Final = st.lists(st.sampled_from([b"", b"a", b"b", b"$s", b"+"]), min_size=1, max_size=4)
FILTERS: Final = st.builds(filter_of, LEVELS, st.booleans()).filter(len)
INTERESTS: Final = st.sampled_from(
    [
        NO_INTEREST,
        NO_INTEREST,
        CLIENTS,
        (Interest((b"x",), 3),),
        (Interest((b"x",), 2),),
        (Interest((b"x",), 3), Interest((b"y",), 3)),
        (CLIENT,),
    ]
)


def fewest(wanted: dict[bytes, Interests]) -> dict[bytes, Interests]:
    """The filters that no other one covers."""
    return {
        one: interests
        for one, interests in wanted.items()
        if not any(other != one and covers(other, one) and include(more, interests) for other, more in wanted.items())
    }


@given(st.lists(st.tuples(FILTERS, INTERESTS, st.booleans()), max_size=40))
def test_the_fewest_filters_after_any_changes(changes: list[tuple[bytes, Interests, bool]]) -> None:
    cover = CoveringSet(1_000)
    wanted: dict[bytes, Interests] = {}
    upstream: dict[bytes, Interests] = {}
    for topic_filter, interests, is_taken in changes:
        canonical = filter_of(*levels_of(topic_filter))
        cover.set(topic_filter, interests)
        wanted[canonical] = interests
        if not interests:
            del wanted[canonical]
        if is_taken:
            settle(cover)
            take(cover, upstream)
            assert upstream == fewest(wanted)
    settle(cover)
    take(cover, upstream)
    assert upstream == fewest(wanted)
    assert cover.take_changes() == ([], [])


def settle(cover: CoveringSet) -> None:
    while cover.go_on(7) >= 7:
        pass


def changes_of(cover: CoveringSet) -> tuple[list[bytes], list[bytes]]:
    settle(cover)
    subscribe, unsubscribe = cover.take_changes()
    return sorted(subscribe), sorted(unsubscribe)


def take(cover: CoveringSet, upstream: dict[bytes, Interests]) -> None:
    """Do at the upstream what the link does, and look for superfluous changes."""
    subscribe, unsubscribe = cover.take_changes()
    for topic_filter in subscribe:
        assert upstream.get(topic_filter) != cover.interests_of(topic_filter)
        upstream[topic_filter] = cover.interests_of(topic_filter)
    for topic_filter in unsubscribe:
        del upstream[topic_filter]


def test_the_upstream_has_never_too_few_filters_while_many_change() -> None:
    cover = CoveringSet(1_000)
    wanted = [b"a/%d/%s" % (number, end) for number in range(20) for end in (b"x", b"+", b"y/#")]
    told: set[bytes] = set()

    def covered_at_every_step() -> None:
        while True:
            is_done = cover.go_on(3) < 3
            subscribe, unsubscribe = cover.take_changes()
            told.update(subscribe)
            told.difference_update(unsubscribe)
            assert all(any(covers(other, one) for other in told) for one in wanted)
            if is_done:
                return

    for topic_filter in wanted:
        cover.set(topic_filter, CLIENTS)
    covered_at_every_step()
    assert len(told) == 40
    cover.set(b"a/#", CLIENTS)
    covered_at_every_step()
    assert told == {b"a/#"}
    cover.set(b"a/#", NO_INTEREST)
    cover.go_on(10)
    cover.set(b"a/+/y/#", CLIENTS)
    covered_at_every_step()
    assert len(told) == 21
    cover.set(b"a/#", CLIENTS)
    cover.go_on(10)
    cover.set(b"a/#", NO_INTEREST)
    covered_at_every_step()
    assert len(told) == 21


def test_filters_beyond_the_limit_wait_for_room() -> None:
    cover = CoveringSet(2)
    for topic_filter in (b"a/1", b"a/2", b"b/1", b"b/2"):
        cover.set(topic_filter, CLIENTS)
    assert changes_of(cover) == ([b"a/1", b"a/2"], [])
    assert list(cover.refused) == [b"b/1", b"b/2"]
    cover.set(b"a/#", CLIENTS)
    assert changes_of(cover) == ([b"a/#", b"b/1"], [b"a/1", b"a/2"])
    cover.set(b"b/2", NO_INTEREST)
    assert len(cover.refused) == 0
    cover.set(b"c", CLIENTS)
    assert list(cover.refused) == [b"c"]
    cover.set(b"#", CLIENTS)
    assert changes_of(cover) == ([b"#"], [b"a/#", b"b/1"])
    assert len(cover.refused) == 0


@given(st.lists(st.tuples(FILTERS, st.booleans()), max_size=40), st.integers(1, 4))
def test_the_limit_holds_and_nothing_waits_while_there_is_room(changes: list[tuple[bytes, bool]], limit: int) -> None:
    cover = CoveringSet(limit)
    wanted: dict[bytes, Interests] = {}
    told: dict[bytes, Interests] = {}
    for topic_filter, is_wanted in changes:
        canonical = filter_of(*levels_of(topic_filter))
        cover.set(topic_filter, CLIENTS if is_wanted else NO_INTEREST)
        if is_wanted:
            wanted[canonical] = CLIENTS
        else:
            wanted.pop(canonical, None)
        settle(cover)
        take(cover, told)
        assert len(told) <= limit
        waiting = [one for one in wanted if not any(covers(other, one) for other in told)]
        assert not waiting or len(told) == limit
        assert set(waiting) <= set(cover.refused)


A: Final = Interest((b"a",), 3)
AB: Final = Interest((b"a", b"b"), 3)


def test_interests_that_others_include_are_left_out() -> None:
    assert merged([CLIENT, CLIENT]) == CLIENTS
    assert merged([AB, Interest((b"a", b"b"), 2)]) == (AB,)
    assert merged([AB, Interest((b"a", b"b", b"c"), 4)]) == (AB,)
    assert merged([A, Interest((b"b",), 3)]) == (A, Interest((b"b",), 3))
    assert merged([A, Interest((b"a", b"b"), 5)]) == (Interest((b"a", b"b"), 5), A)


def test_an_interest_of_clients_does_not_stand_for_one_of_a_domain_behind_them() -> None:
    assert set(merged([A, AB, CLIENT])) == {A, AB, CLIENT}


def test_interests_of_one_filter_have_a_limit() -> None:
    many = merged(Interest((b"%d" % number,), 2 + number) for number in range(INTERESTS_MAX + 1))
    assert len(many) == INTERESTS_MAX
    assert Interest((b"0",), 2) not in many


MERGED: Final = st.lists(
    st.one_of(
        st.just(CLIENT),
        st.builds(Interest, st.lists(st.sampled_from([b"a", b"b", b"c"]), unique=True).map(tuple), st.integers(1, 4)),
    ),
    max_size=4,
).map(merged)


@given(MERGED, MERGED)
def test_merged_interests_include_both(first: Interests, second: Interests) -> None:
    both = merged((*first, *second))
    assert include(both, first)
    assert include(both, second)
    assert merged(both) == both
    if include(first, second):
        assert include(first, both)
