"""Counters of gossip."""

from __future__ import annotations

import pytest

from federation.gossip import counters as reasons
from federation.gossip.counters import DROP_REASONS, Counters


def test_drops_are_the_sum_of_all_reasons() -> None:
    counters = Counters()
    assert counters.dropped == dict.fromkeys(DROP_REASONS, 0)
    counters.drop(reasons.ENCRYPTED)
    counters.drop(reasons.LABELLED, 4)
    counters.drop(reasons.LABELLED, 0)
    assert counters.drops == sum(counters.dropped.values()) == 5


def test_every_reason_is_known_from_the_start() -> None:
    named = {value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str)}
    assert named == set(DROP_REASONS)
    with pytest.raises(KeyError):
        Counters().drop("no such reason")
