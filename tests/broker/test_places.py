"""Places of connections: who goes at the bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.places import Places


def test_the_oldest_that_waits_makes_room() -> None:
    places: Places[str] = Places()
    assert [places.take(name, 3) for name in "abc"] == [None, None, None]
    places.hold("a")
    assert places.take("d", 3) == "b"
    places.release("a")  # served, as the newest
    assert places.take("e", 3) == "c"
    assert places.take("f", 3) == "d"
    assert (sorted(places), len(places), places.dropped, "a" in places, "d" in places) == (
        ["a", "e", "f"],
        3,
        3,
        True,
        False,
    )


def test_the_newest_goes_where_all_others_hold_their_places() -> None:
    places: Places[str] = Places()
    for name in "ab":
        places.take(name, 2)
        places.hold(name)
    assert places.take("c", 2) == "c"
    assert sorted(places) == ["a", "b"]
    places.discard("a")
    assert places.take("d", 2) is None


@given(st.lists(st.tuples(st.sampled_from(["take", "hold", "release", "discard"]), st.integers(0, 9)), max_size=60))
def test_places_are_never_more_than_the_bound_and_nobody_who_holds_one_goes(steps: list[tuple[str, int]]) -> None:
    places: Places[int] = Places()
    waiting: list[int] = []
    holding: set[int] = set()
    for what, name in steps:
        if what == "take" and name not in places:
            gone = places.take(name, 4)
            waiting.append(name)
            assert (gone is not None) == (len(waiting) + len(holding) > 4)
            if gone is not None:
                assert gone == waiting.pop(0)
        elif what == "hold" and name in places:
            places.hold(name)
            waiting = [each for each in waiting if each != name]
            holding.add(name)
        elif what == "release":
            places.release(name)
            if name in holding:
                holding.remove(name)
                waiting.append(name)
        elif what == "discard":
            places.discard(name)
            waiting = [each for each in waiting if each != name]
            holding.discard(name)
        assert set(places) == {*waiting, *holding}
        assert len(places) == len(waiting) + len(holding)
