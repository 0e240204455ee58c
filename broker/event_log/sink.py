"""The sink of pipelines on one node: rows are staged on disk, and published once when their batch is committed.

The log is the record of progress: each row is logged with a marker (staged_rows.MARKER). After a crash the node looks up in
its log which rows of a commit are there, and publishes the others. A hold keeps the records since the commit began.

The queues of subscribers are in the store and on other nodes, which a crash may catch at another row than the log. The file of
the commit tells every UNSURE_ROWS_MAX rows that they are there, or that nobody wanted them; from that row on subscribers get
rows of QoS 1 and 2 again.
"""

# not a core: waits in the loop
from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from broker.api.long_calls import LongCalls, Steps
from broker.codec.reason_codes import QUOTA_EXCEEDED
from broker.errors import MqttError, NotCommitted
from broker.event_log.appender import State
from broker.event_log.faults import LogFault, NotWritten
from broker.event_log.log import EventLog
from broker.event_log.row_publisher import RowPublisher
from broker.event_log.staged_block import StagedBlock
from broker.event_log.staged_files import StagingFault, StagingFull
from broker.event_log.staged_rows import MARKER, RowSet, marked_rows, marker_prefix
from broker.event_log.staging import Commit, Partition, Staging
from broker.publisher import Publisher
from broker.server.committed import committed
from broker.server.logging import get_logger

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.event_log.tap import LogTap
    from broker.server.host import Host

COMMITS_MAX: Final = 16  # of different queries at once
QUERIES_MAX: Final = 100  # whose last batch is remembered
UNSURE_ROWS_MAX: Final = 10_000  # that are published before it is written down that their subscribers have them
SCAN_BYTES: Final = 4 * 2**20  # of the log that is looked through at once after a crash
LOOK_SECONDS: Final = 60.0  # between two looks for commits that have not ended, and for batches that have expired
HOLD_GROUP: Final = MARKER  # of the holds on this node's log, one for each query with a commit that has begun
FAULTS: Final = (StagingFault, LogFault, OSError)  # of calls
STOPPING_TEXT: Final = "the node stops"

Result = TypeVar("Result")


class Batch(NamedTuple):
    """`committed_at_ns` is Unix time."""

    number: int
    rows: int
    committed_at_ns: int


class RowsPublisher(Publisher):
    """The publisher of rows. Full receivers hold it, and so does the log where the writer is late."""

    def __init__(self) -> None:
        super().__init__(self)
        self._is_free = asyncio.Event()

    def set_reading(self, publisher: Publisher) -> None:
        """`held` went to or from zero; called at the end of the turn."""
        if not self.held:
            self._is_free.set()

    async def wait_free(self) -> None:
        """Until nothing holds it."""
        while self.held:
            self._is_free.clear()
            await self._is_free.wait()


