"""The fewest filters, kept incrementally, against the maximal ones among all that are wanted."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from federation.links.cover import Cover
from federation.links.filters import covers, filter_of, levels_of
from federation.links.wants import CLIENT, CLIENTS, NOBODY, Want, Wants, include

LEVELS: Final = st.lists(st.sampled_from([b"", b"a", b"b", b"$s", b"+"]), min_size=1, max_size=4)
FILTERS: Final = st.builds(filter_of, LEVELS, st.booleans()).filter(len)
WANTS: Final = st.sampled_from(
    [NOBODY, NOBODY, CLIENTS, (Want((b"x",), 3),), (Want((b"x",), 2),), (Want((b"x",), 3), Want((b"y",), 3)), (CLIENT,)]
)


def fewest(wanted: dict[bytes, Wants]) -> dict[bytes, Wants]:
    """The filters that no other one covers."""
    return {
        one: wants
        for one, wants in wanted.items()
        if not any(other != one and covers(other, one) and include(more, wants) for other, more in wanted.items())
    }


@given(st.lists(st.tuples(FILTERS, WANTS, st.booleans()), max_size=40))
def test_the_fewest_filters_after_any_changes(changes: list[tuple[bytes, Wants, bool]]) -> None:
    cover = Cover(1_000)
    wanted: dict[bytes, Wants] = {}
    upstream: dict[bytes, Wants] = {}
    for topic_filter, wants, is_taken in changes:
        canonical = filter_of(*levels_of(topic_filter))
        cover.set(topic_filter, wants)
        wanted[canonical] = wants
        if not wants:
            del wanted[canonical]
        if is_taken:
            take(cover, upstream)
            assert upstream == fewest(wanted)
    take(cover, upstream)
    assert upstream == fewest(wanted)
    assert sorted(cover.filters()) == sorted(upstream)
    assert len(cover) == len(upstream)
    assert cover.take_changes() == ([], [])


def take(cover: Cover, upstream: dict[bytes, Wants]) -> None:
    """Do at the upstream what the link does, and look for superfluous changes."""
    subscribe, unsubscribe = cover.take_changes()
    for topic_filter in subscribe:
        assert upstream.get(topic_filter) != cover.wants_of(topic_filter)
        upstream[topic_filter] = cover.wants_of(topic_filter)
    for topic_filter in unsubscribe:
        del upstream[topic_filter]


def test_covered_filters_are_told_before_the_covering_one_goes() -> None:
    cover = Cover(10)
    for topic_filter in (b"a/b", b"a/+/c", b"a/#"):
        cover.set(topic_filter, CLIENTS)
    assert cover.take_changes() == ([b"a/#"], [])
    cover.set(b"a/#", NOBODY)
    assert cover.take_changes() == ([b"a/b", b"a/+/c"], [b"a/#"])
    cover.set(b"#", CLIENTS)
    cover.set(b"#", NOBODY)
    assert cover.take_changes() == ([], [])


def test_filters_beyond_the_limit_wait_for_room() -> None:
    cover = Cover(2)
    for topic_filter in (b"a/1", b"a/2", b"b/1", b"b/2"):
        cover.set(topic_filter, CLIENTS)
    assert cover.take_changes() == ([b"a/1", b"a/2"], [])
    assert list(cover.refused) == [b"b/1", b"b/2"]
    cover.set(b"a/#", CLIENTS)
    subscribe, unsubscribe = cover.take_changes()
    assert (subscribe, sorted(unsubscribe)) == ([b"a/#", b"b/1"], [b"a/1", b"a/2"])
    cover.set(b"b/2", NOBODY)
    assert len(cover.refused) == 0
    cover.set(b"c", CLIENTS)
    cover.set(b"#", CLIENTS)
    subscribe, unsubscribe = cover.take_changes()
    assert (subscribe, sorted(unsubscribe)) == ([b"#"], [b"a/#", b"b/1"])
    assert len(cover.refused) == 0


@given(st.lists(st.tuples(FILTERS, st.booleans()), max_size=40), st.integers(1, 4))
def test_the_limit_holds_and_nothing_waits_while_there_is_room(changes: list[tuple[bytes, bool]], limit: int) -> None:
    cover = Cover(limit)
    wanted: dict[bytes, Wants] = {}
    for topic_filter, is_wanted in changes:
        canonical = filter_of(*levels_of(topic_filter))
        cover.set(topic_filter, CLIENTS if is_wanted else NOBODY)
        if is_wanted:
            wanted[canonical] = CLIENTS
        else:
            wanted.pop(canonical, None)
        cover.take_changes()
        told = cover.filters()
        assert len(told) <= limit
        waiting = [one for one in wanted if not any(covers(other, one) for other in told)]
        assert not waiting or len(told) == limit
        assert set(waiting) <= set(cover.refused)
