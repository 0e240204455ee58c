"""Episodes: silence, usual ranges, names in topics."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.routing.names import check_topic_name
from pipeline.jobs.episodes import (
    AWAY_MS,
    BEGAN,
    ENDED,
    Limits,
    Silence,
    Usual,
    due_ms,
    hear,
    look,
    topic_part,
    watch,
)

AFTER = 10_000
FORGET = 1_000_000


def test_silence_is_one_episode_until_the_device_comes_back() -> None:
    state, has_ended = hear(None, 5, "t", 1000)
    assert (has_ended, due_ms(state, AFTER, FORGET)) == (False, 11_000)
    state, has_ended = hear(state, 6, "t", 4000)
    assert look(state, 11_000, AFTER, FORGET) == (state, False)
    silent, has_begun = look(state, 14_000, AFTER, FORGET)
    assert has_begun
    assert silent is not None
    assert (silent.is_silent, silent.episode) == (True, 1)
    assert due_ms(silent, AFTER, FORGET) == 4000 + FORGET
    assert look(silent, 20_000, AFTER, FORGET) == (silent, False)
    back, has_ended = hear(silent, 7, "u", 30_000)
    assert (back, has_ended) == (Silence(30_000, 7, "u", 1), True)
    again, has_begun = look(back, 40_000, AFTER, FORGET)
    assert has_begun
    assert again is not None
    assert again.episode == 2


def test_a_pipeline_that_was_away_gives_devices_a_new_period() -> None:
    state, _ = hear(None, 5, "t", 1000)
    now = 1000 + AFTER + AWAY_MS + 1
    assert look(state, now, AFTER, FORGET) == (state._replace(heard_ms=now), False)


def test_a_device_that_stays_silent_is_forgotten() -> None:
    state = Silence(1000, 5, "t", 1, is_silent=True)
    assert look(state, 1000 + FORGET, AFTER, FORGET) == (None, False)


def test_an_older_message_does_not_move_the_last_one_back() -> None:
    state, _ = hear(Silence(1000, 50, "new"), 40, "old", 2000)
    assert (state.last_ns, state.topic, state.heard_ms) == (50, "new", 2000)


LIMITS = Limits(width=4.0, least=0.0, learn_after=30, memory=100, confirm=3)


def run(values: list[float], usual: Usual = Usual(), limits: Limits = LIMITS) -> tuple[Usual, list[tuple[int, str]]]:  # noqa: B008
    events = []
    for index, value in enumerate(values):
        usual, event = watch(usual, value, limits)
        if event:
            events.append((index, event))
    return usual, events


def usual_values(count: int) -> list[float]:
    source = random.Random(1)
    return [source.gauss(20.0, 1.0) for _ in range(count)]


def test_an_episode_begins_and_ends_once() -> None:
    values = usual_values(200)
    _, events = run([*values, 60.0, 61.0, 62.0, 63.0, *values[:50]])
    assert events == [(202, BEGAN), (206, ENDED)]


def test_spikes_are_no_episode_and_change_nothing() -> None:
    values = usual_values(200)
    before, _ = run(values)
    after, events = run([60.0, 61.0], before)
    assert events == []
    assert after == before._replace(streak=2)


def test_nothing_is_unusual_while_values_are_learned() -> None:
    assert run([1.0, 1e6] * 15)[1] == []


def test_a_level_that_lasts_becomes_the_usual_one() -> None:
    usual, events = run([*usual_values(200), *(value + 40.0 for value in usual_values(1000))])
    assert [event for _, event in events] == [BEGAN, ENDED]
    assert usual.mean == pytest.approx(60.0, abs=1.0)


def test_a_constant_value_needs_the_least_width() -> None:
    values = [5.0] * 50 + [5.1] * 3
    assert run(values)[1] == [(52, BEGAN)]
    assert run(values, limits=LIMITS._replace(least=0.5))[1] == []


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True)))
def test_states_stay_finite(values: list[float]) -> None:
    usual, events = run(values, limits=LIMITS._replace(learn_after=2, confirm=1))
    assert abs(usual.mean) < float("inf")
    assert 0.0 <= usual.variance < float("inf")
    assert [event for _, event in events] == [BEGAN, ENDED] * (len(events) // 2) + [BEGAN] * (len(events) % 2)


@given(st.text().filter(lambda name: "\0" not in name and name.isprintable()))
def test_names_of_devices_make_topic_names(name: str) -> None:
    check_topic_name(f"alerts/silent/{topic_part(name)}".encode())


def test_long_names_of_devices_are_digests() -> None:
    assert len(topic_part("x" * 1001)) == 64
    assert len(topic_part("/" * 100)) == 64
    assert topic_part("a+b/#%") == "a%2Bb/%23%25"
