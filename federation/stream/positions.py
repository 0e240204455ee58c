"""The position up to which this node has done the events of each other store, by the node that says the store's id: a node
can say any id, and moves no position but its own.

Event ids belong to a session between two processes. The serial number of a block belongs to the store that it comes from, and
so outlives both: what a node sends again after its start, or after that of this one, is known by it. A position is written with
what its events have caused, in the same commit, and only then.
"""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from typing import Final

from broker.store.journal import Content, Journal, StoredRecord, checked
from broker.store.kinds import POSITION

POSITIONS_MAX: Final = (
    1_024  # stores that are remembered; then the one whose events came first is forgotten, and counted
)
BLOCKS_MAX: Final = 2_048  # of a store that are known to be done; policy: the oldest is forgotten
ANY_NODE: Final = (
    ""  # of a record without a node, as builds before wrote it: the first node that says the store id takes it
)


class Position(Content):
    """serial  of the newest block of messages that has come, 0 for none
    done    how many of its events are done; they are not done again
    rest    how many of these wait for receivers that are full; they are lost with the process
    before  (serial, done) of the process before this one, and
    again   of the newest copy for a group that was done by that one and again by this one
    blocks  serial numbers of the newest that are done as a whole, by this process
    """

    __slots__ = ("again", "before", "blocks", "done", "node", "number", "rest", "serial", "store_id")

    def __init__(self, node: str, store_id: str) -> None:
        self.node = node
        self.store_id = store_id
        self.serial = 0
        self.done = 0
        self.rest = 0
        self.number = 0
        self.before = (0, 0)
        self.again = (0, 0)
        self.blocks: deque[int] = deque(maxlen=BLOCKS_MAX)

    def values(self, wall_offset: float) -> tuple[object, ...]:
        """(POSITION, store id, serial, done, node)."""
        return POSITION, self.store_id, self.serial, self.done - self.rest, self.node

    def done_whole(self, serial: int) -> None:
        """A batch is done, and was the rest of this block; 0 for none."""
        if serial:
            self.blocks.append(serial)

    def skips(self, serial: int, done: int, count: int) -> int:
        """Return how many events of a batch of `count` were done before; it begins behind `done` events of its block."""
        if serial > self.serial:
            return 0
        if serial < self.serial:
            return count
        return min(count, max(0, self.done - done))

    def take(self, serial: int, done: int, count: int) -> int:
        """These events are done from now on. Return as `skips`."""
        known = self.skips(serial, done, count)
        if serial > self.serial:
            self.serial = serial
            self.done = 0
        if serial == self.serial:
            self.done = max(self.done, done + count)
        return known

    def lost(self, serial: int, done: int) -> bool:
        """Return whether a copy for a group, the event `done` of its block, was done by the process before this one, and not
        again. What that one had in memory is lost, and the node that chose has not heard the end: a member gets it again."""
        event = (serial, done)
        if event > self.before or event <= self.again:
            return False
        self.again = event
        return True


class Positions:
    """journal    None without a store
    forgotten  number of positions that were forgotten because there were too many
    """

    def __init__(self, journal: Journal | None) -> None:
        self.journal = journal
        self.forgotten = 0
        self._known: dict[tuple[str, str], Position] = {}  # by the name of the node and the store id

    def restore(self, number: int, record: StoredRecord) -> None:
        """Raises ValueError and TypeError for a record that is none."""
        assert self.journal is not None
        _, store_id, serial, done, *nodes = record.stored
        (node,) = nodes or (ANY_NODE,)
        position = self.of(checked(str, node), checked(str, store_id))
        if position.number:
            raise ValueError(f"a second position of store {position.store_id!r:.50}")
        position.serial = checked(int, serial)
        position.done = checked(int, done)
        position.before = (position.serial, position.done)
        position.number = number
        self.journal.kept[number] = position

    def of(self, node: str, store_id: str) -> Position:
        position = self._known.get((node, store_id))
        if position is None:
            position = self._known.pop((ANY_NODE, store_id), None) or Position(node, store_id)
            position.node = node
            self._use(position)
        return position

    def has_done(self, node: str, store_id: str, serial: int) -> bool:
        """Return whether this process has done the whole block of that store; false where that is not known any more."""
        position = self._known.get((node, store_id))
        return position is not None and serial in position.blocks

    def _use(self, position: Position) -> None:
        """It is the last to be forgotten."""
        key = (position.node, position.store_id)
        self._known.pop(key, None)
        if len(self._known) >= POSITIONS_MAX:
            for oldest in self._known:
                self._forget(oldest)
                break
        self._known[key] = position

    def _forget(self, key: tuple[str, str]) -> None:
        position = self._known.pop(key)
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
