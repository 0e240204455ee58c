"""Logs of any records as blocks, what a naive reader makes of them, and the reader of one subscription."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from broker.codec.runs import Run
from broker.codec.writer import encode_publish
from broker.event_log.block import NO_EXPIRY, BlockBuilder, encode_extra
from broker.event_log.stream.feed import AT_END, READING, READY, LogFeed, Strand, StrandReader
from broker.event_log.stream.parsed import Portion, parse_portion
from broker.feeds import FeedReader
from broker.message import Message, Publication

TIME = 1_700_000_000_000_000_000
TOPICS = (b"a", b"a/b", b"a/c", b"b/c", b"$x/c")
FILTERS = (b"#", b"a/#", b"+/c", b"a", b"$x/#", b"none")
CLIENTS = ("c1", "c2", "")
OTHER_FORM = 1


@dataclass(frozen=True)
class Entry:
    """A record of a test.

    after  microseconds since the one before
    form   of a packet of QoS 0 that is kept as it came: MQTT 3.1.1 or 5, or of another head; 0 for none
    """

    topic: bytes
    payload: bytes
    qos: int
    client_id: str
    after: int
    expiry: int
    form: int = 0


entries = st.lists(
    st.builds(
        Entry,
        st.sampled_from(TOPICS),
        st.binary(min_size=1, max_size=2),
        st.integers(0, 2),
        st.sampled_from(CLIENTS),
        st.sampled_from((0, 0, 1, 5)),
        st.sampled_from((NO_EXPIRY, NO_EXPIRY, 60)),
        st.sampled_from((0, 4, 4, 5, OTHER_FORM)),
    ),
    max_size=25,
)


@dataclass
class TestLog:
    """The records of one node in blocks of `block_records` each."""

    __test__ = False

    node: str
    records: list[Entry]
    block_records: int
    times: list[int] = field(default_factory=list)
    blocks: list[tuple[int, int, bytes]] = field(default_factory=list)  # first offset, end offset, bytes

    def __post_init__(self) -> None:
        time_ns = TIME
        builder = BlockBuilder()
        first = 0
        for offset, entry in enumerate(self.records):
            time_ns += entry.after * 1000
            self.times.append(time_ns)
            extra = b"" if entry.expiry == NO_EXPIRY else encode_extra(entry.expiry, b"\x01\x01")
            if entry.form and not extra:
                packet = b"a head of its own" + entry.payload
                if entry.form != OTHER_FORM:
                    packet = encode_publish(entry.form, entry.topic, entry.payload, 0, False, False, 0, b"")
                names = (entry.client_id, "", "")
                builder.add_run(entry.topic, packet, 1, len(entry.payload), names, time_ns)
            else:
                builder.add(entry.topic, entry.payload, entry.qos, (entry.client_id, "", ""), extra, time_ns)
            if offset + 1 - first == self.block_records or offset + 1 == len(self.records):
                self.blocks.append((first, offset + 1, builder.take(first)))
                first = offset + 1

    def qos(self, offset: int) -> int:
        entry = self.records[offset]
        return 0 if entry.form and entry.expiry == NO_EXPIRY else entry.qos

    def read(self, start: int, end: int, blocks_max: int = 2) -> Portion | None:
        """The blocks with records from `start` on of the first `end`, as a node has them when so many are written."""
        found = [block for block in self.blocks if block[1] > start and block[1] <= end][:blocks_max]
        if not found:
            return None
        return parse_portion([memoryview(block[2]) for block in found], max(start, found[0][0]), found[-1][1])


class OneReader(FeedReader):
    """`denied` may not be read, `unwanted` publishers are passed over."""

    def __init__(self, version: int = 4, denied: Sequence[bytes] = (), unwanted: Sequence[str] = ()) -> None:
        super().__init__("reader")
        self.denied = tuple(denied)
        self.unwanted = tuple(unwanted)
        self.number = 1
        self.woken = 0
        self._version = version

    def version(self) -> int:
        return self._version

    def rules(self) -> int:
        return self.number

    def may_have(self, topic: bytes) -> bool:
        return topic not in self.denied

    def is_unwanted(self, client_id: str) -> bool:
        return client_id in self.unwanted

    def wake(self, now: float) -> None:
        self.woken += 1


class ScriptedLogs(StrandReader):
    """Serves strands when a test says so. `ends`: how many records each node has written."""

    def __init__(self, logs: dict[str, TestLog], last: bool = False) -> None:
        super().__init__()
        self.logs = logs
        self.ends = dict.fromkeys(logs, 0)
        self.waiting: list[Strand] = []

    def want(self, strand: Strand) -> None:
        self.waiting.append(strand)

    def closed(self, feed: LogFeed) -> None:
        self.waiting = [strand for strand in self.waiting if strand.feed is not feed]

    def serve(self, strand: Strand) -> None:
        self.waiting.remove(strand)
        if not strand.log_id:
            known = strand.feed.place.logs.get(strand.node)
            strand.place_at("id", 0 if known is None else known.offset, 0, {})
            assert strand.state is READING, "nobody asks for it a second time meanwhile"
        portion = self.logs[strand.node].read(strand.cursor.offset, self.ends[strand.node])
        if portion is None:
            strand.state = AT_END
        else:
            strand.load(portion, TIME / 1e9)

    def grow(self, node: str, end: int, feed: LogFeed) -> None:
        self.ends[node] = end
        for strand in feed.strands:
            if strand.node == node and strand.state is AT_END:
                strand.state = READY


def taken(feed: LogFeed, now: float = 0.0) -> list[Message]:
    """All messages that a feed has now, each taken."""
    found: list[Message] = []
    while True:
        message = feed.next(now)
        if message is None:
            if feed.is_resting:
                continue
            return found
        found += messages_of(message)
        feed.taken()


def messages_of(found: Publication) -> list[Message]:
    """The message, or those of a run."""
    if isinstance(found, Run):
        return found.messages()
    assert isinstance(found, Message)
    return [found]
