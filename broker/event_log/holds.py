"""Holds: what groups of readers still need, kept in a file of the log."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Final

HOLDS_MAX: Final = 1_000
NAME_BYTES_MAX: Final = 256  # of a group or a query
UNKNOWN_GROUP: Final = "unknown"  # of the hold that stands for those of a damaged file


@dataclass(frozen=True, slots=True)
class Hold:
    """Records from `offset` on are kept for a query of a group. held_at_ns: Unix ns of the last call."""

    group: str
    query: str
    offset: int
    held_at_ns: int


class Holds:
    """The holds of one log id, by (group, query)."""

    def __init__(self, holds: Iterable[Hold] = ()) -> None:
        self._holds = {(hold.group, hold.query): hold for hold in holds}

    def all(self) -> list[Hold]:
        """In the order of (group, query)."""
        return [self._holds[key] for key in sorted(self._holds)]

    def lowest(self) -> int | None:
        """The first offset that a hold keeps."""
        return min((hold.offset for hold in self._holds.values()), default=None)

    def highest(self) -> int:
        """The last offset that a reader has named: records before it were read."""
        return max((hold.offset for hold in self._holds.values()), default=0)

    def has_room(self, group: str, query: str) -> bool:
        """Return whether one more hold is within HOLDS_MAX."""
        return (group, query) in self._holds or len(self._holds) < HOLDS_MAX

    def put(self, group: str, query: str, offset: int, now_ns: int) -> None:
        """Add a hold, or move it forward."""
        known = self._holds.get((group, query))
        if known is not None:
            offset = max(offset, known.offset)
        self._holds[group, query] = Hold(group, query, offset, now_ns)

    def remove(self, group: str, query: str) -> int:
        """Remove a hold, or with an empty query all of the group. Returns their number."""
        found = [key for key in self._holds if key[0] == group and query in ("", key[1])]
        for key in found:
            del self._holds[key]
        return len(found)

    def lower_to(self, offset: int) -> None:
        """Records from `offset` on are others now: who read them needs the new ones."""
        self._holds = {key: replace(hold, offset=min(hold.offset, offset)) for key, hold in self._holds.items()}

    def has(self, group: str, query: str) -> bool:
        return (group, query) in self._holds

    def remove_below(self, offset: int) -> list[Hold]:
        """Remove and return the holds that need a record before `offset`."""
        found = [hold for hold in self._holds.values() if hold.offset < offset]
        for hold in found:
            del self._holds[hold.group, hold.query]
        return found


def encode_holds(log_id: str, holds: Holds, released: int) -> bytes:
    """`released`: number of holds that the retention has released, for people."""
    content = {"log_id": log_id, "released": released, "holds": [asdict(hold) for hold in holds.all()]}
    return json.dumps(content, indent=1).encode()


def decode_holds(data: bytes) -> tuple[str, Holds] | None:
    """The log id that a file is of, and the holds in it; None when it is damaged."""
    try:
        content = json.loads(data)
        return str(content["log_id"]), Holds(
            Hold(str(hold["group"]), str(hold["query"]), int(hold["offset"]), int(hold["held_at_ns"]))
            for hold in content["holds"]
        )
    except (ValueError, TypeError, KeyError):
        return None
