"""Reads logs for the subscriptions of `$stream/`: a bounded number at once, into bounded memory."""

# not a core: waits for logs
from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from broker.event_log.faults import LogFault
from broker.event_log.selection import Selection
from broker.event_log.stream.feed import AT_END, AWAY, READY, LogFeed, Strand, StrandReader
from broker.event_log.stream.own_log import OwnLog
from broker.event_log.stream.parsed import last_records
from broker.event_log.stream.place import LogPlace
from broker.server.logging import get_logger

READS_AT_ONCE: Final = 4  # the others wait in their order
READ_AHEAD_BYTES: Final = 32 * 2**20
"""Of blocks that were read and that clients have not taken yet. At the bound the oldest are forgotten, and read again when
their client takes messages again."""
LAST_TOPICS_MAX: Final = (
    65_536  # of `last`; at the bound those whose last record is the oldest are left out and counted
)
RETRY_SECONDS: Final = 2.0  # between two attempts to read a log that cannot be read


class StreamReads(StrandReader):
    """log        of this node
    feeds      that are open
    topics_left_out  of `last`, for want of room
    read_ahead_bytes  of blocks that clients have not taken yet
    """

    def __init__(
        self, log: OwnLog, wall_ns: Callable[[], int], now: Callable[[], float], flush_soon: Callable[[], None]
    ) -> None:
        super().__init__()
        self.log = log
        self.feeds: set[LogFeed] = set()
        self.topics_left_out = 0
        self.followed: Callable[[bool], None] = lambda is_followed: None
        self._wall_ns = wall_ns
        self._now = now
        self._flush_soon = flush_soon
        self._loop = asyncio.get_running_loop()
        self._log = get_logger("event_log")
        self._turns = asyncio.Semaphore(READS_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._at_end: dict[Strand, None] = {}
        self._following: dict[Strand, None] = {}
        self._read_ahead: OrderedDict[Strand, int] = OrderedDict()
        self.read_ahead_bytes = 0

    # --- from feeds ---

    def want(self, strand: Strand) -> None:
        self._forget(strand)
        task = self._loop.create_task(self._serve(strand))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def closed(self, feed: LogFeed) -> None:
        self.feeds.discard(feed)
        for strand in feed.strands:
            self._forget(strand)
            self._at_end.pop(strand, None)
            self._follow(strand, False)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    # --- from the log ---

    def _has_grown(self, _: asyncio.Future[None]) -> None:
        """There are new records."""
        waiting, self._at_end = self._at_end, {}
        for strand in waiting:
            self._wake(strand)

    def _wake(self, strand: Strand) -> None:
        strand.state = READY
        self._changed(strand)

    def _changed(self, strand: Strand) -> None:
        """The strand has something, or does not hold up the others any more."""
        if not strand.feed.is_closed:
            strand.feed.reader.wake(self._now())
            self._flush_soon()

    # --- reading ---

    async def _serve(self, strand: Strand) -> None:
        try:
            async with self._turns:
                if not strand.feed.is_closed:
                    await self._place_and_read(strand)
        except LogFault as fault:
            strand.state = AWAY
            self._log.warning("a subscription to $stream cannot read a log", node=strand.node, reason=str(fault))
            self._loop.call_later(RETRY_SECONDS, self._wake, strand)
        self._changed(strand)

    async def _place_and_read(self, strand: Strand) -> None:
        """Raises LogFault."""
        if not strand.log_id:
            await self._place(strand)
        cursor, log = strand.cursor, self.log
        if cursor.offset < cursor.wanted_before:  # on to the next record that is the last of its topic
            at = bisect_left(strand.wanted, cursor.offset)
            cursor.offset = strand.wanted[at] if at < len(strand.wanted) else cursor.wanted_before
        if strand.is_following:
            portion = await log.read_newest(strand.log_id, cursor.offset)
        else:
            portion = await log.read(strand.log_id, cursor.offset, [strand.feed.place.topic_filter])
        if strand.feed.is_closed:
            return
        if portion is None:
            self._follow(strand, True)
            strand.state = AT_END
            if not self._at_end:
                log.when_grown().add_done_callback(self._has_grown)
            self._at_end[strand] = None
            return
        if portion.next_offset < log.next_offset:
            self._follow(strand, False)
        strand.load(portion, self._wall_ns() / 1e9 - self._now())
        self._keep(strand, portion.size)

    def _follow(self, strand: Strand, is_following: bool) -> None:
        strand.is_following = is_following
        if is_following:
            self._following[strand] = None
        else:
            self._following.pop(strand, None)
        self.followed(bool(self._following))

    async def _place(self, strand: Strand) -> None:
        """Raises LogFault."""
        feed = strand.feed
        known = feed.place.logs.get(strand.node)
        place = await self.log.locate(known, feed.place.since_ns)
        last: dict[bytes, int] = {}
        if feed.place.is_last:
            if known is None:
                place.barrier = self.log.next_offset
            last = await self._last(strand, place)
        strand.place_at(place.log_id, place.offset, place.barrier, last)

    async def _last(self, strand: Strand, place: LogPlace) -> dict[bytes, int]:
        """By topic, the offset of its last record before the barrier. Raises LogFault."""
        topic_filter = strand.feed.place.topic_filter
        topics = Selection([topic_filter])
        found: dict[bytes, tuple[int, int]] = {}
        at = 0
        while at < place.barrier and not strand.feed.is_closed:
            portion = await self.log.read(place.log_id, at, [topic_filter])
            if portion is None:
                break
            await asyncio.to_thread(last_records, portion, topics, found)
            at = portion.next_offset
            if len(found) > 2 * LAST_TOPICS_MAX:
                found = self._newest(found)
        return {topic: offset for topic, (_, offset) in self._newest(found).items() if offset < place.barrier}

    def _newest(self, found: dict[bytes, tuple[int, int]]) -> dict[bytes, tuple[int, int]]:
        if len(found) <= LAST_TOPICS_MAX:
            return found
        self.topics_left_out += len(found) - LAST_TOPICS_MAX
        kept = sorted(found.items(), key=lambda item: item[1], reverse=True)
        return dict(kept[:LAST_TOPICS_MAX])

    # --- memory ---

    def _keep(self, strand: Strand, size: int) -> None:
        self._read_ahead[strand] = size
        self.read_ahead_bytes += size
        while self.read_ahead_bytes > READ_AHEAD_BYTES and len(self._read_ahead) > 1:
            oldest, oldest_size = self._read_ahead.popitem(last=False)
            self.read_ahead_bytes -= oldest_size
            oldest.unload()

    def _forget(self, strand: Strand) -> None:
        self.read_ahead_bytes -= self._read_ahead.pop(strand, 0)
