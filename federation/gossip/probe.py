"""One probe of one member, and indirect pings for other members (wire-gossip 3.1 and 6.2)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from federation.gossip.addresses import Address
from federation.gossip.members import NodeFacts

RELAYS_MAX: Final = 1024
"""Indirect pings under way for other members; further requests are dropped and counted."""


@dataclass(slots=True, eq=False)
class Probe:
    """A ping, after `ack_deadline` indirect pings and a ping over a stream; the probe has failed at `deadline`.

    `incarnation`: the member's when the probe starts. A failed probe does not count against a later incarnation.
    """

    sequence: int
    facts: NodeFacts
    incarnation: int
    sent_at: float
    ack_deadline: float
    deadline: float
    indirect: bool = False
    nacks_expected: int = 0
    nacks: int = 0
    stream_acked: bool = False

    def next_timeout(self) -> float:
        return self.deadline if self.indirect else min(self.ack_deadline, self.deadline)

    def awareness_penalty(self) -> int:
        """Return what a failed probe adds to this node's awareness score: one for each relay that sent not even a
        nack."""
        if self.nacks_expected > 0:
            return max(0, self.nacks_expected - self.nacks)
        return 1


@dataclass(slots=True)
class Relay:
    """An indirect ping for `requester`. `sequence` is the requester's number."""

    requester: Address
    sequence: int
    nack: bool
    deadline: float


class Relays:
    """Relays under way by this node's own sequence number. All wait equally long, so they are in order of deadline."""

    def __init__(self) -> None:
        # The first entry of an OrderedDict is found in constant time; a dict walks over its deleted entries.
        self._relays: OrderedDict[int, Relay] = OrderedDict()

    def is_full(self) -> bool:
        return len(self._relays) >= RELAYS_MAX

    def add(self, sequence: int, relay: Relay) -> None:
        self._relays[sequence] = relay

    def take(self, sequence: int) -> Relay | None:
        return self._relays.pop(sequence, None)

    def next_timeout(self) -> float | None:
        for relay in self._relays.values():
            return relay.deadline
        return None

    def take_expired(self, now: float) -> list[Relay]:
        expired: list[Relay] = []
        while self._relays and next(iter(self._relays.values())).deadline <= now:
            expired.append(self._relays.popitem(last=False)[1])
        return expired
