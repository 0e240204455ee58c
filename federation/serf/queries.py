"""Filters of queries, and the responses to this node's own queries (wire-gossip 8.8)."""

from __future__ import annotations

import re
from typing import Final

from federation.gossip.errors import WireError
from federation.gossip.msgpack_fields import as_fields, as_text, decode, text_field
from federation.serf.messages import FILTER_NODE, FILTER_TAG, FLAG_ACK, QueryResponse

PENDING_QUERIES_MAX: Final = 128
"""Queries of this node under way; further ones are refused."""
RESPONSES_MAX: Final = 16_384
"""Responses kept for one query, and acks; further ones are ignored."""

# Expressions come from other nodes and run on the loop's thread. Without groups and with at most two repetitions the time
# grows with the square of a tag's length, not exponentially. Other expressions match nothing.
EXPRESSION_LENGTH_MAX: Final = 128
_REPETITIONS_MAX: Final = 2


def filters_match(filters: list[bytes], own_name: str, tags: dict[str, str]) -> bool:
    """Whether all filters match. A filter that does not decode does not match."""
    for encoded in filters:
        try:
            if not _filter_matches(encoded, own_name, tags):
                return False
        except WireError:
            return False
    return True


def _filter_matches(encoded: bytes, own_name: str, tags: dict[str, str]) -> bool:
    if not encoded:
        return False
    value = decode(encoded[1:])
    if encoded[0] == FILTER_NODE:
        return isinstance(value, list) and own_name.encode() in value
    if encoded[0] == FILTER_TAG:
        fields = as_fields(value)
        return _expression_matches(text_field(fields, b"Expr"), tags.get(text_field(fields, b"Tag"), ""))
    return False


def _expression_matches(expression: str, value: str) -> bool:
    if len(expression) > EXPRESSION_LENGTH_MAX or "(" in expression:
        return False
    if sum(expression.count(sign) for sign in "*+?{") > _REPETITIONS_MAX:
        return False
    try:
        return re.search(expression, value) is not None
    except (re.error, OverflowError):
        return False


class PendingQuery:
    """A query of this node. `conflict`: it asks which node keeps this node's name."""

    __slots__ = ("acks", "conflict", "deadline", "lamport_time", "query_id", "responses")

    def __init__(self, lamport_time: int, query_id: int, deadline: float, conflict: bool) -> None:
        self.lamport_time = lamport_time
        self.query_id = query_id
        self.deadline = deadline
        self.conflict = conflict
        self.acks: dict[str, None] = {}
        self.responses: dict[str, bytes] = {}

    def receive(self, response: QueryResponse) -> None:
        """Keep the first ack and the first response of each member."""
        if response.flags & FLAG_ACK:
            if len(self.acks) < RESPONSES_MAX:
                self.acks.setdefault(response.origin)
        elif len(self.responses) < RESPONSES_MAX:
            self.responses.setdefault(response.origin, response.payload or b"")


def conflict_name(payload: bytes) -> str:
    return as_text(payload, b"name in conflict")
