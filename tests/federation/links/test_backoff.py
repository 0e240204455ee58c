"""The delay before the next try of a link."""

from __future__ import annotations

import random

import pytest

from federation.links.backoff import DELAY_SECONDS_MAX, REFUSED_SECONDS_MAX, STABLE_SECONDS, Backoff
from federation.links.client import End


def delays(backoff: Backoff, end: End, count: int) -> list[float]:
    return [backoff.delay(end, 0.0) for _ in range(count)]


def test_a_delay_doubles_up_to_its_cap_with_jitter() -> None:
    found = delays(Backoff(1.0, random.Random(1)), End.LOST, 12)
    for number, delay in enumerate(found):
        ceiling = min(DELAY_SECONDS_MAX, 2.0**number)
        assert ceiling / 2 <= delay <= ceiling
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("end", [End.REFUSED, End.VERSION, End.TAKEN, End.FAULT])
def test_a_refusal_waits_longer(end: End) -> None:
    assert delays(Backoff(5.0, random.Random(1)), end, 1)[0] >= 15.0
    assert max(delays(Backoff(5.0, random.Random(1)), end, 20)) <= REFUSED_SECONDS_MAX


def test_a_stable_connection_begins_anew() -> None:
    backoff = Backoff(1.0, random.Random(1))
    delays(backoff, End.LOST, 10)
    assert backoff.delay(End.LOST, STABLE_SECONDS) <= 1.0
    delays(backoff, End.LOST, 10)
    backoff.reset()
    assert backoff.delay(End.LOST, 0.0) <= 1.0


def test_a_long_base_is_kept() -> None:
    assert delays(Backoff(600.0, random.Random(1)), End.LOST, 5)[-1] >= 300.0
