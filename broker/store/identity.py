"""The name of a store, which carries what was promised with it.

A node that comes back under its name with an empty disk knows nothing of what it promised before. Other nodes therefore
remember what they did for a store, and not for a name. The number of its start makes the serial numbers of one process greater
than those of all before it. Some of these may not be in the store, and the store may be an older one that was put back: so the
number rises with the clock.
"""

# compiled with mypyc
from __future__ import annotations

import random
from typing import Final, cast

from broker.store.journal import Content, Journal, checked
from broker.store.kinds import STORE

STORE_ID_BITS: Final = 128
CLOCK_BEGINS: Final = 1_704_067_200.0  # seconds since 1970: 2024
CLOCK_SECONDS: Final = 240.0  # of a start: serial numbers have room for 4,194,304, which is 31 years
CLOCK_STARTS_MAX: Final = 4_000_000  # that a clock can make, however wrong it is
UNSTORED_MAX: Final = 16  # ranges; policy: the two oldest become one, and QoS 2 between them may come twice from a copy

Range = tuple[int, int]
"""(the first number, one above the last)"""


class StoreIdentity(Content):
    """store_id    random, hexadecimal; of a node without a store that of the process
    starts      the number of this start: 1, and then greater with each (next_start)
    is_durable  there is a store
    is_new      this start has made it
    formerly    ids of damaged stores from which it was recovered
    unstored    numbers that the last starts have left out: no batch before these has stored records with them, and copies
                of the store may have some
    newest      the highest number of a record in all batches before this start
    node        the name of the node, where this is the store of one of its workers
    journal     that knows it since; None without a store, and before all of it was read
    """

    def __init__(self, store_id: str, starts: int, is_durable: bool) -> None:
        self.store_id = store_id
        self.starts = starts
        self.is_durable = is_durable
        self.is_new = False
        self.formerly: tuple[str, ...] = ()
        self.unstored: tuple[Range, ...] = ()
        self.newest = 0
        self.node = ""
        self.journal: Journal | None = None

    def is_or_was(self, store_id: object) -> bool:
        return store_id == self.store_id or store_id in self.formerly

    def leaves_out(self, first: int, end: int) -> None:
        """This start gives no record a number from `first` to below `end`."""
        ranges = list(self.unstored)
        if ranges and ranges[-1][1] == first:  # the start before this one has stored nothing
            first = ranges.pop()[0]
        ranges.append((first, end))
        if len(ranges) > UNSTORED_MAX:
            ranges[:2] = [(ranges[0][0], ranges[1][1])]
        self.unstored = tuple(ranges)

    def is_unstored(self, number: int) -> bool:
        """Return whether a record of a copy with this number may be one that this store never had."""
        return is_within(self.unstored, number)

    def values(self, wall_offset: float) -> tuple[object, ...]:
        """(STORE, store id, starts, formerly, unstored, newest), and `node` where there is one; a store of an earlier build has
        the first three or four."""
        newest = self.newest if self.journal is None else self.journal.newest
        record = STORE, self.store_id, self.starts, self.formerly, self.unstored, newest
        return (*record, self.node) if self.node else record


def next_start(starts: int, wall: float) -> int:
    """Return the number of a start after the one with the number `starts`. wall: seconds since 1970.

    It is also greater than those of starts that this store does not know of, where it is a copy that was put back: but for
    those of the last minutes, and of a node that has started more often than every four minutes.
    """
    return max(starts + 1, min(int((wall - CLOCK_BEGINS) // CLOCK_SECONDS), CLOCK_STARTS_MAX))


def is_within(ranges: tuple[Range, ...], number: int) -> bool:
    for first, end in ranges:  # noqa: SIM110 (compiled without a generator)
        if first <= number < end:
            return True
    return False


def ranges_of(told: object) -> tuple[Range, ...]:
    """Return what another node tells as `unstored`. Raises ValueError and TypeError for what no node says."""
    ranges: list[Range] = []
    for one in checked(tuple, told):
        first, end = one
        ranges.append((checked(int, first), checked(int, end)))
    if len(ranges) > UNSTORED_MAX:
        raise ValueError(f"{len(ranges)} ranges, may be {UNSTORED_MAX}")
    return tuple(ranges)


def new_identity(rng: random.Random, is_durable: bool) -> StoreIdentity:
    """The identity of a store, or of a process without one, at its first start."""
    return StoreIdentity(new_store_id(rng), 1, is_durable)


def new_store_id(rng: random.Random) -> str:
    return f"{rng.getrandbits(STORE_ID_BITS):032x}"


def identity_of(record: tuple[object, ...]) -> StoreIdentity:
    """The identity as its record has it (StoreIdentity.values). Raises TypeError and ValueError for one that no broker has
    written."""
    _, store_id, starts, *more = record
    found = StoreIdentity(cast(str, store_id), cast(int, starts), True)
    if more:
        found.formerly = cast(tuple[str, ...], more[0])
    if len(more) > 1:
        if len(more) == 3:
            more.append("")
        _, unstored, newest, node = more
        found.unstored = tuple([cast(Range, one) for one in cast(tuple[object, ...], unstored)])
        found.newest = cast(int, newest)
        found.node = checked(str, node)
    return found
