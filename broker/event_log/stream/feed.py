"""The messages of one subscription from the logs of several nodes.

Each log is a strand. Of the records that are at hand the one with the earliest time comes next, once every log that is being
read has its next one: so history comes in the order of time, and each log in its own order. A strand at the end of its log,
and one whose node is away, holds up nobody.
"""

# compiled with mypyc
from __future__ import annotations

from enum import Enum
from typing import Final

from mypy_extensions import mypyc_attr

from broker.event_log.stream.parsed import Cursor, Portion
from broker.event_log.stream.place import LogPlace, Place
from broker.feeds import Feed, FeedReader
from broker.message import Publication

EXPIRED_AT_ONCE: Final = 100  # messages that have expired which one call of `next` goes over


class State(Enum):
    """state     means                                            leaves to
    READY     the cursor has records, or is to get some         READING
    READING   its begin is looked for, or the log is read       READY, AT_END, AWAY
    AT_END    all was read; the log tells when it has more      READY
    AWAY      the log cannot be read; it is tried again later   READY
    """

    READY = "ready"
    READING = "reading"
    AT_END = "at end"
    AWAY = "away"


READY: Final = State.READY
READING: Final = State.READING
AT_END: Final = State.AT_END
AWAY: Final = State.AWAY


class Strand:
    """The part of a feed that comes from one log.

    node    whose log it is
    log_id  of the log, "" before it is known where to begin
    lasts   of `last`: by topic, (time in ns, offset) of its last record, until all logs were searched; None before the search
    wanted  of `last`: the offsets that are the last of their topic, in order
    is_following  all was read that the log had; what comes is read for all subscriptions at once
    """

    def __init__(self, feed: LogFeed, node: str, cursor: Cursor) -> None:
        self.feed = feed
        self.node = node
        self.log_id = ""
        self.cursor = cursor
        self.state = READY
        self._is_closed = False
        self.is_following = False
        self.lasts: dict[bytes, tuple[int, int]] | None = None
        self.wanted: list[int] = []
        self._found: LogPlace | None = None
        self._given = -1  # offset of the message that was handed out and not taken yet

    def place_at(self, log_id: str, offset: int, barrier: int, last: dict[bytes, int]) -> None:
        """The strand begins with this record, and is being read. `barrier` as in LogPlace. `last`: by topic, the offset of its
        last record."""
        self.log_id = log_id
        self.cursor.offset = offset
        self.cursor.wanted_before = barrier
        self.cursor.last = last
        self.wanted = sorted(last.values())

    def searched(self, place: LogPlace, lasts: dict[bytes, tuple[int, int]]) -> None:
        """The log was searched for the last records of topics before the barrier of the place."""
        self.lasts = lasts
        self._found = place

    def place_among(self, newest: dict[bytes, Strand]) -> bool:
        """Begin with those last records that no other log has a newer one of. False for a strand that was not searched, or has
        begun."""
        place, lasts = self._found, self.lasts
        if place is None or lasts is None:
            return False
        self._found = None
        last = {topic: offset for topic, (_, offset) in lasts.items() if newest[topic] is self}
        self.place_at(place.log_id, place.offset, place.barrier, last)
        return True

    def topics_held(self) -> int:
        """Return how many topics of `last` are in memory."""
        return max(len(self.wanted), 0 if self.lasts is None else len(self.lasts))

    def forget_last(self) -> None:
        """The strand is behind the barrier: free the memory of what comes before it."""
        self.cursor.last = {}
        self.wanted = []

    def load(self, portion: Portion, wall_offset: float) -> None:
        """The log was read. `wall_offset` as in Cursor.load."""
        self.cursor.load(portion.blocks, portion.next_offset, wall_offset)
        self.state = READY

    def is_closed(self) -> bool:
        """Return whether its feed has ended, or its node is forgotten."""
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True
        self.unload()

    def unload(self) -> None:
        """Forget what was read, to free its memory."""
        self.cursor.unload()

    def place(self) -> LogPlace:
        """Return where the strand goes on."""
        offset = self.cursor.offset
        if self._given >= 0:
            offset = self._given
        elif self.cursor.found:
            offset = self.cursor.found_offset
        return LogPlace(self.log_id, offset, self.cursor.wanted_before)

    def take(self, now: float) -> Publication | None:
        """As Cursor.take."""
        message = self.cursor.take(now)
        if message is not None:
            self._given = self.cursor.found_offset
        return message

    def taken(self) -> None:
        self._given = -1


