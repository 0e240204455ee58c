"""Filters of queries (wire-gossip 8.8)."""

from __future__ import annotations

import re
from typing import Final

from federation.gossip.errors import WireError
from federation.gossip.msgpack_fields import as_fields, decode, encode, text_field
from federation.serf.messages import FILTER_NODE, FILTER_TAG

# Expressions come from other nodes and run on the loop's thread. Without groups and with at most two repetitions the time
# grows with the square of a tag's length, not exponentially. Other expressions match nothing.
EXPRESSION_LENGTH_MAX: Final = 128
_REPETITIONS_MAX: Final = 2


def encode_filters(nodes: tuple[str, ...], tags: dict[str, str]) -> tuple[bytes, ...] | None:
    """The filters of a query: one of these nodes, and each tag matches its expression. None for none."""
    found = [bytes((FILTER_NODE,)) + encode(list(nodes))] if nodes else []
    for tag, expression in tags.items():
        found.append(bytes((FILTER_TAG,)) + encode({"Expr": expression, "Tag": tag}))
    return tuple(found) or None


def filters_match(filters: tuple[bytes, ...] | None, own_name: str, tags: dict[str, str]) -> bool:
    """Return whether all filters match. A filter that does not decode does not match."""
    for encoded in filters or ():
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
