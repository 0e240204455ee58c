"""Wrong inputs from right ones: bytes are changed, cut, repeated, moved, and mixed with those of other inputs."""

from __future__ import annotations

from random import Random
from typing import Final

SIZE_MAX: Final = 16_384  # of an input, so that one of them is handled within milliseconds
CHANGES_MAX: Final = 5
ODD_BYTES: Final = b"\x00\x01\x02\x7f\x80\x81\xc0\xfe\xff\n\r\" '#+/$%"
ODD_PIECES: Final = (
    b"\x00\x00",
    b"\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\x80\x80\x80\x80\x01",
    b"\xed\xa0\x80",  # a surrogate, which UTF-8 does not have
    b"\xf0\x9f\x98\x80",
    b"\xef\xbb\xbf",
    b"-1",
    b"99999999999999999999",
    b"1e999",
)


def mutated(rng: Random, data: bytes, others: list[bytes], pieces: tuple[bytes, ...] = ()) -> bytes:
    """One to CHANGES_MAX changes. `pieces` are parts of right inputs, which are put in as they are."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, CHANGES_MAX)):
        _change(rng, changed, others, pieces)
    return bytes(changed[:SIZE_MAX])


def _change(rng: Random, data: bytearray, others: list[bytes], pieces: tuple[bytes, ...]) -> None:
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice((1, 2, 4, 16, 256)))
    way = rng.randrange(9)
    if at == len(data) or way == 0:
        data[at:at] = rng.choice(pieces or ODD_PIECES)
    elif way == 1:
        data[at] ^= 1 << rng.randrange(8)
    elif way == 2:
        data[at] = rng.choice(ODD_BYTES)
    elif way == 3:
        data[at] = (data[at] + rng.choice((-1, 1))) % 256  # a length that is wrong by one
    elif way == 4:
        del data[at:end]
    elif way == 5:
        data[end:end] = data[at:end] * rng.choice((1, 1, 2, 64))
    elif way == 6:
        other = rng.choice(others)
        begin = rng.randrange(len(other) + 1)
        data[at : rng.choice((at, end, len(data)))] = other[begin : begin + rng.choice((1, 4, 32, 4096))]
    elif way == 7:
        piece = rng.choice(ODD_PIECES)
        data[at : at + len(piece)] = piece
    else:
        del data[at:]


def pieces_of(rng: Random, data: bytes) -> list[bytes]:
    """The data in one to four parts."""
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(4)))
    return [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
