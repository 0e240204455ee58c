"""The file of definitions as bytes: JSON with every entry, its version and tombstones too."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from federation.definitions.entry import Entry
from federation.hybrid_clock import CLOCK_MAX

FORMAT: Final = 1
FILE_BYTES_MAX: Final = 1 << 30
"""Above the largest definitions: 8,192 values of 64 KiB, and tombstones."""


class DocumentFault(ValueError):
    """The bytes are no file of definitions; the text says where."""


def write_document(entries: Iterable[Entry]) -> bytes:
    """The file, which `read_document` reads."""
    found = []
    for entry in sorted(entries, key=lambda entry: entry.key):
        item: dict[str, Any] = {
            "component": entry.component,
            "name": entry.name,
            "clock": entry.clock,
            "node": entry.node,
        }
        if entry.value is None:
            item["deleted"] = True
        else:
            item["value"] = json.loads(entry.value)
        found.append(item)
    return (json.dumps({"format": FORMAT, "entries": found}, indent=1) + "\n").encode()


def read_document(data: bytes) -> list[Entry]:
    """The entries of a file; none of an empty one. Raises DocumentFault."""
    if not data:
        return []
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DocumentFault(f"it is not JSON: {error}") from None
    if not isinstance(found, dict) or "format" not in found:
        raise DocumentFault("it is no file of definitions: the key format is missing")
    if found["format"] != FORMAT:
        raise DocumentFault(f"its format is {str(found['format'])[:20]}, this version reads {FORMAT}")
    items = found.get("entries")
    if not isinstance(items, list):
        raise DocumentFault("the key entries is missing or not a list")
    return [_read_entry(item, index) for index, item in enumerate(items)]


def _read_entry(item: Any, index: int) -> Entry:
    place = f"entries[{index}]"
    if not isinstance(item, dict):
        raise DocumentFault(f"{place} is not an object")
    for key, kind in (("component", str), ("name", str), ("clock", int), ("node", str)):
        if not isinstance(item.get(key), kind) or isinstance(item[key], bool):
            raise DocumentFault(f"{place}.{key} is missing or not a {'number' if kind is int else 'text'}")
    is_deleted = item.get("deleted") is True
    if is_deleted == ("value" in item):
        raise DocumentFault(f"{place} has not exactly one of value and deleted")
    value = None if is_deleted else json.dumps(item["value"], sort_keys=True, separators=(",", ":"))
    # A wrong clock is no reason not to start: `Definitions.load` stamps such an entry anew.
    entry = Entry(item["component"], item["name"], min(item["clock"], CLOCK_MAX), item["node"], value)
    if fault := entry.fault():
        raise DocumentFault(f"{place}: {fault}")
    return entry
