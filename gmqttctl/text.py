"""Tables, times and sizes as text for people."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime


def aligned(rows: Sequence[Sequence[str]], painted: Callable[[str], str] = str) -> list[str]:
    """Lines of a table, the first row its heading. Columns are two blanks apart; numbers stand right. `painted` is given
    each cell but those of the heading, and returns it with colors."""
    widths = [max(width(row[column]) for row in rows) for column in range(len(rows[0]))]
    is_number = [
        all(row[column].replace(",", "").isdigit() for row in rows[1:]) and len(rows) > 1
        for column in range(len(rows[0]))
    ]
    lines = []
    for number, row in enumerate(rows):
        cells = []
        for cell, cell_width, right in zip(row, widths, is_number, strict=True):
            blanks = " " * (cell_width - width(cell))
            text = painted(cell) if number else cell
            cells.append(blanks + text if right else text + blanks)
        lines.append("  ".join(cells).rstrip())
    return lines


def width(text: str) -> int:
    """Places of a terminal that a text takes: two for a wide character, none for one that stands over another."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def age(text: object) -> str:
    """The time since an instant of an answer (RFC 3339); "" for none."""
    if not isinstance(text, str) or not text:
        return ""
    return duration((datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds())


def instant(time_ns: int) -> str:
    """ISO 8601 in UTC with milliseconds; "-" for 0."""
    if not time_ns:
        return "-"
    return (
        datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{time_ns // 10**6 % 1000:03d}Z"
    )


def size(count: int) -> str:
    """Bytes in the largest unit of which there is at least one."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def duration(seconds: float) -> str:
    """The two largest units: `3d 4h`, `5m 12s`."""
    left = max(0, round(seconds))
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def printable(text: str) -> str:
    """Text of a client for a terminal: control characters, line ends and marks of direction are escaped."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
