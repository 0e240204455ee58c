"""How far interest is told on: hops, paths, foreign upstreams; wants of one filter together."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.links.bridging.headers import WANTS_MAX
from federation.links.wants import CLIENT, CLIENTS, NOBODY, Tally, Upstream, Want, Wants, include, merged

A: Final = Want((b"a",), 3)
AB: Final = Want((b"a", b"b"), 3)


def test_interest_of_clients_goes_to_every_upstream() -> None:
    assert Upstream(b"here", 1, b"there").told(CLIENTS) == (Want((b"here",), 1),)
    assert Upstream(b"here", 7, b"there").told(CLIENTS) == (Want((b"here",), 7),)
    assert Upstream(b"here", 1, None).told(CLIENTS) == (Want((b"here",), 1),)


@pytest.mark.parametrize(
    ("want", "upstream", "told"),
    [
        (Want((b"a",), 1), b"there", ()),  # messages may pass one link, which is the one to a
        (Want((b"a",), 2), b"there", (Want((b"a", b"here"), 2),)),
        (Want((b"a",), 9), b"there", (Want((b"a", b"here"), 4),)),  # 3 of this link and the one to a
        (Want((b"a", b"b"), 3), b"there", (Want((b"a", b"b", b"here"), 3),)),
        (Want((b"there", b"b"), 9), b"there", ()),
        (Want((b"a", b"here", b"b"), 9), b"there", ()),
    ],
)
def test_interest_of_a_link_goes_on_as_far_as_it_may(want: Want, upstream: bytes, told: Wants) -> None:
    assert Upstream(b"here", 3, upstream).told((want,)) == told
    assert Upstream(b"here", 3, None).told((want,)) == NOBODY
    assert Upstream(b"here", 3, None).told((want, CLIENT)) == (Want((b"here",), 3),)


def test_an_upstream_that_is_not_known_yet_may_be_one_of_ours() -> None:
    assert Upstream(b"here", 3, None, is_known=False).told((Want((b"a",), 2),)) == (Want((b"a", b"here"), 2),)


@pytest.mark.parametrize("name", [None, b"there"])
def test_the_wants_of_clients_are_the_same_before_the_upstream_is_known(name: bytes | None) -> None:
    assert Upstream(b"here", 3, name).told(CLIENTS) == Upstream(b"here", 3, None, is_known=False).told(CLIENTS)


def test_wants_that_others_include_are_left_out() -> None:
    assert merged([CLIENT, CLIENT]) == CLIENTS
    assert merged([AB, Want((b"a", b"b"), 2)]) == (AB,)
    assert merged([AB, Want((b"a", b"b", b"c"), 4)]) == (AB,)
    assert merged([A, Want((b"b",), 3)]) == (A, Want((b"b",), 3))
    assert merged([A, Want((b"a", b"b"), 5)]) == (Want((b"a", b"b"), 5), A)


def test_a_want_of_clients_does_not_stand_for_one_of_a_domain_behind_them() -> None:
    assert set(merged([A, AB, CLIENT])) == {A, AB, CLIENT}


def test_wants_of_one_filter_have_a_limit() -> None:
    many = merged(Want((b"%d" % number,), 2 + number) for number in range(WANTS_MAX + 1))
    assert len(many) == WANTS_MAX
    assert Want((b"0",), 2) not in many


WANTS: Final = st.lists(
    st.one_of(
        st.just(CLIENT),
        st.builds(Want, st.lists(st.sampled_from([b"a", b"b", b"c"]), unique=True).map(tuple), st.integers(1, 4)),
    ),
    max_size=4,
).map(merged)


@given(WANTS, WANTS)
def test_merged_wants_include_both(first: Wants, second: Wants) -> None:
    both = merged((*first, *second))
    assert include(both, first)
    assert include(both, second)
    assert merged(both) == both
    if include(first, second):
        assert include(first, both)


@given(WANTS)
def test_interest_comes_to_an_end_in_a_ring(wants: Wants) -> None:
    ring = [b"a", b"b", b"c"]
    rounds = 0
    while wants:
        domain, upstream = ring[rounds % 3], ring[(rounds + 1) % 3]
        wants = Upstream(domain, 5, upstream).told(wants)
        rounds += 1
    assert rounds <= 3


@given(st.lists(WANTS, max_size=8), st.data())
def test_a_tally_has_the_wants_that_were_not_removed(added: list[Wants], data: st.DataObject) -> None:
    tally = Tally()
    for wants in added:
        tally.add(wants)
    removed = data.draw(st.permutations(added))
    for count, wants in enumerate(removed):
        left = removed[count:]
        assert tally.wants() == merged(want for each in left for want in each)
        assert not tally.is_empty()
        tally.remove(wants)
    assert tally.is_empty()
    assert tally.wants() == NOBODY
