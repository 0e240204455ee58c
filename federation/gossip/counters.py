"""Counters of one node's gossip and Serf: drops by reason, packets, probes, suspicions."""

from __future__ import annotations

from enum import StrEnum


class DropReason(StrEnum):
    """Each is a key of `Counters.dropped` from the start, so that zeros are visible."""

    MALFORMED_PACKET = "malformed_packet"
    MALFORMED_MESSAGE = "malformed_message"
    MALFORMED_STREAM = "malformed_stream"
    ENCRYPTED = "encrypted"
    PLAIN = "plain"
    WRONG_KEY = "wrong_key"
    WRONG_LABEL = "wrong_label"
    ADDRESS_NOT_ALLOWED = "address_not_allowed"
    CRC_MISMATCH = "crc_mismatch"
    UNKNOWN_MESSAGE = "unknown_message"
    PING_FOR_OTHER = "ping_for_other_node"
    TABLE_FULL = "member_table_full"
    BAD_VERSION = "unacceptable_version"
    BAD_NAME = "unprintable_name"
    NAME_CONFLICT = "name_conflict"
    RELAYS_FULL = "indirect_ping_relays_full"
    STREAMS_FULL = "too_many_streams"
    STREAM_BYTES_FULL = "too_many_stream_bytes"
    STREAM_REFUSED = "stream_of_unexpected_type"
    BROADCASTS_FULL = "broadcast_queue_full"
    MALFORMED_SERF = "malformed_serf_message"
    MALFORMED_TAGS = "malformed_tags"
    INTENTS_FULL = "recent_intents_full"
    EVENT_SLOT_FULL = "event_buffer_slot_full"
    EVENT_TOO_OLD = "event_too_old"
    EXPRESSIONS_FULL = "too_many_filter_expressions"
    UNKNOWN_QUERY = "unknown_internal_query"
    BAD_COORDINATE = "invalid_coordinate"
    RESPONSES_FULL = "query_responses_full"
    MESSAGE_TOO_LARGE = "message_too_large"
    PACKETS_FULL = "packets_not_taken"


class Counters:
    """Totals since the start of the process. `dropped` maps each DropReason to a number; `drops` is their sum.

    send_errors               datagrams that the kernel refused to send, or reported as undeliverable
    coordinate_resets         times that this node's coordinate became invalid and began at the origin again
    query_responses_late      acks and responses to no query under way
    query_responses_repeated  further ones of the same member: relays send each once more
    """

    def __init__(self) -> None:
        self.dropped: dict[DropReason, int] = dict.fromkeys(DropReason, 0)
        self.drops = 0
        self.packets_received = 0
        self.packets_sent = 0
        self.send_errors = 0
        self.probes_sent = 0
        self.probes_failed = 0
        self.refutations = 0
        self.suspicions = 0
        self.coordinate_resets = 0
        self.user_events_sent = 0
        self.user_events_received = 0
        self.queries_sent = 0
        self.queries_received = 0
        self.query_responses_received = 0
        self.query_responses_late = 0
        self.query_responses_repeated = 0

    def drop(self, reason: DropReason, count: int = 1) -> None:
        self.dropped[reason] += count
        self.drops += count
