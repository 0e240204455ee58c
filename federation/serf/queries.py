"""Filters of queries (wire-gossip 8.8)."""

from __future__ import annotations

import re
from typing import Final

from federation.gossip.errors import WireError
from federation.gossip.msgpack_fields import as_fields, decode, encode, text_field
from federation.serf.messages import FILTER_NODE, FILTER_TAG

# Expressions come from other nodes and run on the loop's thread. With at most two repetitions, or one and a group that is not
# repeated, the time grows with the square of a tag's length, not exponentially. Other expressions match nothing.
EXPRESSION_LENGTH_MAX: Final = 128
_REPETITIONS_MAX: Final = 2
_REPETITIONS: Final = "*+?{"
_GROUP_FAULT: Final = re.compile(r"\(\?|\)[*+?{]|\\\d")  # of another kind, repeated, or referred to


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
        return expression_matches(text_field(fields, b"Expr"), tags.get(text_field(fields, b"Tag"), ""))
    return False


def is_expression(text: str) -> bool:
    """Return whether this is a regular expression, and one that cannot run long."""
    groups = text.count("(")
    if len(text) > EXPRESSION_LENGTH_MAX or groups > 1 or (groups and _GROUP_FAULT.search(text)):
        return False
    if sum(text.count(sign) for sign in _REPETITIONS) > _REPETITIONS_MAX - groups:
        return False
    try:
        re.compile(text)
    except (re.error, OverflowError):
        return False
    return True


def expression_matches(expression: str, value: str, is_whole: bool = False) -> bool:
    """Return whether the expression matches somewhere in the value; `is_whole`: all of it. Other expressions match nothing."""
    if not is_expression(expression):
        return False
    find = re.fullmatch if is_whole else re.search
    return find(expression, value) is not None
