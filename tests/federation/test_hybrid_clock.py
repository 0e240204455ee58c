"""Hybrid clocks: never back, whatever the time of the node does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from federation.hybrid_clock import COUNTER_BITS, HybridClock, seconds_of


@given(st.lists(st.tuples(st.booleans(), st.floats(-1e9, 4e9))))
def test_a_clock_is_behind_all_that_was_given_and_seen(steps: list[tuple[bool, float]]) -> None:
    clock = HybridClock()
    latest = 0
    for is_seen, time in steps:
        if is_seen:
            clock.saw(int(time * 1000) << COUNTER_BITS)
        else:
            found = clock.next(time)
            assert found > latest
            assert seconds_of(found) >= time - 0.001
        assert clock.latest >= latest
        latest = clock.latest
