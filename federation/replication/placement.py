"""Which nodes keep copies of a store: the first in rendezvous order of (store id, store id of the member).

A keeper stays while it lives, so that a member that comes or goes moves no copy but those that it keeps.
"""

# compiled with mypyc
from __future__ import annotations

import hashlib
from typing import Final

WEIGHT_BYTES: Final = 8


def weight(store_id: str, member_store_id: str) -> int:
    """Return the weight of a member for a store: that with the greatest one comes first."""
    text = f"{store_id} {member_store_id}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=WEIGHT_BYTES).digest(), "big")


def choose_keepers(store_id: str, present: list[str], living: dict[str, str], wanted: int) -> list[str]:
    """Return the names of the keepers of a store, at most `wanted`: the present ones, then others in order. living: the store
    ids of the members that can keep a copy, by name."""
    chosen = present[:wanted]
    others = [(weight(store_id, living[name]), name) for name in living if name not in chosen]
    others.sort(reverse=True)
    chosen += [name for _, name in others[: wanted - len(chosen)]]
    return chosen
