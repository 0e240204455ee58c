"""The event log of this node: its segments, and the interface for readers.

Records get their offsets when the writer takes them. Readers see what is written: `next_offset`. With sync `commit` and
`interval` that is on disk.
"""

from __future__ import annotations

import asyncio
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from broker.event_log.active import ActiveSegment, Written
from broker.event_log.appender import Appender
from broker.event_log.block import NO_EXPIRY, RETAIN_FLAG, encode_extra
from broker.event_log.files import Files
from broker.event_log.holds import HOLDS_MAX, NAME_BYTES_MAX, Hold, Holds, encode_holds
from broker.event_log.identity import LogIdentity, gaps_between
from broker.event_log.index import Segment
from broker.event_log.log_writer import LINGER_SECONDS, LogWriter
from broker.event_log.reading import DamagedBlock
from broker.event_log.recovery import (
    HOLDS_FILE,
    Damaged,
    Recovered,
    clean_identity,
    lock_folder,
    recover,
    save_identity,
    set_aside,
)
from broker.event_log.retention import Limits, newest_is_over, segments_to_remove
from broker.event_log.segment import segment_name
from broker.event_log.segment_reader import find_offset, read_blocks
from broker.event_log.selection import Selection
from broker.event_log.settings import EventLogSettings
from broker.event_log.tap import LogTap
from broker.event_log.writer_thread import WriterThread
from broker.server.logging import get_logger

ANSWER_BYTES_DEFAULT: Final = 4 * 2**20
ANSWER_BYTES_MAX: Final = 8 * 2**20
# Of the newest records that stay in the page cache. A log that fills it would push out what other programs use; to write into
# memory that is in use already costs an eighth of the CPU where a virtual machine gets its memory by and by.
CACHED_BYTES: Final = 128 * 2**20
READS_AT_ONCE: Final = 2
RETENTION_SECONDS: Final = 10.0  # between two looks for segments that are to be removed


class LogFault(Exception):
    """What a caller asked for cannot be done. The text names what is wrong and what would be right."""


class WrongLogId(LogFault):
    """The log has another id."""


class OutOfRange(LogFault):
    """The offset is not in first_offset..next_offset."""


class NotWritten(LogFault):
    """The disk does not take the records."""


@dataclass(frozen=True, slots=True)
class LogState:
    """first_offset  of the first record that is kept
    next_offset   of the next record that will be served; equal to first_offset for an empty log
    first_time_ns, last_time_ns  Unix ns of the first and the last record that is served; 0 for an empty log
    bytes         of all segments
    stopped       why records are not written now; "" while they are
    damaged       segments that were set aside since the start
    holds_released  by the retention, since the start
    records_lost  that were to be logged while the disk took none, since the start
    """

    node: str
    log_id: str
    first_offset: int
    next_offset: int
    first_time_ns: int
    last_time_ns: int
    bytes: int
    segments: int
    stopped: str
    holds: tuple[Hold, ...]
    damaged: tuple[Damaged, ...]
    holds_released: int
    records_lost: int


