"""Places for connections of a listener: at the bound the oldest one that has proved nothing makes room.

A stranger costs nothing to open connections. If the newest were refused, strangers would keep out whoever has a right to be
there; so one of them goes, and a peer that means to log in needs its place for a moment only.
"""

# compiled with mypyc
from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

Connection = TypeVar("Connection")


class Places(Generic[Connection]):
    """Each connection waits, or holds its place. `dropped` counts those that had to go."""

    def __init__(self) -> None:
        self.dropped = 0
        self._waiting: dict[Connection, None] = {}  # the oldest first
        self._holding: dict[Connection, None] = {}

    def take(self, connection: Connection, places_max: int) -> Connection | None:
        """Give a new connection a place. Return the one that is to be closed instead: the oldest that waits, which is the
        new one while all others hold theirs; None while there are no more than `places_max`."""
        self._waiting[connection] = None
        if len(self) <= places_max:
            return None
        oldest = next(iter(self._waiting))
        del self._waiting[oldest]
        self.dropped += 1
        return oldest

    def hold(self, connection: Connection) -> None:
        """It has proved who it is, or is being served: it goes for nobody."""
        self._waiting.pop(connection, None)
        self._holding[connection] = None

    def release(self, connection: Connection) -> None:
        """A connection that holds its place waits, as the newest one."""
        if connection in self._holding:
            del self._holding[connection]
            self._waiting[connection] = None

    def discard(self, connection: Connection) -> None:
        """It has ended."""
        self._waiting.pop(connection, None)
        self._holding.pop(connection, None)

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._waiting or connection in self._holding

    def __iter__(self) -> Iterator[Connection]:
        return iter([*self._holding, *self._waiting])

    def __len__(self) -> int:
        return len(self._waiting) + len(self._holding)
