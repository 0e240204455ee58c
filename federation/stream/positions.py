"""The position up to which this node has done the events of each other store, by the node that says the store's id: a node
can say any id, and moves no position but its own.

Event ids belong to a session between two processes. The serial number of a block belongs to the store that it comes from, and
so outlives both: what a node sends again after its start, or after that of this one, is known by it. A position is written with
what its events have caused, in the same commit, and only then.

Blocks of one start come in their order. What the disk of a node lacked after its start may come from its copy, behind what it
has sent since: so there is a position for each start.
"""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from typing import Final

from broker.store.journal import Content, Journal, StoredRecord, checked
from broker.store.kinds import POSITION
from broker.store.shapes import count_of
from federation.stream.record_ranges import RecordRanges
from federation.stream.serials import START_BITS

POSITIONS_MAX: Final = (
    1_024  # stores that are remembered; then the one whose events came first is forgotten, and counted
)
BLOCKS_MAX: Final = 2_048  # of a store that are known to be done; policy: the oldest is forgotten
STARTS_MAX: Final = 8  # former ones of a store; policy: the first is forgotten, and QoS 2 may come twice
NO_BLOCK: Final = (0, 0)
ANY_NODE: Final = (
    ""  # of a record without a node, as builds before wrote it: the first node that says the store id takes it
)


class Position(Content):
    """serial  of the newest block of messages that has come, 0 for none
    done    how many of its events are done; they are not done again
    rest    how many of these wait for receivers that are full; they are lost with the process
    former  by start of the store, before that of `serial`: (serial, done) of its newest block that has come
    before  (serial, done) of the process before this one, and
    again   of the newest copy for a group that was done by that one and again by this one
    blocks  serial numbers of the newest that are done as a whole, by this process
    """

    __slots__ = ("again", "before", "blocks", "done", "former", "node", "number", "rest", "serial", "store_id")

    def __init__(self, node: str, store_id: str) -> None:
        self.node = node
        self.store_id = store_id
        self.serial = 0
        self.done = 0
        self.rest = 0
        self.former: dict[int, tuple[int, int]] = {}
        self.number = 0
        self.before = (0, 0)
        self.again = (0, 0)
        self.blocks: deque[int] = deque(maxlen=BLOCKS_MAX)

    def values(self, wall_offset: float) -> tuple[object, ...]:
        """(POSITION, store id, serial, done, node), and behind them `former` as pairs, where there are some."""
        record = POSITION, self.store_id, self.serial, self.done - self.rest, self.node
        return (*record, tuple(self.former.values())) if self.former else record

    def restore(self, values: tuple[object, ...]) -> None:
        """values: of its record, from the serial on, without the node. Raises ValueError and TypeError."""
        serial, done, *formers = values
        for former in checked(tuple, formers[0]) if formers else ():
            there, known = checked(tuple, former)
            self.did(count_of(there), count_of(known))
        self.did(checked(int, serial), checked(int, done))

    def done_whole(self, serial: int) -> None:
        """A batch is done, and was the rest of this block; 0 for none."""
        if serial:
            self.blocks.append(serial)

    def skips(self, serial: int, done: int, count: int) -> int:
        """Return how many events of a batch of `count` were done before; it begins behind `done` events of its block."""
        newest, known = self._of_start(serial)
        if serial != newest:
            return 0 if serial > newest else count
        return min(count, max(0, known - done))

    def _of_start(self, serial: int) -> tuple[int, int]:
        """Return (serial, done) of the newest block that has come of the start that has numbered this one."""
        start = serial >> START_BITS
        if start == self.serial >> START_BITS:
            return self.serial, self.done
        return self.former.get(start, NO_BLOCK)

    def did(self, serial: int, done: int) -> None:
        """So many events of the block are done."""
        if serial == self.serial:
            self.done = max(self.done, done)
        elif serial > self.serial:
            if self.serial and serial >> START_BITS != self.serial >> START_BITS:
                self._note_former(self.serial, self.done)
            self.serial, self.done = serial, done
        elif serial >> START_BITS != self.serial >> START_BITS:
            self._note_former(serial, done)

    def _note_former(self, serial: int, done: int) -> None:
        start = serial >> START_BITS
        self.former[start] = max(self.former.get(start, NO_BLOCK), (serial, done))
        if len(self.former) > STARTS_MAX:
            del self.former[min(self.former)]

    def take(self, serial: int, done: int, count: int) -> int:
        """These events are done from now on. Return as `skips`."""
        known = self.skips(serial, done, count)
        self.did(serial, done + count)
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
    records    those of the newest blocks that came as a whole: (node, store id, serial number)
    forgotten  number of positions that were forgotten because there were too many
    """

    def __init__(self, journal: Journal | None) -> None:
        self.journal = journal
        self.records: RecordRanges[tuple[str, str, int]] = RecordRanges(BLOCKS_MAX)
        self.forgotten = 0
        self._known: dict[tuple[str, str], Position] = {}  # by the name of the node and the store id

    def restore(self, number: int, record: StoredRecord) -> None:
        """Raises ValueError and TypeError for a record that is none."""
        assert self.journal is not None
        _, store_id, serial, done, *more = record.stored
        node, *former = more or (ANY_NODE,)
        if len(former) > 1:
            raise ValueError(f"a position of {len(record.stored)} values")
        position = self.of(checked(str, node), checked(str, store_id))
        if position.number:
            raise ValueError(f"a second position of store {position.store_id!r:.50}")
        position.restore((serial, done, *former))
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

    def next_record(self) -> int:
        """Return the number of the next record; 0 without a store."""
        return 0 if self.journal is None else self.journal.next_number

    def came_whole(self, position: Position, serial: int, first: int) -> None:
        """The records from the number `first` on are of this block; 0 where a part of it had come before."""
        if first:
            self.records.add(first, self.next_record(), (position.node, position.store_id, serial))

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
