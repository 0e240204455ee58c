"""Counters of gossip."""

from __future__ import annotations

from federation.gossip.counters import Counters, DropReason


def test_drops_are_the_sum_of_all_reasons() -> None:
    counters = Counters()
    assert counters.dropped == dict.fromkeys(DropReason, 0)
    counters.drop(DropReason.ENCRYPTED)
    counters.drop(DropReason.LABELLED, 4)
    counters.drop(DropReason.LABELLED, 0)
    assert counters.drops == sum(counters.dropped.values()) == 5
