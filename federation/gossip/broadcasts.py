"""The broadcast queue: each message is sent a limited number of times, the least sent first (wire-gossip 6.5)."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Final

QUEUE_LENGTH_MAX: Final = 4096
"""Messages without a name in one queue. Further ones push out the message that would be sent last; `dropped` counts."""


def retransmit_limit(mult: int, node_count: int) -> int:
    """Return how often each broadcast is sent in a cluster of `node_count` nodes."""
    return mult * math.ceil(math.log10(node_count + 1))


@dataclass(slots=True, eq=False)
class Broadcast:
    """One message in a queue. `finished`: it was sent to its limit, replaced or dropped."""

    message: bytes
    name: str
    number: int
    transmits: int = 0
    finished: bool = False


_NEWEST: Final = 1 << 62
_NOTHING: Final = Broadcast(b"", "", 0)


class BroadcastQueue:
    """Tiers by number of transmissions. Within a tier the longest message is sent first, then the newest."""

    def __init__(self) -> None:
        # Each tier is sorted by (-length, -number). Numbers are unique, so broadcasts are never compared.
        self._tiers: list[list[tuple[int, int, Broadcast]]] = [[]]
        self._by_name: dict[str, Broadcast] = {}
        self._last_number = 0
        self._length = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._length

    def queue(self, message: bytes, name: str = "") -> Broadcast:
        """Queue a message. One with a name replaces an older one of the same name."""
        if name:
            older = self._by_name.get(name)
            if older is not None:
                self._remove(older)
        elif self._length >= QUEUE_LENGTH_MAX:
            self._prune()
        self._last_number += 1
        broadcast = Broadcast(message, name, self._last_number)
        if name:
            self._by_name[name] = broadcast
        insort(self._tiers[0], (-len(message), -broadcast.number, broadcast))
        self._length += 1
        return broadcast

    def take(self, overhead: int, budget: int, count_max: int, transmit_limit: int) -> list[bytes]:
        """Messages for one packet: each costs its length and `overhead` bytes, all together at most `budget` bytes."""
        taken: list[bytes] = []
        if self._length == 0:
            return taken
        again: list[Broadcast] = []
        for tier in self._tiers:
            if not tier:
                continue
            index = 0
            while len(taken) < count_max:
                # all messages before this index are too long
                index = bisect_left(tier, (overhead - budget, -_NEWEST, _NOTHING), index)
                if index >= len(tier):
                    break
                broadcast = tier.pop(index)[2]
                budget -= overhead + len(broadcast.message)
                taken.append(broadcast.message)
                again.append(broadcast)
        for broadcast in again:
            broadcast.transmits += 1
            if broadcast.transmits >= transmit_limit:
                self._length -= 1
                self._finish(broadcast)
            else:
                while len(self._tiers) <= broadcast.transmits:
                    self._tiers.append([])
                insort(self._tiers[broadcast.transmits], (-len(broadcast.message), -broadcast.number, broadcast))
        return taken

    def _remove(self, broadcast: Broadcast) -> None:
        tier = self._tiers[broadcast.transmits]
        index = bisect_left(tier, (-len(broadcast.message), -broadcast.number, broadcast))
        assert tier[index][2] is broadcast
        del tier[index]
        self._length -= 1
        self._finish(broadcast)

    def _finish(self, broadcast: Broadcast) -> None:
        broadcast.finished = True
        if broadcast.name and self._by_name.get(broadcast.name) is broadcast:
            del self._by_name[broadcast.name]

    def _prune(self) -> None:
        for tier in reversed(self._tiers):
            if tier:
                self._remove(tier[-1][2])
                self.dropped += 1
                return
