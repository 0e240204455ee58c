"""The marks of the rows that a pipeline publishes, and the rows of a batch that the log has."""

# compiled with mypyc
from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.codec.properties import USER_PROPERTY
from broker.codec.wire import encode_string
from broker.event_log.block import SECTION_FIELDS
from broker.event_log.records import block_headers, block_texts, section_fields

MARKER: Final = "gmqttd-pipeline"
"""User property of what a pipeline publishes: QUERY/BATCH/ROW."""
_MARKER_BEGIN: Final = bytes((USER_PROPERTY,)) + encode_string(MARKER.encode())
NUMBER_DIGITS: Final = 20  # of a batch or a row in the marker, at most


def marker_prefix(query: str, batch: int) -> str:
    return f"{query}/{batch}/"


def marker_properties(prefix: str, row: int) -> bytes:
    """The marker as an encoded property, the last one of a row. `prefix` is of `marker_prefix`."""
    return _MARKER_BEGIN + encode_string(f"{prefix}{row}".encode())


def marked_rows(blocks: bytes, prefix: str) -> Iterator[int]:
    """The rows of a batch in whole blocks of the log. A client's message with such a marker is none. Raises BlockFault."""
    wanted = prefix.encode()
    for at, header in block_headers(blocks):
        _, publishers, extras, _ = block_texts(blocks, at, header)
        sections = section_fields(blocks, at, header)
        for section in range(0, len(sections), SECTION_FIELDS):
            publisher, extra = sections[section + 3], sections[section + 6]
            if not extra or publishers[3 * publisher]:
                continue
            properties = extras[extra - 1]
            found = properties.rfind(_MARKER_BEGIN)
            if found < 0:
                continue
            value = properties[found + len(_MARKER_BEGIN) + 2 :]
            row = value.removeprefix(wanted)
            if row.isdigit() and len(row) < len(value):
                yield int(row)


class RowSet:
    """Rows of a batch, as ranges: they are logged in order, except after a fault. `count` is their number."""

    def __init__(self) -> None:
        self.count = 0
        self._ranges: list[list[int]] = []  # first, end

    def add(self, row: int) -> None:
        if row in self:
            return
        self.count += 1
        for known in self._ranges:
            if known[1] == row:
                known[1] += 1
                return
        self._ranges.append([row, row + 1])

    def __contains__(self, row: int) -> bool:
        return self.has_any(row, row + 1)

    def has_any(self, first: int, end: int) -> bool:
        """Return whether one of the rows first..end - 1 is among them."""
        return any(known[0] < end and known[1] > first for known in self._ranges)
