"""The event log of this node: its start and stop, appends, retention, holds. Readers read it through `readers`.

Records get their offsets when the writer takes them. Readers see what is written: `next_offset`. With sync `commit` and
`interval` that is on disk.
"""

# not a core: runs in the loop
from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from broker.event_log.active import ActiveSegment, Written
from broker.event_log.aging_clock import AgingClock
from broker.event_log.appender import Appender, State
from broker.event_log.contents import Limits, LogContents, newest_is_over
from broker.event_log.faults import LogFault, NotWritten
from broker.event_log.files import Files
from broker.event_log.holds import HOLDS_MAX, encode_holds
from broker.event_log.identity import LogIdentity
from broker.event_log.index import Segment
from broker.event_log.log_writer import LINGER_SECONDS, LogWriter
from broker.event_log.readers import LogReaders
from broker.event_log.recovery import (
    HOLDS_FILE,
    Recovered,
    clean_identity,
    lock_folder,
    recover,
    save_identity,
    save_mark,
    set_aside,
)
from broker.event_log.settings import EventLogSettings
from broker.event_log.tap import LogTap
from broker.event_log.turns import ReaderTurns
from broker.server.logging import get_logger
from broker.server.writer_thread import WriterThread

# Of the newest records that stay in the page cache. A log that fills it would push out what other programs use; to write into
# memory that is in use already costs an eighth of the CPU where a virtual machine gets its memory by and by.
CACHED_BYTES: Final = 128 * 2**20
RETENTION_SECONDS: Final = 10.0  # between two looks for segments that are to be removed
CLOCK_SECONDS_MAX: Final = 60.0  # that the wall clock may be behind the newest record without a warning


