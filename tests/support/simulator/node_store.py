"""The store of a simulated node: what was written outlives its process."""

from __future__ import annotations

from random import Random
from typing import Final

from broker.broker import Broker
from broker.message import NEVER
from broker.session.refused import refuse_waiting
from broker.store.records import encode_changes
from broker.store.restoring import Restoring

WRITE_SECONDS_MAX: Final = 0.02
RETRY_SECONDS: Final = 1.0
"""Between two attempts while the disk is full, as in the writer of the product."""
WALL_START: Final = 1_800_000_000.0
"""Unix time at the beginning of a world."""

Record = tuple[object, ...]


class Disk:
    """A disk belongs to the machine.

    records            by number; none for a disk that is new
    write_seconds_max  the longest time that one batch takes
    is_full            nothing can be written
    """

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        self.write_seconds_max = WRITE_SECONDS_MAX
        self.is_full = False


class NodeStore:
    """The store restores what the disk has, and writes one batch at a time. A process that is killed meanwhile leaves a batch
    that is written, or one that is not. A batch that fails is tried again, with all that came since."""

    def __init__(self, disk: Disk, broker: Broker, rng: Random, now: float) -> None:
        restoring = Restoring(broker, broker.wall_offset, now)
        for number in sorted(disk.records):
            restoring.add(number, disk.records[number])
        self._journal = restoring.end()
        number, record = restoring.identity()
        disk.records[number] = record
        self._disk = disk
        self._broker = broker
        self._rng = rng
        self._begun: list[int] = []  # commits that end with the batch
        self._batch: dict[int, Record | None] = {}
        self._fails = False  # the disk was full when the batch began
        self._done_at = NEVER
        self._retry_at = NEVER

    def turn_ended(self, now: float) -> bool:
        """Begin to write what has changed; whether there was anything."""
        journal = self._journal
        if self._done_at != NEVER or self._retry_at != NEVER or not (journal.changes or journal.commit):
            return False
        self._begin(now)
        return True

    def _begin(self, now: float) -> None:
        journal = self._journal
        if journal.commit or not self._begun:
            self._begun.append(journal.commit or self._broker.commits.begin())
        self._batch.update(encode_changes(journal.take(), self._broker.wall_offset))
        self._broker.commits.written(self._batch, now)
        self._fails = self._disk.is_full
        if self._rng.random() < 0.5 and not self._fails:
            self._write()
        self._done_at = now + self._rng.random() * self._disk.write_seconds_max

    def next_timeout(self) -> float:
        return min(self._done_at, self._retry_at)

    def handle_timeout(self, now: float) -> None:
        """The batch is written by then, or has failed."""
        if now >= self._retry_at:
            self._retry_at = NEVER
            self._begin(now)
        elif now >= self._done_at:
            self._done_at = NEVER
            if self._fails:
                self._journal.is_full = True
                refuse_waiting(self._broker, now)
                self._retry_at = now + RETRY_SECONDS
            else:
                self._end()

    def _end(self) -> None:
        self._write()
        self._batch = {}
        self._journal.is_full = False
        begun, self._begun = self._begun, []
        self._broker.commits.stored(begun)

    def _write(self) -> None:
        records = self._disk.records
        for number, record in self._batch.items():
            if record is None:
                records.pop(number, None)
            else:
                records[number] = record
