"""The choice of nodes that keep copies of a store: those of other zones first, then in rendezvous order of (store id, store id
of the member).

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


class Candidate:
    """A member that can keep a copy. is_new: it has not lived for stabilization_time yet. node: that it is a worker of, or its
    own name."""

    def __init__(self, store_id: str, zone: str = "", is_new: bool = False, node: str = "") -> None:
        self.store_id = store_id
        self.zone = zone
        self.is_new = is_new
        self.node = node


def choose_keepers(
    store_id: str, zone: str, present: list[str], living: dict[str, Candidate], wanted: int
) -> list[str]:
    """Return the names of the keepers of a store, at most `wanted`: the present ones, then the best of the others, by name.
    zone: that of the store's node, "" for none.

    A worker of a node that has a copy already comes last: one machine has both. A member of a zone that has no copy yet comes
    first, then one that is not new. A new one of a zone that has a copy waits: a member of another zone may be on its way, and
    who is chosen stays.
    """
    chosen = present[:wanted]
    zones = [zone] + [living[name].zone for name in chosen if name in living]
    while len(chosen) < wanted:
        best = ""
        best_rank = (False, -1, 0, "")
        nodes = [living[name].node for name in chosen if name in living]
        for name, candidate in living.items():
            is_elsewhere = zone != "" and candidate.zone != "" and candidate.zone not in zones
            if name in chosen or (candidate.is_new and zone and not is_elsewhere):
                continue
            is_alone = not candidate.node or candidate.node not in nodes
            rank = (is_alone, 2 * is_elsewhere + (not candidate.is_new), weight(store_id, candidate.store_id), name)
            if rank > best_rank:
                best, best_rank = name, rank
        if not best:
            break
        chosen.append(best)
        zones.append(living[best].zone)
    return chosen
