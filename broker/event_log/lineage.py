"""The ids that a log had, and up to which offset its records are still the ones of that time.

A log whose end may have been lost would give offsets out a second time. So it gets another id, which names the one before and
the first offset that may differ, as the leader epochs of Kafka do (KIP-101). Whoever read up to that offset at most goes on
under the id of now; whoever read further goes back to it. Offsets that are never given out again need no other id: what is
missing there is a gap.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

PARENTS_MAX: Final = 100  # ids before that a log remembers; the oldest are forgotten, and their readers begin again
OFFSET_END: Final = 2**63 - 1  # behind every offset


class Parent(NamedTuple):
    """A former id of a log. Its records before `end_offset` are those of the log now; that one and later ones may differ."""

    log_id: str
    end_offset: int


class Lineage(NamedTuple):
    """The id of a log, and its former ones, oldest first: their `end_offset` never falls."""

    log_id: str
    parents: tuple[Parent, ...] = ()

    def shared_end(self, log_id: str) -> int | None:
        """The first offset that may differ from that of the log with this id; OFFSET_END for the id of now, None for an id
        that the log never had, or has forgotten."""
        if log_id == self.log_id:
            return OFFSET_END
        return next((parent.end_offset for parent in self.parents if parent.log_id == log_id), None)

    def child(self, log_id: str, end_offset: int) -> Lineage:
        """The log under a new id, when records from `end_offset` on may have been lost."""
        known = (Parent(parent.log_id, min(parent.end_offset, end_offset)) for parent in self.parents)
        return Lineage(log_id, (*known, Parent(self.log_id, end_offset))[-PARENTS_MAX:])


def lineage_of(log_id: str, parents: Iterable[tuple[str, int]]) -> Lineage:
    return Lineage(log_id, tuple(Parent(str(parent), int(end_offset)) for parent, end_offset in parents))
