"""What a window on content takes for the echo of a pushed message."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from federation.links.contents import ContentCheck, ContentWindow


def test_each_push_has_one_echo() -> None:
    window = ContentWindow()
    window.pushed(b"a", b"x", 2.0, 0.0)
    window.pushed(b"a", b"x", 2.0, 1.0)
    assert not window.is_echo(b"a", b"y", 2.0, 1.0)
    assert not window.is_echo(b"b", b"x", 2.0, 1.0)
    assert [window.is_echo(b"a", b"x", 2.0, 1.0) for _ in range(3)] == [True, True, False]


def test_the_shorter_time_of_both_ends_counts() -> None:
    for pushed_for, looked_for in ((2.0, 5.0), (5.0, 2.0)):
        window = ContentWindow()
        window.pushed(b"a", b"x", pushed_for, 0.0)
        window.pushed(b"a", b"y", pushed_for, 0.0)
        assert window.is_echo(b"a", b"x", looked_for, 1.9)
        assert not window.is_echo(b"a", b"y", looked_for, 2.0)


def test_a_late_echo_does_not_use_up_a_later_push() -> None:
    window = ContentWindow()
    window.pushed(b"a", b"x", 2.0, 0.0)
    window.pushed(b"a", b"x", 2.0, 1.5)
    assert [window.is_echo(b"a", b"x", 2.0, 3.0) for _ in range(2)] == [True, False]


def test_the_window_forgets_the_oldest_push_when_it_is_full() -> None:
    window = ContentWindow(3)
    for number in range(5):
        window.pushed(b"a", b"%d" % number, 10.0, float(number))
    assert (len(window), window.evicted) == (3, 2)
    assert [window.is_echo(b"a", b"%d" % number, 10.0, 5.0) for number in range(5)] == [False, False, True, True, True]


steps = st.lists(st.tuples(st.booleans(), st.sampled_from([b"x", b"y"]), st.floats(0.0, 2.0)), max_size=60)


@given(steps)
def test_a_window_is_as_a_list_of_pushes(taken: list[tuple[bool, bytes, float]]) -> None:
    window = ContentWindow()
    pushes: list[tuple[float, bytes]] = []
    now = 0.0
    for is_push, payload, seconds in taken:
        now += seconds
        if is_push:
            window.pushed(b"t", payload, 3.0, now)
            pushes.append((now, payload))
        else:
            found = next(((at, known) for at, known in pushes if known == payload and now < at + 3.0), None)
            assert window.is_echo(b"t", payload, 3.0, now) == (found is not None)
            if found is not None:
                pushes.remove(found)


def test_a_link_that_pushes_lets_all_cross() -> None:
    window = ContentWindow()
    out, into = ContentCheck(window, 2.0, True), ContentCheck(window, 2.0, False)
    assert into.crosses(b"a", b"x", 0.0)
    assert out.crosses(b"a", b"x", 0.0)
    assert out.crosses(b"a", b"x", 0.0)
    assert [into.crosses(b"a", b"x", 1.0) for _ in range(3)] == [False, False, True]
    assert (out.echoes, into.echoes) == (0, 2)
