"""The store of a simulated node: what was written outlives its process."""

from __future__ import annotations

from random import Random
from typing import Final

from broker.broker import Broker
from broker.message import NEVER
from broker.store.records import encode_changes
from broker.store.restoring import Restoring

WRITE_SECONDS_MAX: Final = 0.02
WALL_START: Final = 1_800_000_000.0
"""Unix time at the beginning of a world."""

Disk = dict[int, tuple[object, ...]]
"""Records by number. It belongs to the machine."""


class NodeStore:
    """Restores what the disk has, and writes one batch at a time. A process that is killed meanwhile leaves a batch that is
    written, or one that is not."""

    def __init__(self, disk: Disk, broker: Broker, rng: Random, now: float) -> None:
        restoring = Restoring(broker, broker.wall_offset, now)
        for number in sorted(disk):
            restoring.add(number, disk[number])
        self._journal = restoring.end()
        self._disk = disk
        self._broker = broker
        self._rng = rng
        self._commit = 0
        self._batch: dict[int, tuple[object, ...] | None] = {}
        self._done_at = NEVER

    def turn_ended(self, now: float) -> bool:
        """Begin to write what has changed; whether there was anything."""
        journal = self._journal
        if self._done_at != NEVER or not (journal.changes or journal.commit):
            return False
        self._commit = journal.commit or self._broker.commits.begin()
        self._batch = encode_changes(journal.take(), self._broker.wall_offset)
        if self._rng.random() < 0.5:
            self._write()
        self._done_at = now + self._rng.random() * WRITE_SECONDS_MAX
        return True

    def next_timeout(self) -> float:
        return self._done_at

    def handle_timeout(self, now: float) -> None:
        """The batch is written by then."""
        if now >= self._done_at:
            self._done_at = NEVER
            self._write()
            self._broker.commits.finish(self._commit)

    def _write(self) -> None:
        for number, record in self._batch.items():
            if record is None:
                self._disk.pop(number, None)
            else:
                self._disk[number] = record
        self._batch = {}
