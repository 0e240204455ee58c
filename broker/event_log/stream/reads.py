"""Reads logs for the subscriptions of `$stream/`: a bounded number at once, into bounded memory."""

# not a core: waits for logs
from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from broker.event_log.faults import LogFault
from broker.event_log.selection import Selection
from broker.event_log.stream.client_turns import ClientTurns
from broker.event_log.stream.feed import AT_END, AWAY, READING, READY, LogFeed, Strand, StrandReader
from broker.event_log.stream.parsed import last_records, newest_topics
from broker.event_log.stream.place import LogPlace
from broker.event_log.stream.stream_log import StreamLog
from broker.server.logging import get_logger

READS_AT_ONCE: Final = 4  # of each log; of the others each client has one in its turn
SEARCHES_AT_ONCE: Final = 1  # of each log for `last`, likewise: a search takes as long as to read the log
READ_AHEAD_BYTES: Final = 32 * 2**20
"""Of blocks that were read and that clients have not taken yet. At the bound the oldest are forgotten, and read again when
their client takes messages again."""
LAST_TOPICS_MAX: Final = 65_536
"""Of `last`, for each log; at the bound those whose last record is the oldest are left out and counted."""
LAST_TOPICS_ALL_MAX: Final = 8 * LAST_TOPICS_MAX
"""Of all subscriptions together, until each has got its last records. One more gets at most the half of what is left."""
WAKES_AT_ONCE: Final = 100  # strands that one turn of the loop wakes when a log has grown
WAKE_SECONDS: Final = 5e-5
"""For each strand that waits: so long a log has grown before they are woken, so that many of them leave time for publishers."""
WAKE_SECONDS_MIN: Final = 1e-3  # timers are no finer: fewer are woken at once
WAKE_SECONDS_MAX: Final = 1.0
RETRY_SECONDS: Final = 2.0  # between two attempts to read a log that cannot be read


class LogReads:
    """The reads of one log.

    at_end  strands that wait for new records
    fault   why it could not be read last, as it was told; "" when it could
    missed  number of records that subscriptions came to and the log did not have any more
    """

    def __init__(self, log: StreamLog) -> None:
        self.log = log
        self.turns = ClientTurns(READS_AT_ONCE)
        self.searches = ClientTurns(SEARCHES_AT_ONCE)
        self.at_end: dict[Strand, None] = {}
        self.fault = ""
        self.missed = 0


