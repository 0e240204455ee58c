"""Reads the log for its readers, in threads of their own, by turns."""

# not a core: waits for threads, reads files
from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from broker.event_log.appender import BLOCK_BYTES
from broker.event_log.block import HEADER_BYTES, is_whole, read_header
from broker.event_log.contents import LogContents
from broker.event_log.faults import LogFault, OutOfRange
from broker.event_log.files import is_unreadable
from broker.event_log.index import Segment
from broker.event_log.reading import DamagedBlock, Picked, pick_blocks, record_at
from broker.event_log.segment import segment_name
from broker.event_log.selection import Selection
from broker.event_log.turns import Party, ReaderTurns

ANSWER_BYTES_MAX: Final = 4 * 2**20
"""Of one answer. A larger one costs no less a byte; the node has it in memory up to four times while it is made and sent."""
BESIDE_BYTES: Final = 2**17
"""Of a piece of a segment, beside the blocks that are to be taken from it: the index leads to a place before the first one, and
most full blocks are larger than BLOCK_BYTES."""
PIECE_BYTES: Final = BLOCK_BYTES + BESIDE_BYTES  # of a segment that is read at once
YIELD_SECONDS: Final = 5e-5
"""Between some blocks and the next ones of a piece, for the loop: small blocks are picked without giving up the interpreter. A
thread that gives it up for less has it again before another one wakes up."""
SCANNED_BYTES_MAX: Final = 64 * 2**20  # that one read looks at for the blocks of its topics
READS_AT_ONCE: Final = 2
AGAIN_SECONDS: Final = 0.2  # after which bytes are read once more that the disk did not give

Answer = TypeVar("Answer")
Encode = Callable[[list[memoryview], int, int], Answer]  # blocks, first offset, next offset -> an answer


def join_blocks(blocks: list[memoryview], _first_offset: int, _next_offset: int) -> bytes:
    return b"".join(blocks)


class LogReaders:
    """turns  of those who read, and of what is made of what was read"""

    def __init__(
        self,
        contents: LogContents,
        folder: Path,
        turns: ReaderTurns,
        set_aside: Callable[[Segment, str], Awaitable[None]],
    ) -> None:
        """`set_aside` is called with a damaged segment and what is wrong with it. Raises LogFault, OSError."""
        self.turns = turns
        self._contents = contents
        self._folder = folder
        self._set_aside = set_aside
        self._loop = asyncio.get_running_loop()
        self._mending = asyncio.Lock()  # one damaged segment is set aside at a time
        self._threads = ThreadPoolExecutor(READS_AT_ONCE, "event-log-read")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def read(
        self,
        log_id: str,
        start: int,
        end: int,
        max_bytes: int,
        filters: Sequence[bytes],
        party: Party | None = None,
    ) -> tuple[bytes, int]:
        """As `read_as`: the blocks one behind the other."""
        return await self.read_as(log_id, start, end, max_bytes, filters, join_blocks, party)

    async def read_as(
        self,
        log_id: str,
        start: int,
        end: int,
        max_bytes: int,
        filters: Sequence[bytes],
        encode: Encode[Answer],
        party: Party | None = None,
    ) -> tuple[Answer, int]:
        """Whole blocks with records of start..end - 1, in order, and the offset to go on at.

        max_bytes  blocks are added while they fit; one is given whatever its size. 0 stands for ANSWER_BYTES_MAX
        filters    topic filters: blocks without a topic that matches one are left out; none for all blocks
        encode     makes the answer, in a thread
        party      the others for whom the log is not read at the same time; None for nobody
        The answer may have no block and yet move on. Its first offset is above `start` where the log misses the records
        before. Raises LogFault.
        """
        contents = self._contents
        line = asyncio.Lock() if party is None else party.reading
        topics = Selection(filters) if filters else None
        room = min(max_bytes or ANSWER_BYTES_MAX, ANSWER_BYTES_MAX)
        while True:
            contents.check_range(log_id, start, end)
            if start == end:
                return encode([], start, start), start
            segment = contents.segment_of(start)
            first = max(start, segment.first_offset)
            read = SegmentRead(self._path(segment), segment, first, end, room, topics)
            try:
                return await self._read_segment(segment, read, encode, line)
            except DamagedBlock as fault:
                await self._mend(segment, fault)

    async def _read_segment(
        self, segment: Segment, read: SegmentRead, encode: Encode[Answer], line: asyncio.Lock
    ) -> tuple[Answer, int]:
        """As `read`, of one segment; `line` is held during each piece. Raises DamagedBlock, LogFault."""

        def go_on() -> Answer | None:
            return None if read.read_piece() else encode(read.blocks, read.first_offset, read.next_offset)

        while True:
            answer = await self._piece(segment, go_on, line)
            if answer is not None:
                return answer, read.next_offset

    async def find(self, log_id: str, time_ns: int) -> int:
        """Offset of the first record of this Unix time or later; next_offset when there is none. Raises LogFault."""
        offset, _ = await self.find_record(log_id, time_ns)
        return offset

    async def find_record(self, log_id: str, time_ns: int, party: Party | None = None) -> tuple[int, int]:
        """As `find`, with the time of the record in ns, 0 for none. `party` as in `read_as`."""
        line = asyncio.Lock() if party is None else party.reading
        while True:
            self._contents.check_log_id(log_id)
            segment = self._contents.segment_at(time_ns)
            if segment is None:
                return self._contents.next_offset, 0
            work = partial(find_record, self._path(segment), segment, segment.size, time_ns)
            try:
                return await self._piece(segment, work, line)
            except DamagedBlock as fault:
                await self._mend(segment, fault)

    async def _piece(self, segment: Segment, work: Callable[[], Answer], line: asyncio.Lock) -> Answer:
        """Do a piece of the reading of a segment, in a thread and in its turn; `line` is held meanwhile. Raises DamagedBlock,
        LogFault."""

        def timed() -> tuple[Answer, float]:
            began_at = time.perf_counter()
            return work(), time.perf_counter() - began_at

        async with line:
            await self.turns.come()
            answer, seconds = await self._in_thread(segment, timed)
            self.turns.worked(seconds)
        return answer

    def _path(self, segment: Segment) -> Path:
        return self._folder / segment_name(segment.first_offset)

    async def _in_thread(self, segment: Segment, work: Callable[[], Answer]) -> Answer:
        """Run work(), which reads the segment, in a thread of the readers. Raises DamagedBlock, LogFault."""
        try:
            try:
                return await self._loop.run_in_executor(self._threads, work)
            except OSError as error:
                if not is_unreadable(error):
                    raise
                await asyncio.sleep(AGAIN_SECONDS)
                return await self._loop.run_in_executor(self._threads, work)
        except FileNotFoundError:
            if self._contents.has(segment):
                raise DamagedBlock("its file is missing") from None
            text = f"offset {segment.first_offset} is not in the log of node {self._contents.node} any more"
            raise OutOfRange(text) from None
        except OSError as error:
            if is_unreadable(error):
                raise DamagedBlock(f"it cannot be read: {error.strerror}") from error
            name = segment_name(segment.first_offset)
            raise LogFault(f"segment {name} of node {self._contents.node} cannot be read: {error.strerror}") from error

    async def _mend(self, segment: Segment, fault: DamagedBlock) -> None:
        """Set a damaged segment aside, unless it is not in the log any more. Raises LogFault."""
        async with self._mending:
            if not self._contents.has(segment):
                return
            try:
                await self._set_aside(segment, str(fault))
            except OSError as error:
                name = segment_name(segment.first_offset)
                raise LogFault(
                    f"segment {name} of node {self._contents.node} is damaged ({fault}) and cannot be set aside: {error}"
                ) from error


