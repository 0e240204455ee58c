"""Packets that are sent in a later turn than that of their cause, in order [MQTT-4.6.0-2] [MQTT-4.6.0-3].

The event log and the store have a change on disk only after a sync, and share one sync among many changes. They begin a
commit with the first change of a group, and finish it after the sync. In between what speaks of the changes waits here.

A promise is to a commit what other nodes are to the disk: it is kept when they have what was forwarded to them, or this node
has it in its store. Promises have numbers of their own, because what other nodes wait for is the disk of this one alone: two
nodes that waited for each other's promises would wait for ever.
"""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from typing import Final

from broker.codec.packets import PUBACK, PUBREC
from broker.counters import SHORT_PUBACK_BYTES
from broker.hooks import Waiter
from broker.session.output import Output
from broker.store.journal import Journal
from broker.store.replicator import Replicator

ACKS_WAITING_MAX: Final = 1_024  # acknowledgements of one connection; it is not read until half of them have left


class WaitingAcks:
    """Packets of one connection that wait for one commit and one promise, in succession."""

    __slots__ = ("acks", "connection", "number", "promise")

    def __init__(self, number: int, promise: int, connection: Output, ack: bytes) -> None:
        self.number = number
        self.promise = promise
        self.connection = connection
        self.acks = [ack]


