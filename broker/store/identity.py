"""The name of a store, which carries what was promised with it.

A node that comes back under its name with an empty disk knows nothing of what it promised before. Other nodes therefore
remember what they did for a store, and not for a name. The number of starts makes the serial numbers of one process greater
than those of all before it, of which some may not be in the store.
"""

# compiled with mypyc
from __future__ import annotations

import random
from typing import Final

from broker.store.journal import Content
from broker.store.kinds import STORE

STORE_ID_BITS: Final = 128


class StoreIdentity(Content):
    """store_id    random, hexadecimal; of a node without a store that of the process
    starts      number of starts with it, this one too
    is_durable  there is a store
    is_new      this start has made it
    formerly    ids of damaged stores from which it was recovered
    """

    def __init__(self, store_id: str, starts: int, is_durable: bool) -> None:
        self.store_id = store_id
        self.starts = starts
        self.is_durable = is_durable
        self.is_new = False
        self.formerly: tuple[str, ...] = ()

    def is_or_was(self, store_id: object) -> bool:
        return store_id == self.store_id or store_id in self.formerly

    def values(self, wall_offset: float) -> tuple[object, ...]:
        """(STORE, store id, starts); behind them `formerly`, where it was recovered."""
        record = STORE, self.store_id, self.starts
        return (*record, self.formerly) if self.formerly else record


def new_identity(rng: random.Random, is_durable: bool) -> StoreIdentity:
    """The identity of a store, or of a process without one, at its first start."""
    return StoreIdentity(f"{rng.getrandbits(STORE_ID_BITS):032x}", 1, is_durable)
