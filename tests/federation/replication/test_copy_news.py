"""What is logged of a copy that becomes whole, and falls short."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.message import NEVER
from federation.replication.copy_news import HOLD_SECONDS_MAX, HOLD_SECONDS_MIN, CopyNews


def said(looks: list[tuple[float, bool]]) -> list[tuple[float, bool]]:
    """What is said, with the time, where the copy is so from each of these times on."""
    news = CopyNews()
    found: list[tuple[float, bool]] = []
    for at, (now, is_whole) in enumerate(looks):
        until = looks[at + 1][0] if at + 1 < len(looks) else NEVER
        if news.look(is_whole, now):
            found.append((now, news.is_whole))
        if news.due_at < until:
            assert news.look(is_whole, news.due_at)
            found.append((news._said_at, news.is_whole))
        assert news.due_at == NEVER or news.due_at >= until
    return found


@pytest.mark.parametrize(
    "looks",
    [
        [(0.0, True)],
        [(0.0, True), (5.0, False)],
        [(0.0, True), (HOLD_SECONDS_MAX, False), (HOLD_SECONDS_MAX + 1.0, True)],
    ],
)
def test_the_first_change_of_an_episode_is_said_at_once(looks: list[tuple[float, bool]]) -> None:
    assert said(looks) == looks


def test_one_that_falls_short_again_is_whole_for_a_while_before_it_is_said() -> None:
    looks = [(0.0, True), (5.0, False), (6.0, True), (20.0, False), (21.0, True)]
    whole = 6.0 + HOLD_SECONDS_MIN, True
    assert said(looks) == [looks[0], looks[1], whole, looks[3], (21.0 + 2.0 * HOLD_SECONDS_MIN, True)]


def test_what_falls_short_again_and_again_is_one_episode_with_a_count() -> None:
    news = CopyNews()
    lines = 0
    for number in range(2_000):
        lines += news.look(True, number / 2.0)
        lines += news.look(False, number / 2.0 + 0.2)
    assert lines == 2
    assert not news.look(True, 1_000.0)
    assert news.look(True, news.due_at)
    assert news.take_times_short() == 2_000
    assert news.take_times_short() == 0


@given(st.lists(st.tuples(st.floats(0.01, 100.0), st.booleans()), max_size=40))
def test_what_was_said_last_is_so_in_the_end(steps: list[tuple[float, bool]]) -> None:
    now = 0.0
    looks: list[tuple[float, bool]] = []
    for seconds, is_whole in steps:
        now += seconds
        looks.append((now, is_whole))
    found = said(looks)
    assert (found[-1][1] if found else False) == (looks[-1][1] if looks else False)
    assert all(before != then for (_, before), (_, then) in pairwise(found))
