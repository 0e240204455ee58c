"""What the log tells of an event stream: every reason is lost, refused or harmless, and in one of them only."""

from __future__ import annotations

from typing import Final

from federation.counters import lost_messages, refused_input
from federation.stream.counters import DropReason, SkipReason, StreamCounters

LOST: Final = {
    "outbox_full",
    "outbox_age",
    "larger_than_outbox",
    "larger_than_peer_takes",
    "refused_by_peer",
    "expired",
    "peer_gone",
    "not_representable",
    "received_expired",
}
REFUSED: Final = {"unknown_event", "malformed_event", "invalid_filter", "too_many_filters", "retained_clock_ahead"}
HARMLESS: Final = {"duplicate_event", "retained_state_older"}


def test_every_reason_is_told_once_or_harmless() -> None:
    assert sorted((*DropReason, *SkipReason)) == sorted([*LOST, *REFUSED, *HARMLESS])
    counters = StreamCounters()
    for number, reason in enumerate((*DropReason, *SkipReason), 1):
        counters.drop(reason, number)
    counts = {reason: number for number, reason in enumerate((*DropReason, *SkipReason), 1)}
    assert lost_messages({"n2": counters}) == {f"n2.{reason}": counts[reason] for reason in LOST}
    assert refused_input({"n2": counters}) == {f"n2.{reason}": counts[reason] for reason in REFUSED}
