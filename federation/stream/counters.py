"""Counters of the event streams with one other node, and the reasons for each message or event that is dropped."""

from __future__ import annotations

from typing import Final

# Messages that did not leave for the other node.
DROP_OUTBOX_FULL: Final = "outbox_full"
DROP_OUTBOX_AGE: Final = "outbox_age"
DROP_TOO_LARGE: Final = "larger_than_outbox"
DROP_TOO_LARGE_FOR_PEER: Final = "larger_than_peer_takes"
DROP_REFUSED: Final = "refused_by_peer"
DROP_EXPIRED: Final = "expired"
DROP_PEER_GONE: Final = "peer_gone"
DROP_NOT_REPRESENTABLE: Final = "not_representable"
DROP_RETAINED_DELETIONS: Final = "retained_deletions"  # more topics than the outbox keeps; they may stay different
# Events that came from the other node and were skipped (and acknowledged).
SKIP_UNKNOWN: Final = "unknown_event"
SKIP_MALFORMED: Final = "malformed_event"
SKIP_DUPLICATE: Final = "duplicate_event"
SKIP_EXPIRED: Final = "received_expired"
SKIP_RETAINED_OLDER: Final = "retained_state_older"
SKIP_FILTER: Final = "invalid_filter"
SKIP_FILTERS_FULL: Final = "too_many_filters"

REASONS: Final = (
    DROP_OUTBOX_FULL,
    DROP_OUTBOX_AGE,
    DROP_TOO_LARGE,
    DROP_TOO_LARGE_FOR_PEER,
    DROP_REFUSED,
    DROP_EXPIRED,
    DROP_PEER_GONE,
    DROP_NOT_REPRESENTABLE,
    DROP_RETAINED_DELETIONS,
    SKIP_UNKNOWN,
    SKIP_MALFORMED,
    SKIP_DUPLICATE,
    SKIP_EXPIRED,
    SKIP_RETAINED_OLDER,
    SKIP_FILTER,
    SKIP_FILTERS_FULL,
)


class StreamCounters:
    """Totals for one other node since it became a member; `dropped` maps each of REASONS to a number."""

    def __init__(self) -> None:
        self.messages_queued = 0
        self.batches_sent = 0
        self.events_sent = 0
        self.bytes_sent = 0
        self.batches_received = 0
        self.events_received = 0
        self.bytes_received = 0
        self.dropped: dict[str, int] = dict.fromkeys(REASONS, 0)
        self.connects = 0
        self.losses = 0
        self.retained_mended = 0
        self.events_acked = 0
        self.full_states_sent = 0
        self.full_states_received = 0
        self.streams_replaced = 0

    def drop(self, reason: str, count: int) -> None:
        self.dropped[reason] += count