class StreamReads(StrandReader):
    """feeds      that are open
    topics_left_out  of `last`, for want of room
    read_ahead_bytes  of blocks that clients have not taken yet
    """

    def __init__(self, wall_ns: Callable[[], int], now: Callable[[], float], flush_soon: Callable[[], None]) -> None:
        super().__init__()
        self.feeds: set[LogFeed] = set()
        self.logs: dict[str, LogReads] = {}  # by node
        self.topics_left_out = 0
        self.read_ahead_bytes = 0
        self.followed: Callable[[], None] = lambda: None
        self._wall_ns = wall_ns
        self._now = now
        self._flush_soon = flush_soon
        self._loop = asyncio.get_running_loop()
        self._log = get_logger("event_log")
        self._tasks: set[asyncio.Task[None]] = set()
        self._following: dict[Strand, None] = {}
        self._read_ahead: OrderedDict[Strand, int] = OrderedDict()
        self._missed_before = 0  # in logs of nodes that are forgotten
        self._with_last: dict[Strand, None] = {}

    def add_log(self, log: StreamLog) -> None:
        """Open feeds read this log, too."""
        self.logs[log.node] = LogReads(log)
        for feed in self.feeds:
            strand = feed.add_strand(log.node)
            strand.state = AWAY  # nobody waits for the first read of a node that has just come
            self._begin(strand)

    def remove_log(self, node: str) -> None:
        """The node is forgotten: nobody waits for its log any more."""
        reads = self.logs.pop(node)
        reads.log.stop()
        self._missed_before += reads.missed
        for feed in list(self.feeds):
            strand = feed.remove_strand(node)
            if strand is not None:
                self._end(strand)
                self._combine(feed, None)
                self._changed(feed)

    @property
    def last_topics(self) -> int:
        """Topics of `last` that are held for subscriptions."""
        return sum(strand.topics_held() for strand in self._with_last)

    @property
    def missed(self) -> int:
        """Records that were removed, or damaged, before a subscription came to them."""
        return self._missed_before + sum(reads.missed for reads in self.logs.values())

    def is_following(self, node: str) -> bool:
        """Return whether a feed waits for new records of the node."""
        return any(strand.node == node for strand in self._following)

    # --- from feeds ---

    def open(self, feed: LogFeed) -> None:
        for node in self.logs:
            feed.add_strand(node)
        self.feeds.add(feed)

    def want(self, strand: Strand) -> None:
        self._forget(strand)
        self._begin(strand)

    def _begin(self, strand: Strand) -> None:
        task = self._loop.create_task(self._serve(strand, self.logs[strand.node]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def closed(self, feed: LogFeed) -> None:
        self.feeds.discard(feed)
        for strand in feed.strands:
            self.logs[strand.node].at_end.pop(strand, None)
            self._end(strand)

    def _end(self, strand: Strand) -> None:
        """The strand reads no more."""
        self._forget(strand)
        self._with_last.pop(strand, None)
        self._follow(strand, False)

    def stop(self) -> None:
        for reads in self.logs.values():
            reads.log.stop()
        for task in self._tasks:
            task.cancel()

    # --- from logs ---

    def _has_grown(self, reads: LogReads) -> None:
        """There are new records."""
        seconds = min(len(reads.at_end) * WAKE_SECONDS, WAKE_SECONDS_MAX)
        if seconds < WAKE_SECONDS_MIN:
            self._wake_all(reads)
        else:
            self._loop.call_later(seconds, self._wake_all, reads)

    def _wake_all(self, reads: LogReads) -> None:
        waiting, reads.at_end = deque(reads.at_end), {}
        self._wake(waiting)

    def _wake(self, waiting: deque[Strand]) -> None:
        for _ in range(min(len(waiting), WAKES_AT_ONCE)):
            strand = waiting.popleft()
            strand.state = READY
            self._changed(strand.feed)
        if waiting:
            self._loop.call_soon(self._wake, waiting)

    def _changed(self, feed: LogFeed) -> None:
        """A strand has something, or does not hold up the others any more."""
        if not feed.is_closed:
            feed.reader.wake(self._now())
            self._flush_soon()

    # --- reading ---

    async def _serve(self, strand: Strand, reads: LogReads) -> None:
        try:
            if not strand.log_id and not await self._place(strand, reads):
                return
            await self._read(strand, reads)
            reads.fault = ""
        except LogFault as fault:
            self._away(strand, reads, str(fault))
        except Exception as error:  # the other subscriptions go on
            self._log.error("fault in a subscription to $stream", node=strand.node, exc_info=error)
            self._away(strand, reads, type(error).__name__)
        self._changed(strand.feed)

    def _away(self, strand: Strand, reads: LogReads, fault: str) -> None:
        if not reads.fault:
            self._log.warning("subscriptions to $stream cannot read a log", node=strand.node, reason=fault)
        reads.fault = fault
        if strand.is_closed():
            return
        if strand.log_id:  # it may be another log when it is back
            strand.feed.place.logs[strand.node] = strand.place()
            strand.log_id = ""
        strand.state = AWAY
        self._follow(strand, False)
        strand.lasts = None
        self._combine(strand.feed, strand)
        self._loop.call_later(RETRY_SECONDS, self._try_again, strand)

    def _try_again(self, strand: Strand) -> None:
        if not strand.is_closed() and strand.state is AWAY:
            self._begin(strand)

    async def _read(self, strand: Strand, reads: LogReads) -> None:
        """Raises LogFault."""
        cursor, log = strand.cursor, reads.log
        if cursor.offset >= cursor.wanted_before:
            strand.forget_last()
            if not strand.topics_held():
                self._with_last.pop(strand, None)
        else:  # on to the next record that is the last of its topic
            at = bisect_left(strand.wanted, cursor.offset)
            cursor.offset = strand.wanted[at] if at < len(strand.wanted) else cursor.wanted_before
        start = cursor.offset
        async with reads.turns.turn(strand.feed.reader.client_id):
            if strand.is_closed():
                return
            if strand.is_following:
                portion = await log.read_newest(strand.log_id, cursor.offset)
            else:
                portion = await log.read(strand.log_id, cursor.offset, [strand.feed.place.topic_filter])
        if strand.is_closed():
            return
        if portion is None:
            self._follow(strand, True)
            strand.state = AT_END
            if not reads.at_end:
                log.when_grown(strand.log_id).add_done_callback(lambda _: self._has_grown(reads))
            reads.at_end[strand] = None
            return
        reads.missed += max(0, portion.first_offset - start)
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
        self.followed()

    # --- where strands begin ---

    async def _place(self, strand: Strand, reads: LogReads) -> bool:
        """Find where the strand begins. False where its place waits for those of other logs. Raises LogFault."""
        feed = strand.feed
        log = reads.log
        known = feed.place.logs.get(strand.node)
        client_id = feed.reader.client_id
        async with reads.turns.turn(client_id):
            if strand.is_closed():
                return False
            place = await log.locate(known, feed.place.since_ns)
        if not feed.place.is_last:
            strand.place_at(place.log_id, place.offset, 0, {})
            return True
        if known is None:
            place.barrier = log.next_offset
        elif place.offset >= place.barrier and self._is_behind_last(feed):
            strand.place_at(place.log_id, place.offset, 0, {})
            strand.lasts = {}
            self._combine(feed, strand)
            return True
        async with reads.searches.turn(client_id):
            lasts = await self._last(strand, reads, place)
            if strand.is_closed():
                return False
            strand.searched(place, await self._newest(lasts, min(LAST_TOPICS_MAX, self._last_room())))
            self._with_last[strand] = None
        return self._combine(feed, strand)

    def _is_behind_last(self, feed: LogFeed) -> bool:
        """Return whether all last records have come, so that nobody has to know which of several logs had the last one."""
        places = [feed.place.logs.get(strand.node) for strand in feed.strands]
        return all(place is not None and place.offset >= place.barrier for place in places)

    async def _last(self, strand: Strand, reads: LogReads, place: LogPlace) -> dict[bytes, tuple[int, int]]:
        """By topic, (time in ns, offset) of its last record before the barrier. Raises LogFault."""
        topic_filter = strand.feed.place.topic_filter
        topics = Selection([topic_filter])
        found: dict[bytes, tuple[int, int]] = {}
        at = 0
        while at < place.barrier and not strand.is_closed():
            async with reads.turns.turn(strand.feed.reader.client_id):
                portion = await reads.log.read(place.log_id, at, [topic_filter])
            if portion is None:
                break
            await asyncio.to_thread(last_records, portion, topics, place.barrier, found)
            at = portion.next_offset
            if len(found) > 2 * LAST_TOPICS_MAX:
                found = await self._newest(found, LAST_TOPICS_MAX)
        return found

    def _last_room(self) -> int:
        return max(0, LAST_TOPICS_ALL_MAX - self.last_topics) // 2

    async def _newest(self, found: dict[bytes, tuple[int, int]], topics_max: int) -> dict[bytes, tuple[int, int]]:
        kept = await asyncio.to_thread(newest_topics, found, topics_max)
        self.topics_left_out += len(found) - len(kept)
        return kept

    def _combine(self, feed: LogFeed, strand: Strand | None) -> bool:
        """Have strands of `last` read on, when all logs that can be read were searched. Returns whether this one may."""
        placed = feed.combine()
        for other in placed:
            other.state = READING
            if other is not strand:
                self._begin(other)
        return strand in placed

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
