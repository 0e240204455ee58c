"""The three queues of Serf's broadcasts: intents leave first, then queries, then user events (wire-gossip 6.5)."""

from __future__ import annotations

from typing import Final

from federation.gossip.broadcasts import Broadcast, BroadcastQueue
from federation.gossip.counters import Counters, DropReason

_USER_MESSAGE: Final = b"\x08"


class SerfBroadcasts:
    """Each queue has a bound of its own; messages that it pushes out are counted. `bytes_max`: longest message."""

    def __init__(self, bytes_max: int, counters: Counters) -> None:
        self._bytes_max = bytes_max
        self._counters = counters
        self.intents = BroadcastQueue()
        self.queries = BroadcastQueue()
        self.events = BroadcastQueue()

    def pass_on(self, queue: BroadcastQueue, message: bytes) -> None:
        """Broadcast a message of another node unchanged."""
        if len(message) > self._bytes_max:
            self._counters.drop(DropReason.MESSAGE_TOO_LARGE)  # it would never fit into a packet
        else:
            self.queue(queue, message)

    def queue(self, queue: BroadcastQueue, message: bytes) -> Broadcast:
        dropped = queue.dropped
        broadcast = queue.queue(message)
        if queue.dropped != dropped:
            self._counters.drop(DropReason.BROADCASTS_FULL, queue.dropped - dropped)
        return broadcast

    def is_empty(self) -> bool:
        return len(self.intents) == 0 and len(self.queries) == 0 and len(self.events) == 0

    def take(self, overhead: int, budget: int, count_max: int, transmit_limit: int) -> list[bytes]:
        """User messages for one packet, as GossipDelegate.take_broadcasts."""
        found: list[bytes] = []
        for queue in (self.intents, self.queries, self.events):
            if len(queue) == 0:
                continue
            for message in queue.take(overhead + 1, budget, count_max - len(found), transmit_limit):
                budget -= overhead + 1 + len(message)
                found.append(_USER_MESSAGE + message)
        return found
