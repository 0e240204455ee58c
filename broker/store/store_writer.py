"""Takes the changes of durable state to the store: one batch at a time, each with all that came during the one before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from broker.broker import Broker
from broker.metrics.metric import Metric, counter, gauge
from broker.server.host import Host
from broker.server.logging import get_logger
from broker.server.turns import TurnEnd
from broker.server.writer_thread import WriterThread
from broker.session.unstored import refuse_waiting
from broker.store.journal import Journal
from broker.store.records import all_contents, encode_changes
from broker.store.store import LostCommits, OwnerLost, Store, StoreFault, pack_record

RETRY_SECONDS: Final = 1.0  # between two attempts while the store takes nothing

Batch = dict[int, "tuple[object, ...] | None"]
Write = Callable[[Sequence[tuple[int, "bytes | None"]]], None]


class StoreWriter(TurnEnd):
    """fault    why the store takes nothing now, "" while it does
    commits  number of batches that were written
    records  number of records in them
    seconds  time that the store took for them
    """

    def __init__(self, host: Host, store: Store, journal: Journal, thread: WriterThread) -> None:
        self.fault = ""
        self.commits = 0
        self.records = 0
        self.seconds = 0.0
        self._host = host
        self._broker: Broker = host.broker
        self._store = store
        self._journal = journal
        self._thread = thread
        self._log = get_logger("store")
        self._is_busy = False
        self._batch: Batch = {}  # that is being written
        self._begun: list[int] = []  # commits that end with the batch
        self._retry: asyncio.TimerHandle | None = None

    def turn_ended(self, now: float) -> None:
        journal = self._journal
        if not self._is_busy and (journal.changes or journal.commit):
            self._write()

    def _write(self) -> None:
        """Hand the changes to the writer's thread. Where all of them have been taken back nothing is written."""
        journal = self._journal
        self._begun.append(journal.commit or self._broker.commits.begin())
        changes = journal.take()
        if not changes:
            self._finish()
            return
        self._batch = encode_changes(changes, self._host.wall_time(0.0))
        self._is_busy = True
        self._submit(self._store.commit)

    def _submit(self, write: Write) -> None:
        self._thread.submit(self._write_batch, (write, self._batch), self._written)

    def _write_batch(self, write: Write, batch: Batch) -> float:
        """In the writer's thread. Returns the seconds that it took."""
        begun = self._host.loop.time()
        write([(number, None if record is None else pack_record(record)) for number, record in batch.items()])
        return self._host.loop.time() - begun

    def _written(self, result: float | Exception) -> None:
        if isinstance(result, LostCommits):
            self._write_all(result)
            return
        if isinstance(result, Exception):
            self._fail(result)
            return
        if self.fault:
            self._log.info("the store takes changes again")
            self.fault = ""
            self._journal.is_full = False
        self.commits += 1
        self.records += len(self._batch)
        self.seconds += result
        self._batch = {}
        self._is_busy = False
        self._finish()

    def _write_all(self, fault: LostCommits) -> None:
        """Write everything again: it is all in memory."""
        self._log.error("the store has lost changes; all is written again", error=str(fault))
        self._take_later_commit()
        self._batch = encode_changes(all_contents(self._broker), self._host.wall_time(0.0))
        self._submit(self._store.replace)

    def _take_later_commit(self) -> dict[int, object]:
        """The changes that came while the batch was not written; their commit ends with the batch."""
        if self._journal.commit:
            self._begun.append(self._journal.commit)
        return self._journal.take()

    def _finish(self) -> None:
        begun, self._begun = self._begun, []
        for commit in begun:
            self._broker.commits.finish(commit)
        self._host.flush_soon()  # the turn's end looks for changes again

    def _fail(self, error: Exception) -> None:
        """Nothing durable is acknowledged until the store has taken this batch."""
        if not self.fault:
            exc_info = None if isinstance(error, StoreFault) else error
            self._log.error(
                "the store takes no changes; nothing durable is acknowledged", error=str(error), exc_info=exc_info
            )
        self.fault = str(error)
        if isinstance(error, OwnerLost):
            self._host.stop_soon(self.fault)
            return
        self._journal.is_full = True
        refuse_waiting(self._broker, self._host.now())
        self._host.flush_soon()
        self._retry = self._host.loop.call_later(RETRY_SECONDS, self._try_again)

    def _try_again(self) -> None:
        """Write what has come meanwhile in the same batch."""
        self._retry = None
        self._batch.update(encode_changes(self._take_later_commit(), self._host.wall_time(0.0)))
        self._submit(self._store.commit)

    def metrics(self) -> list[Metric]:
        return [
            counter("gmqtt_store_commits_total", "Batches that the store has taken.", self.commits),
            counter("gmqtt_store_records_total", "Records in these batches, deleted ones too.", self.records),
            counter("gmqtt_store_seconds_total", "Seconds that the store took for these batches.", self.seconds),
            gauge("gmqtt_store_full", "1 while the store takes no changes, otherwise 0.", 1.0 if self.fault else 0.0),
        ]

    def not_ready(self) -> list[str]:
        return [f"the store takes no changes: {self.fault}"] if self.fault else []

    def stop(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