class EventLog(LogContents):
    """`await start()` first; everything on one loop; `await stop()` last.

    appender  records that wait for the writer; LogTap appends there too
    writer    takes them to the disk
    readers   give them to those who read the log
    """

    def __init__(
        self,
        settings: EventLogSettings,
        node: str,
        files: Files | None = None,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        super().__init__(node)
        self.appender = Appender(0)
        self.wall_ns = wall_ns
        self._settings = settings
        self._retention = Limits(settings.retention.age, settings.retention.bytes)
        self._hold_limits = Limits(settings.hold.max_age, settings.hold.max_bytes)
        self._folder = Path(settings.dir)
        self._files = Files() if files is None else files
        self._loop = asyncio.get_running_loop()
        self._log = get_logger("event_log")
        self._thread = WriterThread(self._loop, "event-log")
        self._active = ActiveSegment(self._folder, self._files, node, settings.segment_bytes, settings.sync != "none")
        self.writer = LogWriter(
            self._thread,
            self._active,
            self.appender,
            LINGER_SECONDS if settings.sync == "commit" else settings.sync_interval,
            settings.on_full == "refuse_publishes",
            self._wrote,
            self._begun,
        )
        self.readers = LogReaders(self, self._folder, ReaderTurns(self._is_writing, self.when_grown), self._set_aside)
        self._identity = LogIdentity("", node, settings.sync, "")
        self._retention_timer: asyncio.TimerHandle | None = None
        self._grown: asyncio.Future[None] | None = None  # of readers that wait for more
        self._is_ahead = False  # of the wall clock, as was logged
        self._aging = AgingClock(0, 0.0)
        self._lock = -1

    # --- start and stop ---

    async def start(self) -> Recovered:
        """Lock the folder, check the segments, go on behind the last record. Raises OSError, FolderInUse."""
        self._lock = self._active.lock = lock_folder(self._folder, self._files)
        self._thread.start()
        try:
            return await self._recover()
        except BaseException:
            self.segments = []  # nothing is marked as stopped
            await self.stop()
            raise

    async def _recover(self) -> Recovered:
        found: Recovered = await self._thread.result(
            recover, self._folder, self._files, self.node, self._settings.sync, self.wall_ns()
        )
        self._identity = found.identity
        self.lineage = found.identity.lineage
        self.writer.log_id = self.log_id
        next_offset = found.identity.next_offset
        self.segments = found.segments
        self.holds = found.holds
        self.damaged = list(found.damaged)
        self.appender.time_ns = found.segments[-1].last_time_ns if found.segments else 0
        self._aging = AgingClock(self.appender.time_ns, self._loop.time())
        now_ns = self._aging_ns()
        self._remove_aged(now_ns)  # before anything is written: the disk may be full
        if found.is_open:
            await self._thread.result(self._active.open, self.segments[-1])
        else:
            if self.segments and self.segments[-1].first_offset == next_offset:
                self.segments.pop()  # it is empty, and is begun anew
            size = await self._thread.result(self._active.begin, self.log_id, next_offset)
            self._add_segment(next_offset, size)
        await self._thread.result(save_identity, self._folder, self._files, self._identity_now())
        if self._settings.sync != "none":
            await self._thread.result(save_mark, self._folder, self._files, self.log_id, next_offset)
        await self._save_holds()
        self._end_newest(now_ns)
        self._retention_timer = self._loop.call_later(RETENTION_SECONDS, self._retain)
        self.writer.look()
        return found

    async def stop(self) -> None:
        """Write what waits, and mark the log as stopped gracefully. Does nothing a second time."""
        if self._lock < 0:
            return
        if self._retention_timer is not None:
            self._retention_timer.cancel()
        if self.segments:
            try:
                self.writer.ends = True
                if not self.writer.stopped:
                    await self.writer.flush()
                newest = self.segments[-1]
                await self._thread.result(self._active.seal, newest)
                stopped = clean_identity(self._identity_now(), newest.end_offset)
                await self._thread.result(save_identity, self._folder, self._files, stopped)
            except OSError as error:
                self._log.error("the event log was not stopped cleanly", error=str(error))
        self.writer.close()
        self.readers.close()
        lock, self._lock = self._lock, -1
        await self._thread.stop(self._close, lock)

    def _close(self, lock: int) -> None:
        """In the writer's thread, as its last work: a disk that hangs does not hold up the loop."""
        self._active.close()
        os.close(lock)

    def _identity_now(self) -> LogIdentity:
        first_offset = self.segments[-1].first_offset
        next_offset = max(first_offset, self._identity.next_offset)
        self._identity = replace(self._identity, next_offset=next_offset, last_segment=first_offset)
        return self._identity

    async def _save_holds(self) -> None:
        """Raises NotWritten."""
        content = encode_holds(self.log_id, self.holds, self.holds_released)
        try:
            await self._thread.result(self._files.replace, self._folder / HOLDS_FILE, content)
        except OSError as error:
            raise NotWritten(f"the holds of node {self.node} cannot be written: {error.strerror}") from error

    # --- records ---

    async def flush(self) -> int:
        """Wait until everything that was appended can be read. Returns next_offset. Raises NotWritten."""
        if self.appender.state is State.DROPPING:
            raise NotWritten(f"node {self.node} logs nothing at present: {self.writer.stopped}")
        try:
            await self.writer.flush()
        except OSError as error:
            raise NotWritten(f"node {self.node} cannot log: {error.strerror or error}") from error
        return self.next_offset

    def attach(self, tap: LogTap) -> None:
        """Acknowledgements and publishers wait in this tap, which appends to `appender`."""
        self.writer.tap = tap

    def when_grown(self) -> asyncio.Future[None]:
        """Done when the log has records behind those of now. It is shared: wait with asyncio.wait, which does not cancel it."""
        if self._grown is None:
            self._grown = self._loop.create_future()
        return self._grown

    def _wrote(self, written: list[Written]) -> None:
        for item in written:
            if item.new_segment:
                self._begun(item.new_segment)
            self.segments[-1].add(item.header)
        if self._grown is not None:
            self._grown.set_result(None)
            self._grown = None

    def _begun(self, header_size: int) -> None:
        """The writer has begun a segment behind the last record. The one before is complete."""
        before = self.segments[-1]
        if before.first_offset == before.end_offset:  # it was empty, and its file was replaced
            self.segments.pop()
        else:
            self._thread.submit(self._active.seal, (before,), self._done)
        self._add_segment(before.end_offset, header_size)
        cached = 0
        for segment in reversed(self.segments):
            cached += segment.size
            if cached > CACHED_BYTES:
                self._thread.submit(self._active.uncache, (segment,), self._done)
                break
        self._thread.submit(save_identity, (self._folder, self._files, self._identity_now()), self._done)

    def _add_segment(self, first_offset: int, header_size: int) -> None:
        time_ns = self.segments[-1].last_time_ns if self.segments else self.appender.time_ns
        self.segments.append(Segment(first_offset, first_offset, time_ns, time_ns, header_size))

    def _done(self, result: object) -> None:
        """The end of work without which the next start only takes longer."""
        if isinstance(result, Exception):
            self._log.warning("a file of the event log could not be written", error=str(result))

    def _is_writing(self) -> bool:
        """Return whether records are being written, or somebody waits for that."""
        state = self.appender.state
        return state is State.WRITING or (self.appender.is_urgent and state is not State.REFUSING)

    # --- retention ---

    def _retain(self) -> None:
        self._retention_timer = self._loop.call_later(RETENTION_SECONDS, self._retain)
        now_ns = self._aging_ns()
        self._end_newest(now_ns)
        self._remove_aged(now_ns)

    def _aging_ns(self) -> int:
        """The time by which records age."""
        wall_ns = self.wall_ns()
        self._check_clock(wall_ns)
        return self._aging.look(wall_ns, self._loop.time())

    def _end_newest(self, now_ns: int) -> None:
        """Begin a new segment when all of the newest one is past the retention."""
        if newest_is_over(self.segments, now_ns, self._retention) and not self.writer.stopped:
            self._thread.submit(self._active.begin_next, (self.log_id,), self._next_begun)

    def _remove_aged(self, now_ns: int) -> None:
        """Remove what is past the retention."""
        removed, released = self.remove_aged(now_ns, self._retention, self._hold_limits)
        if not removed:
            return
        for hold in released:
            self._log.warning(
                "a hold is past its limits and was released", group=hold.group, query=hold.query, offset=hold.offset
            )
        self._thread.submit(self._active.remove, (removed,), self._done)
        if released:
            content = encode_holds(self.log_id, self.holds, self.holds_released)
            self._thread.submit(self._files.replace, (self._folder / HOLDS_FILE, content), self._done)

    def _check_clock(self, now_ns: int) -> None:
        """Warn of a clock that was ahead when the newest record came."""
        seconds = (self.appender.time_ns - now_ns) / 1e9
        is_ahead = seconds > CLOCK_SECONDS_MAX
        if is_ahead and not self._is_ahead:
            self._log.warning(
                "the clock is behind the newest record, whose time new records get until it has passed",
                seconds=round(seconds),
            )
        self._is_ahead = is_ahead

    def _next_begun(self, result: int | Exception) -> None:
        if isinstance(result, Exception):
            self._done(result)
        elif result:
            self._begun(result)

    # --- damage ---

    async def _set_aside(self, segment: Segment, fault: str) -> None:
        """Take a damaged segment out of the log: its offsets are a gap."""
        self._log.error("a damaged segment was set aside", segment=segment.first_offset, fault=fault)
        if segment is self.segments[-1]:
            self._thread.submit(self._active.begin_next, (self.log_id,), self._next_begun)
        # In the thread behind the next segment, which is on disk first: a crash must not forget that offsets were given out.
        await self._thread.result(save_identity, self._folder, self._files, self._identity_now())
        if not self.has(segment):  # the retention has removed it
            return
        if segment is self.segments[-1]:
            raise LogFault(f"node {self.node} cannot begin another segment, so the damaged one stays: see its log")
        self.segments = [other for other in self.segments if other is not segment]
        self.damaged.append(
            await self._thread.result(set_aside, self._folder, self._files, segment.first_offset, fault)
        )

    # --- holds ---

    async def hold(self, group: str, query: str, log_id: str, offset: int) -> None:
        """Keep the records from `offset` on for a query of a group, up to the settings `hold`. A hold moves forward only.
        It is on disk afterwards. Raises LogFault."""
        self.check_range(log_id, offset, offset)
        if not self.holds.has_room(group, query):
            raise LogFault(f"there are {HOLDS_MAX} holds; release those of queries that have ended")
        self.holds.put(group, query, offset, self.wall_ns())
        await self._save_holds()

    async def release(self, group: str, query: str) -> int:
        """Remove the hold of a query, or with "" of all queries of the group. Returns the number of holds."""
        count = self.holds.remove(group, query)
        if count:
            await self._save_holds()
        return count
