"""Counters of drops as lines of the log: early, rarely, and complete."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from broker.server.bounded_log import CHECK_SECONDS, LASTING_SECONDS, QUIET_SECONDS, CounterLog


class Lines:
    def __init__(self) -> None:
        self.totals = {"queue_full": 5, "expired": 0}
        self.lines: list[dict[str, Any]] = []
        self.log = CounterLog(self.write, "messages dropped", lambda: dict(self.totals), 0.0)

    def write(self, event: str, **values: Any) -> None:
        assert event == "messages dropped"
        self.lines.append(values)


def test_the_first_drop_is_logged_at_the_next_check_and_further_ones_ever_more_rarely() -> None:
    lines = Lines()
    now = CHECK_SECONDS
    lines.log.check(now)
    assert lines.lines == []  # counts from before the log began are not reported
    told_at = []
    while now < 20_000:
        now += CHECK_SECONDS
        lines.totals["queue_full"] += 1000
        before = len(lines.lines)
        lines.log.check(now)
        if len(lines.lines) > before:
            told_at.append(now)
    assert told_at[0] == 2 * CHECK_SECONDS
    waits = [later - sooner for sooner, later in pairwise(told_at)]
    assert waits[:3] == [QUIET_SECONDS, 2 * QUIET_SECONDS, 4 * QUIET_SECONDS]
    assert waits[-2:] == [LASTING_SECONDS, LASTING_SECONDS]
    lines.log.check(now, is_last=True)
    assert sum(line["counts"]["queue_full"] for line in lines.lines) == lines.totals["queue_full"] - 5


def test_an_episode_ends_with_a_line_and_a_further_reason_does_not_wait_for_long() -> None:
    lines = Lines()
    now = 0.0
    while now < 1000:
        now += CHECK_SECONDS
        lines.totals["queue_full"] += 1
        lines.log.check(now)
    lines.lines.clear()
    lines.totals["expired"] += 1
    told_at = now
    while not lines.lines:
        now += CHECK_SECONDS
        lines.log.check(now)
    assert now - told_at <= QUIET_SECONDS
    assert lines.lines[0]["counts"]["expired"] == 1
    lines.totals["expired"] += 1
    last_at = now
    while len(lines.lines) < 2:
        now += CHECK_SECONDS
        lines.log.check(now)
    assert now - last_at <= QUIET_SECONDS + CHECK_SECONDS
    assert lines.lines[1]["counts"] == {"expired": 1}
    while now - last_at <= QUIET_SECONDS + CHECK_SECONDS:
        now += CHECK_SECONDS
        lines.log.check(now)
    lines.totals["expired"] += 1
    lines.log.check(now + CHECK_SECONDS)
    assert len(lines.lines) == 3, "another episode"


def test_only_risen_counters_are_named() -> None:
    lines = Lines()
    lines.totals["expired"] = 3
    lines.totals["node2.outbox_full"] = 7  # a counter that was not there before
    lines.log.check(CHECK_SECONDS)
    assert lines.lines == [{"within_seconds": 10, "counts": {"expired": 3, "node2.outbox_full": 7}}]


def test_a_counter_that_starts_again() -> None:
    lines = Lines()
    lines.totals = {"queue_full": 6, "node2.outbox_full": 50}
    lines.log.check(10.0)
    lines.totals = {"queue_full": 6}  # the other node was forgotten
    lines.log.check(100.0)
    lines.totals = {"queue_full": 6, "node2.outbox_full": 2}
    lines.log.check(200.0)
    assert [line["counts"] for line in lines.lines] == [
        {"queue_full": 1, "node2.outbox_full": 50},
        {"node2.outbox_full": 2},
    ]
