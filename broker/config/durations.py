"""Durations in the style of Go (`1h30m`, `500ms`, `1.5h`) and sizes in bytes (`64KiB`), from text and back."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

NANOSECONDS: Final[dict[str, int]] = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
WRITTEN_UNITS: Final = (("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000))
SMALL_UNITS: Final = (("ms", 1_000_000), ("us", 1_000), ("ns", 1))
DURATION_MAX: Final = 2**63 - 1  # nanoseconds, about 292 years: the range of Go's time.Duration
PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)

SIZES: Final[dict[str, int]] = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
SIZE: Final = re.compile(r"([0-9]{1,19})\s*(B|KiB|MiB|GiB|)", re.ASCII)


class DurationError(ValueError):
    """The text is no duration or no size; the message says what is wrong and what would be right."""


def parse_duration(text: str) -> float:
    """Return the seconds of a duration: numbers, each with its unit (h, m, s, ms, us, ns), or 0. Raises DurationError."""
    body = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    if body == "0":
        return 0.0
    if not body or len(body) > 100:
        raise DurationError(f'"{text}" is not a duration; for example 1h30m, 20s or 500ms')
    total = Fraction(0)
    position = 0
    while position < len(body):
        part = PART.match(body, position)
        if part is None:
            if re.fullmatch(r"[0-9]+(\.[0-9]*)?", body, re.ASCII):
                raise DurationError(f'"{text}" has no unit; seconds are written "{text}s"')
            raise DurationError(f'"{text}" is not a duration; for example 1h30m, 20s or 500ms')
        number, unit = part.group(1, 2)
        total += Fraction(number if number[-1] != "." else number[:-1]) * NANOSECONDS[unit]
        position = part.end()
    if total > DURATION_MAX:
        raise DurationError(f'"{text}" is longer than {DURATION_MAX // NANOSECONDS["h"]}h, the longest duration')
    nanoseconds = int(total)
    return (-nanoseconds if text.startswith("-") else nanoseconds) / 1_000_000_000


def format_duration(seconds: float) -> str:
    """Return the shortest text in whole units that `parse_duration` reads as the same number of nanoseconds; `0` for none."""
    nanoseconds = round(seconds * 1_000_000_000)
    if nanoseconds == 0:
        return "0"
    sign = "-" if nanoseconds < 0 else ""
    rest = abs(nanoseconds)
    parts: list[str] = []
    for unit, size in WRITTEN_UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    for unit, size in SMALL_UNITS:
        if rest and rest % size == 0:
            parts.append(f"{rest // size}{unit}")
            break
    return sign + "".join(parts)


def parse_size(text: str) -> int:
    """Return the bytes of a whole number with or without a unit (B, KiB, MiB, GiB). Raises DurationError."""
    match = SIZE.fullmatch(text)
    if match is None:
        raise DurationError(f'"{text}" is not a number of bytes; for example 65536, 64KiB or 16MiB')
    return int(match.group(1)) * SIZES[match.group(2)]


def format_size(size: int) -> str:
    """Return the size in the largest unit that divides it: 65536 is `64KiB`."""
    for unit in ("GiB", "MiB", "KiB"):
        if size and size % SIZES[unit] == 0:
            return f"{size // SIZES[unit]}{unit}"
    return str(size)