# --- in a thread: only bytes that were written before the call ---


class SegmentRead:
    """The blocks of records start..end - 1 that fit in `room`, at least one; piece by piece.

    blocks       what was found so far; neighbours may be one
    first_offset where it begins
    next_offset  to go on at
    """

    def __init__(self, path: Path, segment: Segment, start: int, end: int, room: int, topics: Selection | None) -> None:
        """Reads what the segment has now."""
        self.blocks: list[memoryview] = []
        self.first_offset = self.next_offset = start
        self._path = path
        self._end = end
        self._room = room
        self._topics = topics
        self._position = segment.position_of(start)
        self._size = segment.size
        self._stops_at = min(segment.size, self._position + SCANNED_BYTES_MAX)
        self._wanted = 0  # bytes of the next block, when the last piece did not have all of it

    def read_piece(self) -> bool:
        """Read on. Returns whether there is more to read. Raises DamagedBlock, OSError."""
        if self._position >= self._stops_at:  # a segment without a record, behind missing ones
            return False
        left = self._size - self._position
        with self._path.open("rb", buffering=0) as file:
            size = min(PIECE_BYTES, self._room + BESIDE_BYTES)
            piece = os.pread(file.fileno(), min(max(size, self._wanted + HEADER_BYTES), left), self._position)
        picked = Picked(self.next_offset)
        while pick_blocks(picked, piece, self._end, self._room, not self.blocks, self._topics):
            time.sleep(YIELD_SECONDS)
        if not picked.used and not picked.done and (picked.wanted > left or picked.wanted <= len(piece)):
            raise DamagedBlock(f"the block at {self._position} is not complete")
        view = memoryview(piece)
        for at, to in picked.parts:
            # A view keeps all of the piece.
            is_most = 2 * (to - at) > len(piece)
            self.blocks.append(view[at:to] if is_most else memoryview(piece[at:to]))
        self._room -= picked.size
        self._position += picked.used
        self._wanted = picked.wanted
        self.next_offset = max(self.next_offset, picked.next_offset)
        return not picked.done and self._position < self._stops_at


def find_record(path: Path, segment: Segment, size: int, time_ns: int) -> tuple[int, int]:
    """(offset, time in ns) of the first record of this time or later; the segment's end offset and 0 for none. Raises
    DamagedBlock, OSError."""
    position = segment.position_at(time_ns)
    with path.open("rb", buffering=0) as file:
        while position < size:
            header = read_header(os.pread(file.fileno(), HEADER_BYTES, position))
            if header is None:
                raise DamagedBlock(f"no block begins at {position}")
            block = os.pread(file.fileno(), header.size, position)
            if not is_whole(block, 0, header):
                raise DamagedBlock(f"the block at {position} does not have its checksum")
            if header.last_time_ns >= time_ns:
                return record_at(block, 0, header, time_ns)
            position += header.size
    return segment.end_offset, 0
