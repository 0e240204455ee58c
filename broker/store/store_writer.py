"""Takes the changes of durable state to the store: one batch at a time, each with all that came during the one before."""

# not a core: runs in the loop
from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from broker.broker import Broker
from broker.metrics.metric import Metric, counter, gauge
from broker.server.host import Host
from broker.server.logging import get_logger
from broker.server.turns import TurnEnd
from broker.server.writer_thread import WriterThread
from broker.session.refused import refuse_waiting
from broker.store.journal import Journal
from broker.store.records import all_contents, encode_changes
from broker.store.store import LostCommits, OwnerLost, Store, StoreFault, pack_batch

RETRY_SECONDS: Final = 1.0  # between two attempts while the store takes nothing

Batch = dict[int, "tuple[object, ...] | None"]
Write = Callable[[Sequence[tuple[int, "bytes | None"]]], None]


class State(Enum):
    """state    means                                        leaves to
    IDLE     the store has every batch                    WRITING (changes), WAITING (they cannot be encoded), STOPPED
    WRITING  the thread writes the batch                  IDLE, WRITING (commits were lost), WAITING (fault), STOPPED
    WAITING  the batch is tried again in RETRY_SECONDS    WRITING, WAITING (it cannot be encoded), STOPPED
    STOPPED  nothing is written any more
    """

    IDLE = "idle"
    WRITING = "writing"
    WAITING = "waiting"
    STOPPED = "stopped"


MOVES: Final[dict[State, tuple[State, ...]]] = {
    State.IDLE: (State.WRITING, State.WAITING, State.STOPPED),
    State.WRITING: (State.IDLE, State.WRITING, State.WAITING, State.STOPPED),
    State.WAITING: (State.WRITING, State.WAITING, State.STOPPED),
    State.STOPPED: (),
}


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
        self._state = State.IDLE
        self._call: Write = store.commit  # that takes the batch; a batch that failed is tried again with the same one
        self._changes: dict[int, object] = {}  # of the batch, not encoded yet
        self._batch: Batch = {}  # that the store does not have
        self._begun: list[int] = []  # commits that end with the batch
        self._retry: asyncio.TimerHandle | None = None

    def _move(self, state: State) -> None:
        assert state in MOVES[self._state], (self._state, state)
        self._state = state

    def turn_ended(self, now: float) -> None:
        journal = self._journal
        if self._state is State.IDLE and (journal.changes or journal.commit):
            self._write()

    def _write(self) -> None:
        """Hand the batch and what has changed since to the writer's thread. Where all changes have been taken back nothing is
        written."""
        journal = self._journal
        if journal.commit or not self._begun:
            self._begun.append(journal.commit or self._broker.commits.begin())
        self._changes.update(journal.take())
        try:
            self._batch.update(encode_changes(self._changes, self._host.wall_time(0.0)))
        except Exception as error:  # the changes stay: nothing that waits for them is acknowledged without them
            self._fail(error)
            return
        self._changes = {}
        self._broker.commits.written(self._batch, self._host.loop.time())
        self._move(State.WRITING)
        if self._batch or self._call == self._store.replace:
            self._thread.submit(self._write_batch, (self._call, self._batch), self._written)
        else:
            self._end()

    def _write_batch(self, call: Write, batch: Batch) -> float:
        """In the writer's thread. Returns the seconds that it took."""
        begun = self._host.loop.time()
        call(pack_batch(batch))
        return self._host.loop.time() - begun

    def _written(self, result: float | Exception) -> None:
        if self._state is State.STOPPED:
            return
        if isinstance(result, LostCommits):
            self._log.error("the store has lost changes; all is written again", error=str(result))
            self._call = self._store.replace
            self._changes = all_contents(self._broker)
            self._batch = {}
            self._write()
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
        self._end()

    def _end(self) -> None:
        """The store has the batch."""
        self._move(State.IDLE)
        self._call = self._store.commit
        self._batch = {}
        begun, self._begun = self._begun, []
        self._broker.commits.stored(begun)
        self._host.flush_soon()  # the turn's end looks for changes again

    def _fail(self, error: Exception) -> None:
        """Nothing durable is acknowledged until the store has taken this batch."""
        if not self.fault:
            exc_info = None if isinstance(error, StoreFault) else error
            self._log.error(
                "the store takes no changes; nothing durable is acknowledged", error=str(error), exc_info=exc_info
            )
        self.fault = str(error) or type(error).__name__
        self._journal.is_full = True
        refuse_waiting(self._broker, self._host.now())
        self._host.flush_soon()
        if isinstance(error, OwnerLost):
            self._move(State.STOPPED)
            self._host.stop_soon(self.fault)
            return
        self._move(State.WAITING)
        self._retry = self._host.loop.call_later(RETRY_SECONDS, self._write)

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
        if self._state is not State.STOPPED:
            self._move(State.STOPPED)
        if self._retry is not None:
            self._retry.cancel()
