"""Counters of the event streams with one other node, and the reasons for each message or event that is dropped."""

# compiled with mypyc
from __future__ import annotations

from enum import StrEnum


class DropReason(StrEnum):
    """Of messages that did not leave for the other node."""

    OUTBOX_FULL = "outbox_full"
    OUTBOX_AGE = "outbox_age"
    TOO_LARGE = "larger_than_outbox"
    TOO_LARGE_FOR_PEER = "larger_than_peer_takes"
    REFUSED = "refused_by_peer"
    EXPIRED = "expired"
    PEER_GONE = "peer_gone"
    NOT_REPRESENTABLE = "not_representable"


class SkipReason(StrEnum):
    """Of events that came from the other node and were skipped, and acknowledged."""

    UNKNOWN = "unknown_event"
    MALFORMED = "malformed_event"
    DUPLICATE = "duplicate_event"
    EXPIRED = "received_expired"
    RETAINED_OLDER = "retained_state_older"
    RETAINED_AHEAD = "retained_clock_ahead"
    FILTER = "invalid_filter"
    FILTERS_FULL = "too_many_filters"


Reason = DropReason | SkipReason


class StreamCounters:
    """Totals for one other node since it became a member; `dropped` maps each reason to a number."""

    def __init__(self) -> None:
        self.messages_queued = 0
        self.events_sent = 0
        self.bytes_sent = 0
        self.events_received = 0
        self.bytes_received = 0
        self.dropped: dict[Reason, int] = dict.fromkeys((*DropReason, *SkipReason), 0)
        self.connects = 0
        self.times_behind = 0
        self.streams_lost = 0
        self.retained_mended = 0
        self.retained_differing = (
            -1
        )  # parts of the retained messages that differed at the last comparison; -1 before it
        self.retained_unmended = 0  # parts of them that differed at the last two comparisons
        self.interest_mended = 0
        self.copies_chosen_again = 0
        self.copies_forgotten = 0
        self.events_acked = 0
        self.events_resent = 0
        self.full_states_sent = 0

    def drop(self, reason: Reason, count: int) -> None:
        self.dropped[reason] += count
