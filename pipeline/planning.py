"""Plans a batch: how far it goes, and the ranges that its tasks read. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, floor

from pipeline.offsets import LogOffset, NodeState, Offsets


@dataclass(frozen=True, slots=True)
class Range:
    """start <= offset < end of one log."""

    node: str
    address: str
    log_id: str
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def share(limit: float, unread: Mapping[str, int], weights: Mapping[str, float] | None = None) -> dict[str, int]:
    """Records for each node, in proportion to what it has, at least one each. `weights`: of a record, in units of `limit`."""
    total = sum(count * (weights[node] if weights else 1) for node, count in unread.items())
    if total <= limit:
        return dict(unread)
    part = limit / total
    return {node: (floor if count * part >= 1 else ceil)(count * part) for node, count in unread.items()}


def plan_end(
    start: Offsets,
    begin: Offsets,
    nodes: Mapping[str, NodeState],
    max_offsets: int = 0,
    max_bytes: int = 0,
    caps: Mapping[str, int] | None = None,
) -> Offsets:
    """The end of the batch that follows `start`.

    begin   of `offsets.go_on`: where reading goes on at the nodes that answer
    limits  0 for none
    caps    node -> offset that the batch does not pass; a node without one keeps its place

    A node that enters (new, or with another log) gets its first offset and no records: they come with the next batch,
    whose start then says where they began.
    """
    end = dict(start)
    unread: dict[str, int] = {}
    for node, position in begin.items():
        if caps is not None and node not in caps:
            continue
        known = start.get(node)
        end[node] = position
        if known is not None and nodes[node].carry(known) is not None:
            last = nodes[node].next_offset
            count = (last if caps is None else min(caps[node], last)) - position.offset
            if count > 0:
                unread[node] = count
    if max_offsets:
        unread = share(max_offsets, unread)
    if max_bytes:
        unread = share(max_bytes, unread, {node: max(nodes[node].record_bytes, 1.0) for node in unread})
    for node, count in unread.items():
        end[node] = LogOffset(begin[node].log, begin[node].offset + count)
    return end


def ranges(begin: Offsets, end: Offsets, nodes: Mapping[str, NodeState]) -> list[Range]:
    """Return what is between `begin` and `end`, of nodes that answer and are in both with the same log, or with a former id of
    it."""
    found = []
    for node, first in sorted(begin.items()):
        last = nodes[node].carry(end[node]) if node in end else None
        if last is not None and first.log == last.log and first.offset < last.offset:
            found.append(Range(node, nodes[node].address, last.log, first.offset, last.offset))
    return found


def split(whole: Sequence[Range], partitions: int, max_records: int = 0) -> list[Range]:
    """At least `partitions` ranges when there are so many records, of `max_records` at most (0 for no limit): the large
    ones are cut into equal parts."""
    total = sum(len(each) for each in whole)
    found: list[Range] = []
    for each in whole:
        parts = ceil(partitions * len(each) / total) if partitions > len(whole) and total else 1
        if max_records:
            parts = max(parts, ceil(len(each) / max_records))
        found += _cut(each, min(len(each), max(1, parts)) or 1)
    return found


def waits(begin: Offsets, start: Offsets, nodes: Mapping[str, NodeState], minimum: int) -> bool:
    """Return whether a batch waits for more records: there are fewer than `minimum`, and no node has come, or lost data,
    since `start`."""
    if any(start.get(node) != position for node, position in begin.items()):
        return False
    return sum(nodes[node].next_offset - position.offset for node, position in begin.items()) < minimum


def _cut(whole: Range, parts: int) -> Iterable[Range]:
    bounds = [whole.start + len(whole) * part // parts for part in range(parts + 1)]
    return (replace(whole, start=start, end=end) for start, end in pairwise(bounds))
