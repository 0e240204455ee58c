"""A join under way."""

from __future__ import annotations

from federation.serf.events import JoinResult
from federation.serf.joins import PendingJoin


def test_a_join_is_over_when_all_addresses_are() -> None:
    join = PendingJoin(7, [("10.0.0.1", 1), ("10.0.0.2", 2), ("10.0.0.3", 3)])
    assert not join.finished(1, "refused")
    assert not join.finished(0, "")
    assert join.joined == 1
    assert join.finished(2, "no answer")
    assert join.result() == JoinResult(7, 1, {("10.0.0.2", 2): "refused", ("10.0.0.3", 3): "no answer"})