@mypyc_attr(allow_interpreted_subclasses=True)
class StrandReader:
    """Reads logs for strands."""

    def want(self, strand: Strand) -> None:
        """The strand has no records, or no log id yet: have it read on, or placed. `LogFeed.reader.wake` is called when it has
        got something, or is READY, AT_END or AWAY."""
        raise AssertionError("a subclass implements this")

    def closed(self, feed: LogFeed) -> None:
        """The feed reads no more."""
        raise AssertionError("a subclass implements this")


class LogFeed(Feed):
    """reader  of the subscription
    place     where it began, with the places of logs that are not known here
    is_closed the subscription has ended, or its client has gone
    """

    def __init__(self, reader: FeedReader, place: Place, strand_reader: StrandReader) -> None:
        super().__init__()
        self.reader = reader
        self.place = place
        self.is_closed = False
        self.strands: list[Strand] = []
        self._strand_reader = strand_reader
        self._given: Strand | None = None

    def add_strand(self, node: str) -> Strand:
        """The log of another node is read, too."""
        strand = Strand(self, node, Cursor(self.place.topic_filter, self.reader, node))
        self.strands.append(strand)
        return strand

    def remove_strand(self, node: str) -> Strand | None:
        """The log of a node is not read any more. Its place stays, for a node of this name that comes again."""
        for strand in self.strands:
            if strand.node == node:
                if strand.log_id:
                    self.place.logs[node] = strand.place()
                self.strands.remove(strand)
                strand.close()
                return strand
        return None

    def combine(self) -> list[Strand]:
        """Of `last`: place the strands, once each log was searched, or cannot be read. Returns those that begin now."""
        is_whole = True
        newest: dict[bytes, Strand] = {}
        times: dict[bytes, int] = {}
        for strand in self.strands:
            if strand.lasts is None:
                if strand.state is not AWAY:
                    return []
                is_whole = False
                continue
            for topic, (time_ns, _) in strand.lasts.items():
                if time_ns >= times.get(topic, -1):
                    times[topic] = time_ns
                    newest[topic] = strand
        placed = [strand for strand in self.strands if strand.place_among(newest)]
        if is_whole:
            for strand in self.strands:
                strand.lasts = {}
        return placed

    def next(self, now: float) -> Publication | None:
        self.steps = 0
        self.is_resting = False
        for _ in range(EXPIRED_AT_ONCE):
            best = self._best()
            if best is None:
                return None
            message = best.take(now)
            if message is not None:
                self._given = best
                return message
        self.is_resting = True
        return None

    def _best(self) -> Strand | None:
        """The strand whose record comes next; None for none now."""
        best: Strand | None = None
        waits = False
        for strand in self.strands:
            cursor = strand.cursor
            has_record = cursor.find()
            self.steps += cursor.steps
            if has_record:
                if best is None or cursor.time_ns < best.cursor.time_ns:
                    best = strand
            elif cursor.is_resting:
                self.is_resting = True
            elif strand.state is READY:
                strand.state = READING
                self._strand_reader.want(strand)
                waits = True
            elif strand.state is READING:
                waits = True
        return None if waits or self.is_resting else best

    def taken(self) -> None:
        given = self._given
        if given is not None:
            self._given = None
            given.taken()
            if given.is_closed():
                self.place.logs[given.node] = given.place()

    def position(self) -> bytes:
        place = self.place
        logs = dict(place.logs)
        for strand in self.strands:
            if strand.log_id:
                logs[strand.node] = strand.place()
        return Place(place.topic_filter, place.text, place.since_ns, place.is_last, logs, place.begun_ns).encode()

    def close(self) -> None:
        self.is_closed = True
        for strand in self.strands:
            strand.close()
        self._strand_reader.closed(self)
