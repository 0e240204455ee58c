"""The fewest filters, kept incrementally, against the maximal ones among all that are wanted."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from federation.links.cover import Cover
from federation.links.wants import CLIENT, CLIENTS, NOBODY, Want, Wants, include
from federation.topics.filters import covers, filter_of, levels_of

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
            settle(cover)
            take(cover, upstream)
            assert upstream == fewest(wanted)
    settle(cover)
    take(cover, upstream)
    assert upstream == fewest(wanted)
    assert cover.take_changes() == ([], [])


def settle(cover: Cover) -> None:
    while cover.go_on(7) >= 7:
        pass


def changes_of(cover: Cover) -> tuple[list[bytes], list[bytes]]:
    settle(cover)
    subscribe, unsubscribe = cover.take_changes()
    return sorted(subscribe), sorted(unsubscribe)


def take(cover: Cover, upstream: dict[bytes, Wants]) -> None:
    """Do at the upstream what the link does, and look for superfluous changes."""
    subscribe, unsubscribe = cover.take_changes()
    for topic_filter in subscribe:
        assert upstream.get(topic_filter) != cover.wants_of(topic_filter)
        upstream[topic_filter] = cover.wants_of(topic_filter)
    for topic_filter in unsubscribe:
        del upstream[topic_filter]


def test_the_upstream_has_never_too_few_filters_while_many_change() -> None:
    cover = Cover(1_000)
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
    cover.set(b"a/#", NOBODY)
    cover.go_on(10)
    cover.set(b"a/+/y/#", CLIENTS)
    covered_at_every_step()
    assert len(told) == 21
    cover.set(b"a/#", CLIENTS)
    cover.go_on(10)
    cover.set(b"a/#", NOBODY)
    covered_at_every_step()
    assert len(told) == 21


def test_filters_beyond_the_limit_wait_for_room() -> None:
    cover = Cover(2)
    for topic_filter in (b"a/1", b"a/2", b"b/1", b"b/2"):
        cover.set(topic_filter, CLIENTS)
    assert changes_of(cover) == ([b"a/1", b"a/2"], [])
    assert list(cover.refused) == [b"b/1", b"b/2"]
    cover.set(b"a/#", CLIENTS)
    assert changes_of(cover) == ([b"a/#", b"b/1"], [b"a/1", b"a/2"])
    cover.set(b"b/2", NOBODY)
    assert len(cover.refused) == 0
    cover.set(b"c", CLIENTS)
    assert list(cover.refused) == [b"c"]
    cover.set(b"#", CLIENTS)
    assert changes_of(cover) == ([b"#"], [b"a/#", b"b/1"])
    assert len(cover.refused) == 0


@given(st.lists(st.tuples(FILTERS, st.booleans()), max_size=40), st.integers(1, 4))
def test_the_limit_holds_and_nothing_waits_while_there_is_room(changes: list[tuple[bytes, bool]], limit: int) -> None:
    cover = Cover(limit)
    wanted: dict[bytes, Wants] = {}
    told: dict[bytes, Wants] = {}
    for topic_filter, is_wanted in changes:
        canonical = filter_of(*levels_of(topic_filter))
        cover.set(topic_filter, CLIENTS if is_wanted else NOBODY)
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
