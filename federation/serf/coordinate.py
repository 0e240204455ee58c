"""Network coordinates: the distance of two estimates the round trip between their nodes (wire-gossip 9).

Vivaldi with height, after Dabek and others (SIGCOMM 2004), with the adjustment of Ledlie and others (NSDI 2007). All numbers
are seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Final

from federation.gossip.errors import WireError
from federation.gossip.msgpack_fields import Fields, as_fields, decode, encode, list_field

DIMENSION: Final = 8
ERROR_MAX: Final = 1.5
HEIGHT_MIN: Final = 1e-5
COORDINATE_MAX: Final = 1e3
"""Largest number in a coordinate of another node. Coordinates of nodes on earth stay far below; larger ones are forged."""
_NEAR: Final = 1e-6  # two places nearer than this have no direction
_ERROR_WEIGHT: Final = 0.25  # VivaldiCE
_FORCE_WEIGHT: Final = 0.25  # VivaldiCC
_GRAVITY_RHO: Final = 150.0


@dataclass(frozen=True, slots=True)
class Coordinate:
    """A place. `error`: how little it is trusted, 0 to ERROR_MAX. `height`: of the access link, beside the plane of `vec`.
    `adjustment` corrects the distance."""

    vec: tuple[float, ...] = (0.0,) * DIMENSION
    error: float = ERROR_MAX
    adjustment: float = 0.0
    height: float = HEIGHT_MIN

    def is_valid(self) -> bool:
        """Return whether all numbers are finite."""
        return all(map(math.isfinite, (*self.vec, self.error, self.adjustment, self.height)))

    def raw_distance(self, other: Coordinate) -> float:
        """Without adjustments."""
        return math.dist(self.vec, other.vec) + self.height + other.height

    def distance(self, other: Coordinate) -> float:
        """The estimated round trip."""
        raw = self.raw_distance(other)
        adjusted = raw + self.adjustment + other.adjustment
        return adjusted if adjusted > 0.0 else raw

    def pushed(self, force: float, other: Coordinate, rng: Random) -> Coordinate:
        """This coordinate, moved by `force` away from another one."""
        difference = [a - b for a, b in zip(self.vec, other.vec, strict=True)]
        length = math.hypot(*difference)
        if length > _NEAR:
            height = max(HEIGHT_MIN, (self.height + other.height) * force / length + self.height)
        else:  # in a random direction
            difference = [rng.random() - 0.5 for _ in difference]
            length = math.hypot(*difference) or 1.0
            height = self.height
        vec = tuple(a + part / length * force for a, part in zip(self.vec, difference, strict=True))
        return Coordinate(vec, self.error, self.adjustment, height)

    def moved(self, other: Coordinate, round_trip: float, rng: Random) -> Coordinate:
        """This coordinate after a measured round trip to a node with another one."""
        distance = self.distance(other)
        round_trip = max(round_trip, _NEAR)
        wrong = abs(distance - round_trip) / round_trip
        weight = self.error / max(self.error + other.error, _NEAR)
        share = _ERROR_WEIGHT * weight
        error = min(ERROR_MAX, share * wrong + self.error * (1.0 - share))
        trusted = Coordinate(self.vec, error, self.adjustment, self.height)
        return trusted.pushed(_FORCE_WEIGHT * weight * (round_trip - distance), other, rng)

    def drawn_to_origin(self, rng: Random) -> Coordinate:
        """All coordinates together would drift: a weak force draws each to the origin."""
        ratio = ORIGIN.distance(self) / _GRAVITY_RHO
        return self.pushed(-ratio * ratio, ORIGIN, rng)

    def encode(self) -> bytes:
        return encode(self.fields())

    def fields(self) -> dict[str, object]:
        """As Serf writes them, also in its RPC."""
        return {"Adjustment": self.adjustment, "Error": self.error, "Height": self.height, "Vec": list(self.vec)}

    @staticmethod
    def decode(data: bytes) -> Coordinate:
        """WireError for another dimension, and for numbers that are not finite or too large."""
        fields = as_fields(decode(data))
        vec = tuple(_number(item, b"Vec") for item in list_field(fields, b"Vec"))
        if len(vec) != DIMENSION:
            raise WireError(f"a coordinate of dimension {len(vec)} instead of {DIMENSION}")
        found = Coordinate(vec, _field(fields, b"Error"), _field(fields, b"Adjustment"), _field(fields, b"Height"))
        if found.error < 0 or found.height < 0:
            raise WireError("a coordinate with a negative error or height")
        return found


ORIGIN: Final = Coordinate()


def _field(fields: Fields, key: bytes) -> float:
    value = fields.get(key)
    return 0.0 if value is None else _number(value, key)


def _number(value: object, key: bytes) -> float:
    if not isinstance(value, (int, float)) or not abs(value) <= COORDINATE_MAX:  # a NaN is not, either
        raise WireError(f"{key!r} is no number of at most {COORDINATE_MAX:g}")
    return float(value)
