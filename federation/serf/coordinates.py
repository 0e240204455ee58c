"""The network coordinate of this node, moved by each probe, and those of the members that it probed (wire-gossip 9)."""

from __future__ import annotations

from collections.abc import Container
from random import Random
from typing import Final

from federation.gossip.counters import Counters, DropReason
from federation.gossip.errors import WireError
from federation.serf.coordinate import ORIGIN, Coordinate

PAYLOAD_VERSION: Final = 1
ROUND_TRIP_MAX: Final = 10.0
"""Seconds; longer measurements are not used."""
LATENCY_SAMPLES: Final = 3
"""The median of so many round trips to a member counts."""
ADJUSTMENT_SAMPLES: Final = 20


class Coordinates:
    """`own` is this node's. `known` has that of each member as it was at its last ack, `samples` its last round trips."""

    def __init__(self, name: str, rng: Random, counters: Counters) -> None:
        self._name = name
        self._rng = rng
        self._counters = counters
        self._samples: dict[str, list[float]] = {}
        self._adjustments = [0.0] * ADJUSTMENT_SAMPLES
        self._next_adjustment = 0
        self._payload = b""
        self.own = ORIGIN
        self.known: dict[str, Coordinate] = {}

    def ack_payload(self) -> bytes:
        """Return the payload of this node's acks."""
        if not self._payload:
            self._payload = bytes((PAYLOAD_VERSION,)) + self.own.encode()
        return self._payload

    def ping_completed(self, name: str, round_trip: float, payload: bytes | None) -> None:
        """A member acknowledged a ping after `round_trip` seconds. Payloads that are invalid are counted."""
        if not payload:
            return  # a member without coordinates
        if payload[0] != PAYLOAD_VERSION:
            self._counters.drop(DropReason.BAD_COORDINATE)
            return
        try:
            other = Coordinate.decode(payload[1:])
        except WireError:
            self._counters.drop(DropReason.BAD_COORDINATE)
            return
        self.known[name] = other
        if 0.0 <= round_trip <= ROUND_TRIP_MAX:
            self._move(other, self._median(name, round_trip))

    def _median(self, name: str, round_trip: float) -> float:
        samples = self._samples.setdefault(name, [])
        samples.append(round_trip)
        del samples[:-LATENCY_SAMPLES]
        return sorted(samples)[len(samples) // 2]

    def _move(self, other: Coordinate, round_trip: float) -> None:
        self._payload = b""
        moved = self.own.moved(other, round_trip, self._rng)
        self._adjustments[self._next_adjustment] = round_trip - moved.raw_distance(other)
        self._next_adjustment = (self._next_adjustment + 1) % ADJUSTMENT_SAMPLES
        adjustment = sum(self._adjustments) / (2 * ADJUSTMENT_SAMPLES)
        moved = Coordinate(moved.vec, moved.error, adjustment, moved.height).drawn_to_origin(self._rng)
        if moved.is_valid():
            self.own = moved
        else:
            self._counters.coordinate_resets += 1
            self.own = ORIGIN
            self._adjustments = [0.0] * ADJUSTMENT_SAMPLES

    def get(self, name: str) -> Coordinate | None:
        return self.own if name == self._name else self.known.get(name)

    def round_trip(self, name: str) -> float | None:
        """Estimated seconds from this node to a member and back; None before its first ack with a coordinate."""
        other = self.known.get(name)
        return None if other is None else self.own.distance(other)

    def keep(self, names: Container[str]) -> None:
        """Forget all other members."""
        for name in [name for name in self.known if name not in names]:
            del self.known[name]
            self._samples.pop(name, None)
