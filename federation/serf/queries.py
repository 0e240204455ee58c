"""Filters of queries (wire-gossip 8.8)."""

from __future__ import annotations

from typing import Final

from broker.token_bucket import TokenBucket
from federation.gossip.counters import Counters, DropReason
from federation.gossip.errors import WireError
from federation.gossip.msgpack_fields import as_fields, decode, encode, text_field
from federation.serf.expressions import Expression
from federation.serf.messages import FILTER_NODE, FILTER_TAG

FILTERS_BYTES_MAX: Final = 1024
"""Bytes of all filters of a query, which are those of a whole query of Serf; more match nothing."""
EXPRESSIONS_MAX: Final = 32
"""Expressions that are matched at once, and further ones a second: those of a query that has room for no more. One datagram can
bring a thousand queries."""


def encode_filters(nodes: tuple[str, ...], tags: dict[str, str]) -> tuple[bytes, ...] | None:
    """The filters of a query: one of these nodes, and each tag matches its expression. None for none."""
    found = [bytes((FILTER_NODE,)) + encode(list(nodes))] if nodes else []
    for tag, expression in tags.items():
        found.append(bytes((FILTER_TAG,)) + encode({"Expr": expression, "Tag": tag}))
    return tuple(found) or None


class QueryFilters:
    """The answers of this node to filters. An expression that is not matched for EXPRESSIONS_MAX counts in `counters`."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._expressions = TokenBucket(EXPRESSIONS_MAX, 0.0)

    def match(self, filters: tuple[bytes, ...] | None, own_name: str, tags: dict[str, str], now: float) -> bool:
        """Return whether all filters match. A filter that does not decode does not match, and neither do more than
        FILTERS_BYTES_MAX."""
        if sum(map(len, filters or ())) > FILTERS_BYTES_MAX:
            return False
        for encoded in filters or ():
            try:
                if not self._matches(encoded, own_name, tags, now):
                    return False
            except WireError:
                return False
        return True

    def _matches(self, encoded: bytes, own_name: str, tags: dict[str, str], now: float) -> bool:
        if not encoded:
            return False
        value = decode(encoded[1:])
        if encoded[0] == FILTER_NODE:
            return isinstance(value, list) and own_name.encode() in value
        if encoded[0] == FILTER_TAG:
            fields = as_fields(value)
            tag = tags.get(text_field(fields, b"Tag"), "")
            text = text_field(fields, b"Expr")
            if not self._expressions.try_take(now):
                self._counters.drop(DropReason.EXPRESSIONS_FULL)
                return False
            try:
                return Expression(text).matches(tag)
            except ValueError:
                return False
        return False
