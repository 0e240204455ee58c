"""The ids that a log had, and up to which offset its records are still the ones of that time.

A log whose end may have been lost would give offsets out a second time. So it gets another id, which names the one before and
the first offset that may differ, as the leader epochs of Kafka do (KIP-101). Whoever read up to that offset at most goes on
under the id of now; whoever read further goes back to it. Offsets that are never given out again need no other id: what is
missing there is a gap.

Ids have numbers, for readers that know them as Kafka's leader epochs: that of a later id is higher. It rises with the clock, so
that it does so, too, where the log knows nothing of the ids before: in an emptied folder, or one that an older copy was put
back to.
"""

from __future__ import annotations

from typing import Final, NamedTuple

PARENTS_MAX: Final = 100  # ids before that a log remembers; the oldest are forgotten, and their readers begin again
OFFSET_END: Final = 2**63 - 1  # behind every offset
CLOCK_BEGINS_NS: Final = 1_704_067_200 * 10**9  # Unix time: 2024
CLOCK_NUMBERS_MAX: Final = 2**31 - 2**20  # that a clock can make, however wrong it is


class Parent(NamedTuple):
    """A former id of a log. Its records before `end_offset` are those of the log now; that one and later ones may differ.
    `number` is 0 where it is not known."""

    log_id: str
    end_offset: int
    number: int = 0


class Lineage(NamedTuple):
    """The id of a log, and its former ones, oldest first: their `end_offset` and `number` never fall."""

    log_id: str
    parents: tuple[Parent, ...] = ()
    number: int = 0

    def shared_end(self, log_id: str) -> int | None:
        """The first offset that may differ from that of the log with this id; OFFSET_END for the id of now, None for an id
        that the log never had, or has forgotten."""
        if log_id == self.log_id:
            return OFFSET_END
        return next((parent.end_offset for parent in self.parents if parent.log_id == log_id), None)

    def child(self, log_id: str, end_offset: int, number: int = 0) -> Lineage:
        """The log under a new id, when records from `end_offset` on may have been lost. `number` is that of the clock."""
        known = (parent._replace(end_offset=min(parent.end_offset, end_offset)) for parent in self.parents)
        parents = (*known, Parent(self.log_id, end_offset, self.number))
        return Lineage(log_id, parents[-PARENTS_MAX:], max(self.number + 1, number))


def clock_number(wall_ns: int) -> int:
    """The number of an id that a log gets at this Unix time, at least: seconds since CLOCK_BEGINS_NS."""
    return min(max((wall_ns - CLOCK_BEGINS_NS) // 10**9, 0), CLOCK_NUMBERS_MAX)