class AckQueue:
    """Packets that wait, in order. `last` takes more of its connection until the next commit or promise begins."""

    __slots__ = ("last", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[WaitingAcks] = deque()
        self.last: WaitingAcks | None = None

    def add(self, number: int, promise: int, connection: Output, data: bytes) -> None:
        last = self.last
        if last is not None and last.connection is connection:
            last.acks.append(data)
        else:
            self.last = last = WaitingAcks(number, promise, connection, data)
            self.waiting.append(last)

    def take(self, finished: int, kept: int) -> WaitingAcks | None:
        """The next ones that wait for neither any more; None when there are none."""
        waiting = self.waiting
        if not waiting or waiting[0].number > finished or waiting[0].promise > kept:
            return None
        found = waiting.popleft()
        if found is self.last:
            self.last = None
        return found


class Commits:
    """Commits have rising numbers. What waits for one waits for all before it, whoever finishes first.

    journal      of the store, None without one
    replicator   copies the store to other nodes, None without copies
    due          number of the commit that the packet being handled has to wait for, 0 for none
    promise_due  of the promise, likewise
    """

    def __init__(self) -> None:
        self.journal: Journal | None = None
        self.replicator: Replicator | None = None
        self.due = 0
        self.promise_due = 0
        self._promised = 0
        self._kept = 0  # it and all before it
        self._begun = 0
        self._finished = 0  # it and all before it
        self._in_store = 0  # of the store's own: it and all before it are there, if not in its copies
        self._open: dict[int, None] = {}  # begun and not finished, in order
        self._stored = AckQueue()  # what waits for commits alone
        self._promises = AckQueue()  # for a promise, too: another node may take its time, and nobody else waits for it
        self._waiters: deque[tuple[int, Waiter]] = deque()
        self._promise_waiters: deque[tuple[int, int, Waiter]] = deque()  # (commit, promise, waiter)

    def begin(self) -> int:
        """Begin a commit, and return its number for `finish`. The packet being handled waits for it."""
        self._begun += 1
        self._open[self._begun] = None
        self._stored.last = self._promises.last = None
        self.due = self._begun
        return self._begun

    def require(self, number: int) -> None:
        """The packet being handled waits for a commit that has begun."""
        self.due = max(self.due, number)

    def promise(self) -> int:
        """Begin a promise, and return its number for `kept`. The packet being handled waits for it."""
        self._promised += 1
        self._promises.last = None
        self.promise_due = self._promised
        return self._promised

    def require_promises(self) -> None:
        """The packet being handled waits for all promises that have begun."""
        self.promise_due = self._promised

    def next_packet(self) -> bool:
        """Another packet is handled. Without this call its acknowledgement may wait longer than it has to. True when the
        store takes no changes."""
        self.due = 0
        self.promise_due = 0
        journal = self.journal
        if journal is None:
            return False
        journal.is_touched = False
        return journal.is_full or journal.is_short

    def takes_nothing(self) -> bool:
        """Return whether the store takes no changes now."""
        journal = self.journal
        return journal is not None and (journal.is_full or journal.is_short)

    def is_due(self) -> bool:
        """Return whether the packet being handled has to wait."""
        journal = self.journal
        if journal is not None and journal.is_touched:
            if journal.commit == 0:
                journal.commit = self.begin()
            self.require(journal.commit)
        return self.due > self._finished or self.promise_due > self._kept

    def acknowledge(self, connection: Output, data: bytes) -> None:
        """Write a packet that speaks of what the packet being handled has changed: now, or after all commits that have
        begun. It never overtakes another one of its connection."""
        if self._waits_for_nothing(connection):
            connection.write_answer(data)
            return
        if connection.acks_promised or self.promise_due > self._kept:
            connection.acks_promised += 1
            self._promises.add(self._begun, self._promised, connection, data)
        else:
            self._stored.add(self._begun, 0, connection, data)
        connection.acks_waiting += 1
        if connection.acks_waiting >= ACKS_WAITING_MAX and not connection.acks_held:
            connection.acks_held = True
            connection.context.hold(connection)

    def acknowledge_run(self, connection: Output, pubacks: bytes) -> None:
        """As `acknowledge`, of PUBACK packets of four bytes."""
        if self._waits_for_nothing(connection):
            connection.write_pubacks(pubacks)
            return
        for at in range(0, len(pubacks), SHORT_PUBACK_BYTES):
            self.acknowledge(connection, pubacks[at : at + SHORT_PUBACK_BYTES])

    def _waits_for_nothing(self, connection: Output) -> bool:
        """Return whether what speaks of the packet being handled may be written now."""
        if self.journal is None and self._begun == self._finished:
            return True
        is_due = self.is_due()  # also where others wait: the store begins a commit
        return connection.acks_waiting == 0 and not is_due

    def write_stored(self, connection: Output, data: bytes) -> None:
        """As `acknowledge`, of a packet to another client than that of the packet being handled: it waits for no promise to
        that one."""
        promise_due = self.promise_due
        self.promise_due = 0
        self.acknowledge(connection, data)
        self.promise_due = promise_due

    def take_publish_answers(self) -> list[tuple[Output, bytes]]:
        """Take the PUBACK and PUBREC packets that wait for a commit, with their connections. All others stay: what waits for
        other nodes alone is on disk, and would be there again after a restart, while its client uses the packet identifier
        anew. Without the copies that it must have it is not acknowledged all the same."""
        taken: list[tuple[Output, bytes]] = []
        is_short = self.journal is not None and self.journal.is_short
        kept = self._finished if is_short else max(self._finished, self._in_store)
        for queue in (self._stored, self._promises):
            for waiting in queue.waiting:
                if waiting.number <= kept:
                    continue
                connection = waiting.connection
                others: list[bytes] = []
                for ack in waiting.acks:
                    if ack[0] >> 4 in (PUBACK, PUBREC):
                        taken.append((connection, ack))
                    else:
                        others.append(ack)
                self._count_left(waiting, len(waiting.acks) - len(others))
                waiting.acks = others
                self._release(connection)
        return taken

    def wait(self, waiter: Waiter) -> bool:
        """Call the waiter when everything that has happened so far is on disk. False when it is."""
        number = self.begun()
        if number == 0:
            return False
        self._waiters.append((number, waiter))
        return True

    def wait_promises(self, waiter: Waiter) -> bool:
        """As `wait`, and other nodes have what was forwarded to them, or the store here."""
        number = self.begun()
        if number == 0 and self._promised == self._kept:
            return False
        self._promise_waiters.append((number, self._promised, waiter))
        return True

    def begun(self) -> int:
        """Number of the commit that holds everything that has happened so far, 0 when that is on disk."""
        journal = self.journal
        if journal is not None and journal.changes and journal.commit == 0:
            journal.commit = self.begin()
        return 0 if self._begun == self._finished else self._begun

    def is_finished(self, number: int) -> bool:
        """Return whether the commit and all before it are on disk."""
        return number <= self._finished

    def written(self, batch: dict[int, tuple[object, ...] | None], now: float) -> None:
        """The store begins to write a batch of records."""
        if self.replicator is not None:
            self.replicator.written(batch, now)

    def stored(self, numbers: list[int]) -> None:
        """The store has all that was taken from the journal, which these commits wait for."""
        assert self.journal is not None
        below = self.journal.taken_is_stored()
        if numbers:
            self._in_store = max(self._in_store, numbers[-1])
        if self.replicator is None:
            self.settle(below, numbers)
        else:
            self.replicator.stored(below, numbers)

    def settle(self, below: int, numbers: list[int]) -> None:
        """The store and its copies have the records below this number, which these commits wait for."""
        assert self.journal is not None
        self.journal.stored_below = below
        for number in numbers:
            self.finish(number)

    def finish(self, number: int) -> None:
        """This commit is on disk. The connections of packets that waited for it have output afterwards."""
        del self._open[number]
        self._finished = self._begun
        for first_open in self._open:
            self._finished = first_open - 1
            break
        self._release_acks()
        while self._waiters and self._waiters[0][0] <= self._finished:
            self._waiters.popleft()[1].committed()
        self._release_waiters()

    def kept(self, number: int) -> None:
        """This promise and all before it are kept. As `finish`."""
        self._kept = number
        self._release_acks()
        self._release_waiters()

    def _release_waiters(self) -> None:
        waiters = self._promise_waiters
        while waiters and waiters[0][0] <= self._finished and waiters[0][1] <= self._kept:
            waiters.popleft()[2].committed()

    def _release_acks(self) -> None:
        for queue in (self._stored, self._promises):
            while True:
                found = queue.take(self._finished, self._kept)
                if found is None:
                    break
                connection = found.connection
                self._count_left(found, len(found.acks))
                if not connection.closed:
                    connection.write_answers(found.acks)
                    self._release(connection)

    def _count_left(self, waiting: WaitingAcks, count: int) -> None:
        waiting.connection.acks_waiting -= count
        if waiting.promise:
            waiting.connection.acks_promised -= count

    def _release(self, connection: Output) -> None:
        if connection.acks_held and connection.acks_waiting * 2 <= ACKS_WAITING_MAX:
            connection.acks_held = False
            connection.context.release(connection)