class EventLog:
    """`await start()` first; everything on one loop; `await stop()` last.

    node, log_id  what offsets belong to
    appender      records that wait for the writer; LogTap appends there too
    """

    def __init__(
        self,
        settings: EventLogSettings,
        node: str,
        files: Files | None = None,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.node = node
        self.log_id = ""
        self.appender = Appender(0)
        self.wall_ns = wall_ns
        self._settings = settings
        self._retention = Limits(settings.retention.age, settings.retention.bytes)
        self._hold_limits = Limits(settings.hold.max_age, settings.hold.max_bytes)
        self._folder = Path(settings.dir)
        self._files = Files() if files is None else files
        self._loop = asyncio.get_running_loop()
        self._log = get_logger("event_log")
        self._thread = WriterThread(self._loop)
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
        self._readers = ThreadPoolExecutor(READS_AT_ONCE, "event-log-read")
        self._identity = LogIdentity("", node, settings.sync, "")
        self._segments: list[Segment] = []
        self._holds = Holds()
        self._holds_released = 0
        self._damaged: list[Damaged] = []
        self._retention_timer: asyncio.TimerHandle | None = None
        self._lock = -1

    # --- start and stop ---

    async def start(self) -> Recovered:
        """Lock the folder, check the segments, go on behind the last record. Raises OSError, FolderInUse."""
        self._lock = lock_folder(self._folder, self._files)
        self._thread.start()
        try:
            return await self._recover()
        except BaseException:
            self._segments = []  # nothing is marked as stopped
            await self.stop()
            raise

    async def _recover(self) -> Recovered:
        found: Recovered = await self._thread.result(recover, self._folder, self._files, self.node, self._settings.sync)
        self._identity = found.identity
        self._set_log_id(found.identity.log_id)
        self._segments = found.segments
        self._holds = found.holds
        self._damaged = list(found.damaged)
        self.appender.time_ns = found.segments[-1].last_time_ns if found.segments else 0
        if found.is_open:
            await self._thread.result(self._active.open, found.segments[-1])
        else:
            if found.segments and found.segments[-1].first_offset == found.next_offset:
                found.segments.pop()  # it is empty, and is begun anew
            size = await self._thread.result(self._active.begin, self.log_id, found.next_offset)
            self._add_segment(found.next_offset, size)
        await self._thread.result(save_identity, self._folder, self._files, self._identity_now())
        await self._save_holds()
        self._retain()
        return found

    async def stop(self) -> None:
        """Write what waits, and mark the log as stopped gracefully. Does nothing a second time."""
        if self._lock < 0:
            return
        if self._retention_timer is not None:
            self._retention_timer.cancel()
        if self._segments:
            try:
                self.writer.ends = True
                if not self.writer.stopped:
                    await self.writer.flush()
                newest = self._segments[-1]
                await self._thread.result(self._active.seal, newest)
                stopped = clean_identity(self._identity_now(), newest.end_offset)
                await self._thread.result(save_identity, self._folder, self._files, stopped)
            except OSError as error:
                self._log.error("the event log was not stopped cleanly", error=str(error))
        self.writer.close()
        self._readers.shutdown(wait=False, cancel_futures=True)
        lock, self._lock = self._lock, -1
        await self._thread.stop(self._close, lock)

    def _close(self, lock: int) -> None:
        """In the writer's thread, as its last work: a disk that hangs does not hold up the loop."""
        self._active.close()
        os.close(lock)

    def _set_log_id(self, log_id: str) -> None:
        self.log_id = self.writer.log_id = log_id

    def _identity_now(self) -> LogIdentity:
        self._identity = replace(
            self._identity,
            log_id=self.log_id,
            last_segment=self._segments[-1].first_offset,
            gaps=gaps_between(self._segments),
        )
        return self._identity

    async def _save_holds(self) -> None:
        """Raises NotWritten."""
        content = encode_holds(self.log_id, self._holds, self._holds_released)
        try:
            await self._thread.result(self._files.replace, self._folder / HOLDS_FILE, content)
        except OSError as error:
            raise NotWritten(f"the holds of node {self.node} cannot be written: {error.strerror}") from error

    # --- appends ---

    def append(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        client_id: str = "",
        user_name: str = "",
        origin: str = "",
        expiry: int = NO_EXPIRY,
        properties: bytes = b"",
    ) -> None:
        """Append one record. It gets its offset, and can be read, when it is written: `flush` waits for that.

        expiry      Message Expiry Interval in seconds
        properties  the encoded MQTT 5 properties that a server forwards, without their length
        """
        extra = encode_extra(expiry, properties) if properties or expiry != NO_EXPIRY else b""
        flags = qos | (RETAIN_FLAG if retain else 0)
        self.appender.set_time(self.wall_ns())
        self.appender.append(topic, payload, flags, (client_id, user_name, origin), extra)

    async def flush(self) -> int:
        """Wait until everything that was appended can be read. Returns next_offset. Raises NotWritten."""
        if self.appender.is_stopped:
            raise NotWritten(f"node {self.node} logs nothing at present: {self.writer.stopped}")
        try:
            await self.writer.flush()
        except OSError as error:
            raise NotWritten(f"node {self.node} cannot log: {error.strerror or error}") from error
        return self.next_offset

    def attach(self, tap: LogTap) -> None:
        """Acknowledgements and publishers wait in this tap, which appends to `appender`."""
        self.writer.tap = tap

    def _wrote(self, written: list[Written]) -> None:
        for item in written:
            if item.new_segment:
                self._begun(item.new_segment)
            self._segments[-1].add(item.header)

    def _begun(self, header_size: int) -> None:
        """The writer has begun a segment behind the last record. The one before is complete."""
        before = self._segments[-1]
        if before.first_offset == before.end_offset:  # it was empty, and its file was replaced
            self._segments.pop()
        else:
            self._thread.submit(self._active.seal, (before,), self._done)
        self._add_segment(before.end_offset, header_size)
        cached = 0
        for segment in reversed(self._segments):
            cached += segment.size
            if cached > CACHED_BYTES:
                self._thread.submit(self._active.uncache, (segment,), self._done)
                break
        self._thread.submit(save_identity, (self._folder, self._files, self._identity_now()), self._done)

    def _add_segment(self, first_offset: int, header_size: int) -> None:
        time_ns = self._segments[-1].last_time_ns if self._segments else self.appender.time_ns
        self._segments.append(Segment(first_offset, first_offset, time_ns, time_ns, header_size))

    def _done(self, result: object) -> None:
        """The end of work without which the next start only takes longer."""
        if isinstance(result, Exception):
            self._log.warning("a file of the event log could not be written", error=str(result))

    # --- retention ---

    def _retain(self) -> None:
        """Remove what is past the retention; begin a new segment when all of the newest one is."""
        self._retention_timer = self._loop.call_later(RETENTION_SECONDS, self._retain)
        now_ns = self.wall_ns()
        if newest_is_over(self._segments, now_ns, self._retention) and not self.writer.stopped:
            self._thread.submit(self._active.begin_next, (self.log_id,), self._next_begun)
        count = segments_to_remove(self._segments, now_ns, self._retention, self._hold_limits, self._holds.lowest())
        if not count:
            return
        removed, self._segments = self._segments[:count], self._segments[count:]
        released = self._holds.remove_below(self.first_offset)
        for hold in released:
            self._log.warning(
                "a hold is past its limits and was released", group=hold.group, query=hold.query, offset=hold.offset
            )
        self._holds_released += len(released)
        self._thread.submit(self._active.remove, (removed,), self._done)
        if released:
            content = encode_holds(self.log_id, self._holds, self._holds_released)
            self._thread.submit(self._files.replace, (self._folder / HOLDS_FILE, content), self._done)

    def _next_begun(self, result: int | Exception) -> None:
        if isinstance(result, Exception):
            self._done(result)
        elif result:
            self._begun(result)

    # --- for readers ---

    @property
    def first_offset(self) -> int:
        return self._segments[0].first_offset

    @property
    def next_offset(self) -> int:
        return self._segments[-1].end_offset

    def describe(self) -> LogState:
        segments = self._segments
        first, last = segments[0], segments[-1]
        is_empty = first.first_offset == last.end_offset
        return LogState(
            node=self.node,
            log_id=self.log_id,
            first_offset=first.first_offset,
            next_offset=last.end_offset,
            first_time_ns=0 if is_empty else first.first_time_ns,
            last_time_ns=0 if is_empty else last.last_time_ns,
            bytes=sum(segment.size for segment in segments),
            segments=len(segments),
            stopped=self.writer.stopped,
            holds=tuple(self._holds.all()),
            damaged=tuple(self._damaged),
            holds_released=self._holds_released,
            records_lost=self.appender.lost,
        )

    async def read(
        self, log_id: str, start: int, end: int, max_bytes: int, filters: Sequence[bytes]
    ) -> tuple[bytes, int]:
        """Whole blocks with records of start..end - 1, in order, and the offset to go on at.

        max_bytes  blocks are added while they fit; one is given whatever its size. 0 stands for ANSWER_BYTES_DEFAULT
        filters    topic filters: blocks without a topic that matches one are left out; none for all blocks
        The answer may be empty and yet move on. Raises LogFault.
        """
        self._check_log_id(log_id)
        first, last = self.first_offset, self.next_offset
        if not first <= start <= end <= last:
            raise OutOfRange(
                f"offsets {start} to {end} are not in the log of node {self.node}, which has {first} to {last}"
            )
        if start == end:
            return b"", start
        room = min(max_bytes or ANSWER_BYTES_DEFAULT, ANSWER_BYTES_MAX)
        topics = Selection(filters) if filters else None
        segment = self._segment_of(start)
        blocks, next_offset = await self._in_reader(segment, read_blocks, start, end, room, topics)
        return blocks, next_offset

    async def find(self, log_id: str, time_ns: int) -> int:
        """Offset of the first record of this Unix time or later; next_offset when there is none. Raises LogFault."""
        self._check_log_id(log_id)
        next_offset = self.next_offset
        for segment in self._segments:
            if segment.end_offset > segment.first_offset and segment.last_time_ns >= time_ns:
                return int(await self._in_reader(segment, find_offset, time_ns))
        return next_offset

    async def _in_reader(self, segment: Segment, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run work(path, segment, size, *arguments) in a thread of the readers. Raises LogFault."""
        path = self._folder / segment_name(segment.first_offset)
        log_id = self.log_id
        try:
            return await self._loop.run_in_executor(self._readers, work, path, segment, segment.size, *arguments)
        except FileNotFoundError:
            raise OutOfRange(f"offset {segment.first_offset} is not in the log of node {self.node} any more") from None
        except DamagedBlock as fault:
            if log_id == self.log_id and any(other is segment for other in self._segments):
                try:
                    await self._set_aside(segment, str(fault))
                except OSError as error:
                    raise LogFault(
                        f"segment {path.name} of node {self.node} is damaged ({fault}) and cannot be set aside: {error}"
                    ) from error
            raise WrongLogId(
                f"segment {path.name} of node {self.node} is damaged ({fault}) and was set aside; "
                f"the log has the id {self.log_id} from now on"
            ) from fault
        except OSError as error:
            raise LogFault(f"segment {path.name} of node {self.node} cannot be read: {error.strerror}") from error

    async def _set_aside(self, segment: Segment, fault: str) -> None:
        """Take a damaged segment out of the log. What it had is lost for readers: the log gets another id."""
        self._log.error("a damaged segment was set aside", segment=segment.first_offset, fault=fault)
        self._set_log_id(str(uuid4()))
        self._holds = Holds()
        if segment is self._segments[-1]:
            self._thread.submit(self._active.begin_next, (self.log_id,), self._next_begun)
        # First the id: a crash must not leave the former one beside fewer records.
        await self._thread.result(save_identity, self._folder, self._files, self._identity_now())
        if all(other is not segment for other in self._segments):  # the retention has removed it
            return
        if segment is self._segments[-1]:
            raise LogFault(f"node {self.node} cannot begin another segment, so the damaged one stays: see its log")
        self._segments = [other for other in self._segments if other is not segment]
        self._damaged.append(
            await self._thread.result(set_aside, self._folder, self._files, segment.first_offset, fault)
        )
        await self._thread.result(save_identity, self._folder, self._files, self._identity_now())
        await self._save_holds()

    def _segment_of(self, offset: int) -> Segment:
        """The segment with this record, or the next one where records are missing."""
        segments = self._segments
        at = bisect_right(segments, offset, key=lambda segment: segment.first_offset) - 1
        return segments[at] if offset < segments[at].end_offset else segments[at + 1]

    def _check_log_id(self, log_id: str) -> None:
        if log_id != self.log_id:
            raise WrongLogId(
                f"the log of node {self.node} has the id {self.log_id}, not {log_id}; its offsets are others"
            )

    # --- holds ---

    async def hold(self, group: str, query: str, log_id: str, offset: int) -> None:
        """Keep the records from `offset` on for a query of a group, up to the settings `hold`. A hold moves forward only.
        It is on disk afterwards. Raises LogFault."""
        self._check_log_id(log_id)
        for what, name in (("group", group), ("query", query)):
            if not name or len(name.encode()) > NAME_BYTES_MAX:
                raise LogFault(f"{what} is a name of 1 to {NAME_BYTES_MAX} bytes")
        if not self.first_offset <= offset <= self.next_offset:
            raise OutOfRange(
                f"offset {offset} is not in the log of node {self.node}, which has {self.first_offset} to {self.next_offset}"
            )
        if not self._holds.has_room(group, query):
            raise LogFault(f"there are {HOLDS_MAX} holds; release those of queries that have ended")
        self._holds.put(group, query, offset, self.wall_ns())
        await self._save_holds()

    async def release(self, group: str, query: str) -> int:
        """Remove the hold of a query, or with "" of all queries of the group. Returns the number of holds."""
        count = self._holds.remove(group, query)
        if count:
            await self._save_holds()
        return count
