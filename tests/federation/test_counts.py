"""What the log tells of an event stream: every reason is lost, refused or harmless, and in one of them only."""

from __future__ import annotations

from federation.counts import HARMLESS, REFUSED, lost_messages, refused_input
from federation.stream.counters import REASONS, StreamCounters


def test_every_reason_is_told_once_or_harmless() -> None:
    counters = StreamCounters()
    for number, reason in enumerate(REASONS, 1):
        counters.drop(reason, number)
    lost = lost_messages({"n2": counters})
    refused = refused_input({"n2": counters})
    assert not lost.keys() & refused.keys()
    told = lost | refused
    assert told.keys() | {f"n2.{reason}" for reason in HARMLESS} == {f"n2.{reason}" for reason in REASONS}
    assert refused.keys() == {f"n2.{reason}" for reason in REFUSED}
    assert all(told[f"n2.{reason}"] == number for number, reason in enumerate(REASONS, 1) if reason not in HARMLESS)
    assert told["n2.outbox_full"] == 1
