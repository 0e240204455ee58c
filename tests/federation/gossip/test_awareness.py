"""A node's own health."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.awareness import Awareness


@given(st.lists(st.integers(-3, 3)))
def test_awareness_stays_in_its_range(deltas: list[int]) -> None:
    awareness = Awareness(8)
    for delta in deltas:
        awareness.adjust(delta)
        assert 0 <= awareness.score <= 7
        assert awareness.scale(2.0) == 2.0 * (awareness.score + 1)
