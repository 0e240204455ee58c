"""How far this node has done the events of each other store.

Event ids belong to a session between two processes. The serial number of a block belongs to the store that it comes from, and
so outlives both: what a node sends again after its start, or after that of this one, is known by it. A position is written with
what its events have caused, in the same commit, and only then.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.store.journal import Content, Journal, StoredRecord, checked
from broker.store.kinds import POSITION

POSITIONS_MAX: Final = (
    1_024  # stores that are remembered; then the one whose events came first is forgotten, and counted
)


class Position(Content):
    """serial  of the newest block of messages that has come, 0 for none
    done    how many of its events are done; they are not done again
    rest    how many of these wait for receivers that are full; they are lost with the process
    """

    __slots__ = ("done", "number", "rest", "serial", "store_id")

    def __init__(self, store_id: str) -> None:
        self.store_id = store_id
        self.serial = 0
        self.done = 0
        self.rest = 0
        self.number = 0

    def values(self, wall_offset: float) -> tuple[object, ...]:
        """(POSITION, store id, serial, done)."""
        return POSITION, self.store_id, self.serial, self.done - self.rest

    def skips(self, serial: int, done: int, count: int) -> int:
        """Return how many events of a batch of `count` were done before; it begins behind `done` events of its block."""
        if serial > self.serial:
            return 0
        if serial < self.serial:
            return count
        return min(count, max(0, self.done - done))


class Positions:
    """journal    None without a store
    forgotten  number of positions that were forgotten because there were too many
    """

    def __init__(self, journal: Journal | None) -> None:
        self.journal = journal
        self.forgotten = 0
        self._by_store: dict[str, Position] = {}

    def restore(self, number: int, record: StoredRecord) -> None:
        """Raises ValueError and TypeError for a record that is none."""
        assert self.journal is not None
        _, store_id, serial, done = record.stored
        position = self.of(checked(str, store_id))
        if position.number:
            raise ValueError(f"a second position of store {position.store_id!r:.50}")
        position.serial = checked(int, serial)
        position.done = checked(int, done)
        position.number = number
        self.journal.kept[number] = position

    def of(self, store_id: str) -> Position:
        position = self._by_store.get(store_id)
        if position is None:
            position = Position(store_id)
            self._use(position)
        return position

    def _use(self, position: Position) -> None:
        """It is the last to be forgotten."""
        self._by_store.pop(position.store_id, None)
        if len(self._by_store) >= POSITIONS_MAX:
            for oldest in self._by_store:
                self._forget(oldest)
                break
        self._by_store[position.store_id] = position

    def _forget(self, store_id: str) -> None:
        position = self._by_store.pop(store_id)
        self.forgotten += 1
        if position.number and self.journal is not None:
            self.journal.drop(position.number)
            position.number = 0

    def changed(self, position: Position) -> None:
        """Events are done. Where they have changed what the store holds, the position goes with it."""
        journal = self.journal
        if journal is None or not journal.changes or not position.serial:
            return
        self._use(position)
        if position.number:
            journal.change(position.number, position)
        else:
            position.number = journal.keep(position)