class Sink:
    """Made inside a running loop. `open` first, `stop` last. `publisher` is the source of all rows, `batches` are the last ones
    of queries since the start, by query.

    Calls raise StagingFault, LogFault and OSError. A commit that failed goes on when it is called again, or by itself later.
    """

    def __init__(self, server: Host, log: EventLog, tap: LogTap, staging: Staging, long_calls: LongCalls) -> None:
        self.publisher = RowsPublisher()
        self.batches: OrderedDict[str, Batch] = OrderedDict()
        self._server = server
        self._event_log = log
        self._tap = tap
        self._staging = staging
        self._long_calls = long_calls
        self._log = get_logger("event_log")
        self._thread = ThreadPoolExecutor(1, "event-log-sink")
        self._running: dict[str, tuple[int, asyncio.Task[tuple[int, bool]]]] = {}  # by query: its batch, its commit
        self._routed: dict[str, int] = {}  # by query whose commit has not ended: rows that went out in this process
        self._looking: asyncio.Task[None] | None = None
        self._is_stopped = False

    async def open(self) -> None:
        """Find what an earlier process left. Raises OSError, StagingFault."""
        for commit in await self._in_thread(self._staging.open):
            self._log.info("a commit of a pipeline goes on", query=commit.query, batch=commit.batch, rows=commit.rows)

    def start(self) -> None:
        """Go on with the commits that an earlier process began."""
        self._looking = asyncio.create_task(self._look())

    async def stop(self) -> None:
        """End what runs: the next start goes on with it. May be called twice."""
        self._is_stopped = True
        tasks: list[asyncio.Task[Any]] = [task for _, task in self._running.values()]
        if self._looking is not None:
            tasks.append(self._looking)
            self._looking = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._thread.shutdown()

    async def _in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """The disk, one work at a time."""
        if self._is_stopped:
            raise NotWritten(STOPPING_TEXT)
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    # --- calls ---

    async def stage(
        self, query: str, batch: int, partition: int, attempt: int, position: int, blocks: bytes
    ) -> tuple[int, int]:
        """As Staging.stage."""
        return await self._in_thread(self._staging.stage, query, batch, partition, attempt, position, blocks)

    async def commit(self, query: str, batch: int, partitions: Sequence[Partition]) -> tuple[int, bool]:
        """Publish the staged rows of these partitions, each once, and return when they are in the log: (number of rows,
        whether an earlier commit did it). A commit that has begun goes on with the partitions that it was begun with. Raises
        StagingFault where a later batch was published: rows under an earlier number may be others."""
        running = self._running.get(query)
        if running is None:
            if len(self._running) >= COMMITS_MAX:
                raise StagingFull(f"{COMMITS_MAX} commits are running already")
            running = self._running[query] = batch, asyncio.create_task(self._commit(query, batch, partitions))
            running[1].add_done_callback(lambda task: self._committed(query, task))
        elif running[0] != batch:
            raise StagingFault(f"batch {running[0]} of query {query} is being committed; commit batch {batch} after it")
        return await asyncio.shield(running[1])  # a caller that goes does not end it

    def _committed(self, query: str, task: asyncio.Task[tuple[int, bool]]) -> None:
        number, _ = self._running.pop(query)
        if task.cancelled() or task.exception() is not None:  # its callers get it; there may be none any more
            return
        rows, was_committed = task.result()
        if not was_committed:
            self.batches.pop(query, None)
            self.batches[query] = Batch(number, rows, time.time_ns())
            if len(self.batches) > QUERIES_MAX:
                self.batches.popitem(last=False)

    @property
    def running(self) -> dict[str, int]:
        """The batches that are being committed, by query."""
        return {query: number for query, (number, _) in self._running.items()}

    async def _commit(self, query: str, batch: int, partitions: Sequence[Partition]) -> tuple[int, bool]:
        for begun in await self._in_thread(self._staging.unfinished, query):
            commit = await self._resumed(begun)
            await self._publish(commit, await self._logged(commit))
        committed = await self._in_thread(self._staging.committed, query)
        if committed is not None and batch < committed.batch:
            raise StagingFault(
                f"batch {batch} of query {query} is behind batch {committed.batch}, which was published: the checkpoint of "
                "the query, or the batchId of its job, is older than that, and its batches may have other rows. Restore the "
                "checkpoint that belongs to it, or begin anew: another checkpoint folder, or another jobId"
            )
        if committed is not None and batch == committed.batch:
            return committed.rows, True
        log = self._event_log
        commit = Commit(query, batch, tuple(sorted(partitions)), log.next_offset, log.log_id)
        await log.hold(HOLD_GROUP, query, commit.log_id, commit.log_offset)
        try:
            await self._in_thread(self._staging.begin, commit)
        except StagingFault:
            await log.release(HOLD_GROUP, query)
            raise
        await self._publish(commit, RowSet())
        return commit.rows, False

    async def _resumed(self, commit: Commit) -> Commit:
        """A commit that has begun, with the offset from which on the log has its rows. Raises StagingFault when the log does
        not have that any more: rows would be published twice."""
        log = self._event_log
        begun = commit
        if commit.log_id != log.log_id:
            shared_end = log.lineage.shared_end(commit.log_id)
            offset = log.first_offset if shared_end is None else min(commit.log_offset, shared_end)
            commit = replace(commit, log_offset=offset, log_id=log.log_id)
        if commit.log_offset < log.first_offset:
            if not log.holds.has(HOLD_GROUP, commit.query):
                raise StagingFault(
                    f"batch {commit.batch} of query {commit.query} began at offset {commit.log_offset}, and the log begins "
                    f"at {log.first_offset} now: the hold was past event_log.hold, and which rows were published is not "
                    f"known any more; {self._staging.give_up(commit)}"
                )
            # Not the retention: they were lost, and nobody can read them.
            commit = replace(commit, log_offset=log.first_offset)
        if commit != begun:
            await self._in_thread(self._staging.keep, commit)
        await log.hold(HOLD_GROUP, commit.query, commit.log_id, commit.log_offset)
        return commit

    async def abort(self, query: str, batch: int) -> None:
        """Remove the staged rows of a batch whose commit has not begun."""
        await self._in_thread(self._staging.abort, query, batch)

    # --- publishing ---

    async def _publish(self, commit: Commit, logged: RowSet) -> None:
        """Publish the rows that are not logged yet, until the log has them all, and end the commit."""
        while not await self._publish_missing(commit, logged):
            logged = await self._logged(commit)
        await self._delivered()
        await self._in_thread(self._staging.finish, commit)
        self._routed.pop(commit.query, None)
        await self._event_log.release(HOLD_GROUP, commit.query)

    async def _delivered(self) -> None:
        """Wait until a crash takes nothing from the subscribers of what was published so far. Raises NotWritten."""
        try:
            await committed(self._server, promises=True)
        except NotCommitted as fault:
            raise NotWritten(str(fault)) from None

    async def _publish_missing(self, commit: Commit, logged: RowSet) -> bool:
        """False when the log lost records meanwhile, perhaps some of these."""
        log = self._event_log
        lost = log.appender.lost
        prefix = marker_prefix(commit.query, commit.batch)
        row = 0
        routed = max(commit.delivered, self._routed.get(commit.query, 0))
        is_unsure = routed > commit.delivered
        for partition in commit.partitions:
            blocks = self._staging.blocks(commit, partition)
            while block := await self._in_thread(next, blocks, None):
                if log.appender.lost != lost:
                    return False
                rows = RowPublisher(block, prefix, row, logged, routed)
                is_unsure |= await self._publish_block(block, rows, commit)
                row += block.records
                if row - commit.delivered >= UNSURE_ROWS_MAX:
                    if is_unsure:
                        await self._delivered()
                    commit = replace(commit, delivered=row)
                    await self._in_thread(self._staging.keep, commit)
                    is_unsure = False
        await log.flush()
        return log.appender.lost == lost

    async def _publish_block(self, block: StagedBlock, rows: RowPublisher, commit: Commit) -> bool:
        """Returns whether any of the rows may have reached a subscriber."""
        await self.publisher.wait_free()
        rows.publish_all(*self._now())
        self._went_out(commit, rows)
        reached_nobody = rows.is_done
        while not rows.is_done:
            await self._long_calls.run(self._publish_some(rows, commit))
            await self.publisher.wait_free()
        self._server.flush_soon()
        return not reached_nobody

    def _publish_some(self, rows: RowPublisher, commit: Commit) -> Steps[None]:
        """Publish rows until all are published or the publisher is held."""
        while not rows.is_done and not self.publisher.held:
            try:
                rows.publish_some(*self._now())
            except MqttError as error:
                if error.reason_code == QUOTA_EXCEEDED:
                    raise NotWritten(error.text) from None
                # The settings have changed since it was staged.
                raise StagingFault(f"row {rows.row} of batch {commit.batch}: {error.text}") from None
            finally:
                self._went_out(commit, rows)
            self._server.flush_soon()
            yield

    def _went_out(self, commit: Commit, rows: RowPublisher) -> None:
        self._routed[commit.query] = max(rows.row, self._routed.get(commit.query, 0))

    def _now(self) -> tuple[Broker, LogTap, Publisher, float]:
        """Return what rows are published with. Raises NotWritten."""
        if self._server.broker.shutting_down:  # the clients are gone
            raise NotWritten(STOPPING_TEXT)
        if self._event_log.appender.state is State.DROPPING:
            raise NotWritten(f"node {self._event_log.node} logs nothing at present")
        if self._server.broker.commits.takes_nothing():  # subscribers would lose what comes now
            raise NotWritten(f"the store of node {self._event_log.node} takes no changes at present")
        return self._server.broker, self._tap, self.publisher, self._server.now()

    async def _logged(self, commit: Commit) -> RowSet:
        """The rows of a commit that the log has. Raises OutOfRange when it does not have all records since the begin."""
        log = self._event_log
        end = await log.flush()
        prefix = marker_prefix(commit.query, commit.batch)
        logged = RowSet()
        at = commit.log_offset
        while at < end:
            blocks, at = await log.readers.read(log.log_id, at, end, SCAN_BYTES, ())
            rows: list[int] = await self._in_thread(list, marked_rows(blocks, prefix))
            for row in rows:
                logged.add(row)
        return logged

    # --- what goes on by itself ---

    async def _look(self) -> None:
        while True:
            try:
                unfinished = await self._in_thread(self._staging.unfinished)
                for commit in unfinished:
                    await self._go_on(commit)
                await self._release({commit.query for commit in unfinished})
                expired = await self._in_thread(self._staging.expire, time.time())
                if expired:
                    self._log.warning(
                        "rows of pipelines were staged and not committed, and are removed", batches=expired
                    )
            except Exception as error:  # of any kind: the next look may succeed
                exc_info = None if isinstance(error, FAULTS) else error
                self._log.error(
                    "the staged rows of pipelines cannot be looked at", reason=str(error), exc_info=exc_info
                )
            await asyncio.sleep(LOOK_SECONDS)

    async def _go_on(self, commit: Commit) -> None:
        try:
            await self.commit(commit.query, commit.batch, commit.partitions)
        except FAULTS as error:
            self._log.warning("a commit of a pipeline waits", query=commit.query, batch=commit.batch, reason=str(error))

    async def _release(self, unfinished: set[str]) -> None:
        """End the holds that a crash has left of queries whose commit did not begin, or has ended."""
        for hold in self._event_log.holds.all():
            if hold.group == HOLD_GROUP and hold.query not in unfinished and hold.query not in self._running:
                await self._event_log.release(HOLD_GROUP, hold.query)
