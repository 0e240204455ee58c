"""The event log of this node: appends, and the interface for readers.

Records get their offsets when the writer takes them. Readers see what the writer has finished: `next_offset`. With sync
`commit` and `interval` that is on disk.
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

from broker.event_log.active import ActiveSegment, Failure, Written
from broker.event_log.appender import Appender
from broker.event_log.block import HEADER_BYTES, NO_EXPIRY, RETAIN_FLAG, encode_extra, is_whole, read_header
from broker.event_log.files import Files
from broker.event_log.holds import HOLDS_MAX, NAME_BYTES_MAX, Hold, Holds, encode_holds
from broker.event_log.identity import LogIdentity, gaps_between
from broker.event_log.index import Segment
from broker.event_log.reading import DamagedBlock, offset_at, pick_blocks
from broker.event_log.recovery import (
    HOLDS_FILE,
    Damaged,
    Recovered,
    clean_identity,
    lock_folder,
    recover,
    save_identity,
)
from broker.event_log.segment import segment_name
from broker.event_log.selection import Selection
from broker.event_log.settings import EventLogSettings
from broker.event_log.writer import Writer

ANSWER_BYTES_DEFAULT: Final = 4 * 2**20
ANSWER_BYTES_MAX: Final = 16 * 2**20
PIECE_BYTES: Final = 2**20  # of a segment that is read at once
READS_AT_ONCE: Final = 2
SCANNED_BYTES_MAX: Final = 64 * 2**20  # that one read looks at for the blocks of its topics


class LogFault(Exception):
    """What a caller asked for cannot be done. The text names what is wrong and what would be right."""


class WrongLogId(LogFault):
    """The log has another id."""


class OutOfRange(LogFault):
    """The offset is not in first_offset..next_offset."""


@dataclass(frozen=True, slots=True)
class LogState:
    """first_offset  of the first record that is kept
    next_offset   of the next record that will be served; equal to first_offset for an empty log
    first_time_ns, last_time_ns  Unix ns of the first and the last record that is served; 0 for an empty log
    bytes         of all segments
    stopped       why records are not written now; "" while they are
    damaged       segments that were set aside since the start
    holds_released  by the retention, since the start
    records_lost  that were to be logged while the log was stopped, since the start
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
    appender      records that wait for the writer; `tap.LogTap` appends there too
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
        self._folder = Path(settings.dir)
        self._files = Files() if files is None else files
        self._loop = asyncio.get_running_loop()
        self._active = ActiveSegment(self._folder, self._files, node, settings.segment_bytes, settings.sync != "none")
        self._readers = ThreadPoolExecutor(READS_AT_ONCE, "event-log-read")
        self._identity = LogIdentity("", node, settings.sync, "")
        self._segments: list[Segment] = []
        self._holds = Holds()
        self._holds_released = 0
        self._damaged: list[Damaged] = []
        self._waiting: list[asyncio.Future[None]] = []  # for records in the appender
        self._writing: list[asyncio.Future[None]] = []  # for records that the writer has
        self._is_writing = False
        self._lock = -1

    # --- start and stop ---

    async def start(self) -> Recovered:
        """Lock the folder, check the segments, go on behind the last record. Raises OSError, FolderInUse."""
        self._lock = lock_folder(self._folder)
        self._writer = Writer(self._loop)
        found: Recovered = await self._in_writer(recover, self._folder, self._files, self.node, self._settings.sync)
        self.log_id = found.identity.log_id
        self._identity = found.identity
        self._segments = found.segments
        self._holds = found.holds
        self._damaged = list(found.damaged)
        time_ns = found.segments[-1].last_time_ns if found.segments else 0
        self.appender = Appender(time_ns)
        if found.is_open:
            await self._in_writer(self._active.open, found.segments[-1])
        else:
            if found.segments and found.segments[-1].first_offset == found.next_offset:
                found.segments.pop()  # an empty segment, which is begun anew
            size = await self._in_writer(self._active.begin, self.log_id, found.next_offset)
            self._segments.append(Segment(found.next_offset, found.next_offset, time_ns, time_ns, size))
        await self._in_writer(self._save_identity, self._identity_now())
        await self._save_holds()
        return found

    async def stop(self) -> None:
        """Write what waits, and mark the log as stopped gracefully. Does nothing a second time."""
        if self._lock < 0:
            return
        if self._segments:
            await self.flush()
            newest = self._segments[-1]
            await self._in_writer(self._active.seal, newest)
            await self._in_writer(self._save_identity, clean_identity(self._identity_now(), newest.end_offset))
        self._readers.shutdown()
        self._writer.stop()
        self._active.close()
        os.close(self._lock)
        self._lock = -1

    async def _in_writer(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run work(*arguments) in the writer's thread, after all that it has to do. Raises what it raises."""
        done: asyncio.Future[Any] = self._loop.create_future()

        def finish(result: Any) -> None:
            if done.cancelled():
                return
            if isinstance(result, Exception):
                done.set_exception(result)
            else:
                done.set_result(result)

        self._writer.submit(work, arguments, finish)
        return await done

    def _identity_now(self) -> LogIdentity:
        self._identity = replace(
            self._identity,
            log_id=self.log_id,
            last_segment=self._segments[-1].first_offset,
            gaps=gaps_between(self._segments),
        )
        return self._identity

    def _save_identity(self, identity: LogIdentity) -> None:
        save_identity(self._folder, self._files, identity)

    async def _save_holds(self) -> None:
        content = encode_holds(self.log_id, self._holds, self._holds_released)
        await self._in_writer(self._files.replace, self._folder / HOLDS_FILE, content)

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
        self.appender.set_time(self.wall_ns())
        self.appender.append(
            topic, payload, qos | (RETAIN_FLAG if retain else 0), (client_id, user_name, origin), extra
        )

    async def flush(self) -> int:
        """Wait until everything that was appended can be read. Returns next_offset."""
        if self.appender.records:
            done: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(done)
            self.write()
            await done
        elif self._is_writing:
            done = self._loop.create_future()
            self._writing.append(done)
            await done
        return self.next_offset

    def write(self) -> None:
        """Hand the records that wait to the writer, unless it is busy: then they follow at once when it is done."""
        if self._is_writing or not self.appender.records:
            return
        self._is_writing = True
        self._writing, self._waiting = self._waiting, []
        self._writer.submit(self._active.write, (self.log_id, self.appender.take()), self._written)

    def _written(self, result: tuple[list[Written], Failure | None]) -> None:
        written, _failure = result
        for item in written:
            if item.new_segment:
                self._next_segment(item.header.offset, item.new_segment)
            self._segments[-1].add(item.header)
        self._is_writing = False
        done, self._writing = self._writing, []
        for waiter in done:
            if not waiter.done():
                waiter.set_result(None)
        if self._waiting:
            self.write()

    def _next_segment(self, first_offset: int, header_size: int) -> None:
        """The writer has begun a segment. The one before is complete."""
        before = self._segments[-1]
        time_ns = before.last_time_ns
        self._segments.append(Segment(first_offset, first_offset, time_ns, time_ns, header_size))
        self._writer.submit(self._active.seal, (before,), self._done)
        self._writer.submit(self._save_identity, (self._identity_now(),), self._done)

    def _done(self, result: Any) -> None:
        """The end of work that the log can do without."""

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
            stopped="",
            holds=tuple(self._holds.all()),
            damaged=tuple(self._damaged),
            holds_released=self._holds_released,
            records_lost=0,
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
        try:
            return await self._loop.run_in_executor(
                self._readers, self._read, segment, segment.size, start, end, room, topics
            )
        except FileNotFoundError:
            raise OutOfRange(f"offset {start} is not in the log of node {self.node} any more") from None

    def _read(
        self, segment: Segment, size: int, start: int, end: int, room: int, topics: Selection | None
    ) -> tuple[bytes, int]:
        """In a thread of the readers."""
        position = segment.position_of(start)
        scanned_end = position + SCANNED_BYTES_MAX
        parts: list[bytes] = []
        taken = 0
        wanted = 0
        start = max(start, segment.first_offset)
        with self._path(segment).open("rb", buffering=0) as file:
            while position < min(size, scanned_end):
                piece = os.pread(file.fileno(), min(max(PIECE_BYTES, wanted), size - position), position)
                picked = pick_blocks(piece, start, end, room - taken, not taken, topics)
                parts += [piece[at:to] for at, to in picked.parts]
                taken += picked.size
                position += picked.used
                start = max(start, picked.next_offset)
                if picked.done:
                    break
                if picked.wanted <= len(piece) and not picked.used:
                    raise DamagedBlock(f"the block at {position} is not complete")
                wanted = picked.wanted
        return b"".join(parts), start

    async def find(self, log_id: str, time_ns: int) -> int:
        """Offset of the first record of this Unix time or later; next_offset when there is none."""
        self._check_log_id(log_id)
        next_offset = self.next_offset
        for segment in self._segments:
            if segment.end_offset > segment.first_offset and segment.last_time_ns >= time_ns:
                return await self._loop.run_in_executor(self._readers, self._find, segment, segment.size, time_ns)
        return next_offset

    def _find(self, segment: Segment, size: int, time_ns: int) -> int:
        """In a thread of the readers."""
        position = segment.position_at(time_ns)
        with self._path(segment).open("rb", buffering=0) as file:
            while position < size:
                header = read_header(os.pread(file.fileno(), HEADER_BYTES, position))
                if header is None:
                    raise DamagedBlock(f"no block begins at {position}")
                if header.last_time_ns >= time_ns:
                    block = os.pread(file.fileno(), header.size, position)
                    if not is_whole(block, 0, header):
                        raise DamagedBlock(f"the block at {position} does not have its checksum")
                    return offset_at(block, 0, header, time_ns)
                position += header.size
        return segment.end_offset

    def _segment_of(self, offset: int) -> Segment:
        """The segment with this record, or the next one where records are missing."""
        segments = self._segments
        at = bisect_right(segments, offset, key=lambda segment: segment.first_offset) - 1
        return segments[at] if offset < segments[at].end_offset else segments[at + 1]

    def _path(self, segment: Segment) -> Path:
        return self._folder / segment_name(segment.first_offset)

    def _check_log_id(self, log_id: str) -> None:
        if log_id != self.log_id:
            raise WrongLogId(
                f"the log of node {self.node} has the id {self.log_id}, not {log_id}; its offsets are others"
            )

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
