"""One probe of one member, and pings done on behalf of others (sections 3.1 and 6.2)."""

from __future__ import annotations

from typing import Final

from federation.gossip.addresses import Address
from federation.gossip.members import NodeFacts

RELAYS_MAX: Final = 1024
"""Indirect pings under way for other members; further requests are dropped and counted."""


class Probe:
    """`incarnation`: the member's at the start. Its silence says nothing about a later one, which was told meanwhile.

    Ping, then after `ack_deadline` indirect pings and a ping over a stream; failed at `deadline`."""

    __slots__ = (
        "ack_deadline",
        "deadline",
        "facts",
        "incarnation",
        "indirect",
        "nacks",
        "nacks_expected",
        "sequence",
        "stream_acked",
    )

    def __init__(self, sequence: int, facts: NodeFacts, incarnation: int, ack_deadline: float, deadline: float) -> None:
        self.sequence = sequence
        self.facts = facts
        self.incarnation = incarnation
        self.ack_deadline = ack_deadline
        self.deadline = deadline
        self.indirect = False
        self.nacks_expected = 0
        self.nacks = 0
        self.stream_acked = False

    def next_timeout(self) -> float:
        return self.deadline if self.indirect else min(self.ack_deadline, self.deadline)

    def awareness_penalty(self) -> int:
        """After a failure: relays that answered nothing at all speak against ourselves."""
        if self.nacks_expected > 0:
            return max(0, self.nacks_expected - self.nacks)
        return 1


class Relays:
    """Those that are under way, by our own number, in the order of their deadlines: all wait equally long."""

    __slots__ = ("_relays",)

    def __init__(self) -> None:
        self._relays: dict[int, Relay] = {}

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
        while self._relays:
            sequence, relay = next(iter(self._relays.items()))
            if relay.deadline > now:
                break
            del self._relays[sequence]
            expired.append(relay)
        return expired


class Relay:
    """We ping somebody for `requester`, which numbered its request `sequence`."""

    __slots__ = ("deadline", "nack", "requester", "sequence")

    def __init__(self, requester: Address, sequence: int, nack: bool, deadline: float) -> None:
        self.requester = requester
        self.sequence = sequence
        self.nack = nack
        self.deadline = deadline
