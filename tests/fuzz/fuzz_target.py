"""What is fuzzed: where inputs come from, and what must hold when one is read."""

from __future__ import annotations

import json
import zlib
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

from mutation import mutated

TESTS: Final = Path(__file__).resolve().parents[1]
CORPUS: Final = TESTS / "fuzz" / "corpus"


@cache
def test_data(name: str) -> list[dict[str, Any]]:
    """A table of tests/data."""
    found: list[dict[str, Any]] = json.loads((TESTS / "data" / name).read_text())
    return found


class Target:
    """seeds   right inputs
    pieces  parts of them, which are put into others
    """

    def __init__(self, seeds: list[bytes], pieces: tuple[bytes, ...] = ()) -> None:
        self.seeds = seeds
        self.pieces = pieces

    def make(self, rng: Random) -> bytes:
        """A new input."""
        return mutated(rng, rng.choice(self.seeds), self.seeds, self.pieces)

    def run(self, data: bytes) -> None:
        """Read one input; raises when something does not hold. The same input does the same each time."""
        raise AssertionError("a subclass implements this")

    def close(self) -> None:
        """No more inputs."""


def rng_of(data: bytes) -> Random:
    """Chance that the input decides."""
    return Random(zlib.crc32(data))


def joined(parts: list[bytes]) -> bytes:
    """length u16 | part for each: an input of several parts."""
    return b"".join(len(part).to_bytes(2, "big") + part for part in parts)


def separated(data: bytes) -> list[bytes]:
    """The parts of an input; the last one may be cut off."""
    parts: list[bytes] = []
    at = 0
    while at + 2 <= len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        parts.append(data[at + 2 : end])
        at = end
    return parts
