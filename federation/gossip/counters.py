"""Counters of one node's gossip and Serf: drops by reason, packets, probes, suspicions."""

from __future__ import annotations

from typing import Final

# Reasons of drops. Each is a key of `Counters.dropped` from the start, so that zeros are visible.
MALFORMED_PACKET: Final = "malformed_packet"
MALFORMED_MESSAGE: Final = "malformed_message"
MALFORMED_STREAM: Final = "malformed_stream"
ENCRYPTED: Final = "encrypted"
LABELLED: Final = "labelled"
CRC_MISMATCH: Final = "crc_mismatch"
UNKNOWN_MESSAGE: Final = "unknown_message"
PING_FOR_OTHER: Final = "ping_for_other_node"
TABLE_FULL: Final = "member_table_full"
BAD_VERSION: Final = "unacceptable_version"
NAME_CONFLICT: Final = "name_conflict"
RELAYS_FULL: Final = "indirect_ping_relays_full"
STREAMS_FULL: Final = "too_many_streams"
STREAM_BYTES_FULL: Final = "too_many_stream_bytes"
STREAM_REFUSED: Final = "stream_of_unexpected_type"
BROADCASTS_FULL: Final = "broadcast_queue_full"
MALFORMED_SERF: Final = "malformed_serf_message"
MALFORMED_TAGS: Final = "malformed_tags"
INTENTS_FULL: Final = "recent_intents_full"
EVENT_SLOT_FULL: Final = "event_buffer_slot_full"
EVENT_TOO_OLD: Final = "event_too_old"
UNKNOWN_QUERY: Final = "unknown_internal_query"
MESSAGE_TOO_LARGE: Final = "message_too_large"
PACKETS_FULL: Final = "packets_not_taken"

DROP_REASONS: Final = (
    MALFORMED_PACKET,
    MALFORMED_MESSAGE,
    MALFORMED_STREAM,
    ENCRYPTED,
    LABELLED,
    CRC_MISMATCH,
    UNKNOWN_MESSAGE,
    PING_FOR_OTHER,
    TABLE_FULL,
    BAD_VERSION,
    NAME_CONFLICT,
    RELAYS_FULL,
    STREAMS_FULL,
    STREAM_BYTES_FULL,
    STREAM_REFUSED,
    BROADCASTS_FULL,
    MALFORMED_SERF,
    MALFORMED_TAGS,
    INTENTS_FULL,
    EVENT_SLOT_FULL,
    EVENT_TOO_OLD,
    UNKNOWN_QUERY,
    MESSAGE_TOO_LARGE,
    PACKETS_FULL,
)


class Counters:
    """Totals since the start of the process. `dropped` maps each of DROP_REASONS to a number; `drops` is their sum."""

    def __init__(self) -> None:
        self.dropped: dict[str, int] = dict.fromkeys(DROP_REASONS, 0)
        self.drops = 0
        self.packets_received = 0
        self.packets_sent = 0
        self.probes_sent = 0
        self.probes_failed = 0
        self.push_pulls = 0
        self.refutations = 0
        self.suspicions = 0

    def drop(self, reason: str, count: int = 1) -> None:
        self.dropped[reason] += count
        self.drops += count
