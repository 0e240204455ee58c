"""Blocks of an event log as messages for one subscription.

Every message that a stream delivers passes here, so the module is compiled. What is the same for all readers of a block is
parsed in a thread; whether a client wants a topic, and may read it, is asked when the first record of the topic comes.
"""

# compiled with mypyc
from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from broker.codec.runs import RUN_MAX, Run
from broker.codec.wire import VARINT_MAX, encode_varint
from broker.codec.writer import encode_publish
from broker.event_log.block import HEADER_BYTES, NO_EXPIRY, SECTION_BYTES, BlockHeader
from broker.event_log.records import EXPIRY_BYTES, QOS_BITS, block_headers, block_texts
from broker.event_log.selection import Selection
from broker.feeds import FeedReader
from broker.message import NEVER, Message, Publication
from broker.routing.names import filter_matches

SECTION: Final = struct.Struct("<8I")
UNKNOWN: Final = 0
WANTED: Final = 1
UNWANTED: Final = 2
HEAD_BYTES_LEAST: Final = 4  # of a PUBLISH of QoS 0, beside its topic
OFFSET_NAME: Final = b"&\x00\x06offset"  # the begin of a User Property
PLACED_MAX: Final = VARINT_MAX - 32
"""Bytes of topic, properties and payload up to which a message tells its place. The rest is for what each client adds: packet
identifier, subscription identifier, remaining expiry, topic alias and lengths."""
SECTION_STEPS: Final = 1  # of a slice (broker/slices.py)
TOPIC_STEPS: Final = 8
SECTIONS_AT_ONCE: Final = 500  # that one call looks at for a record that is wanted


class ParsedBlock:
    """One block. Readers share it.

    data  the bytes of this and other blocks; this one begins at `at`
    """

    __slots__ = ("at", "data", "extras", "header", "heap_at", "names", "topics")

    def __init__(self, data: bytes, at: int, header: BlockHeader) -> None:
        self.data = data
        self.at = at
        self.header = header
        topics, names, extras, heap_at = block_texts(data, at, header)
        self.topics = topics
        self.names = [name.decode() for name in names[::3]]
        self.extras = extras
        self.heap_at = heap_at


class Portion:
    """The records that one read of a log gave.

    blocks  in order
    size    their bytes
    next_offset  where the next read begins
    first_offset of the first record of the read: above the one that was asked for where the log misses records
    """

    __slots__ = ("blocks", "first_offset", "next_offset", "size")

    def __init__(self, blocks: list[ParsedBlock], size: int, first_offset: int, next_offset: int) -> None:
        self.blocks = blocks
        self.size = size
        self.first_offset = first_offset
        self.next_offset = next_offset


def parse_portion(parts: Sequence[memoryview], first_offset: int, next_offset: int) -> Portion:
    """The blocks of an answer of LogReaders.read. Raises BlockFault."""
    blocks: list[ParsedBlock] = []
    size = 0
    for part in parts:
        data = bytes(part)
        size += len(data)
        for at, header in block_headers(data):
            blocks.append(ParsedBlock(data, at, header))
    return Portion(blocks, size, first_offset, next_offset)


def last_records(portion: Portion, topics: Selection, end: int, found: dict[bytes, tuple[int, int]]) -> None:
    """Note the (time in ns, offset) of the last record before `end` of each topic of the selection."""
    for block in portion.blocks:
        offset = block.header.offset
        at = block.at + HEADER_BYTES
        for _ in range(block.header.sections):
            delta, count, topic, _publisher, _payload, _record, _extra, _flags = SECTION.unpack_from(block.data, at)
            at += SECTION_BYTES
            name = block.topics[topic]
            if offset < end and topics.has(name):
                found[name] = block.header.time_ns + delta * 1000, min(offset + count, end) - 1
            offset += count


def newest_topics(found: dict[bytes, tuple[int, int]], topics_max: int) -> dict[bytes, tuple[int, int]]:
    """So many topics at most, those whose last records are the newest."""
    if len(found) <= topics_max:
        return found
    kept = sorted([(at, topic) for topic, at in found.items()], reverse=True)
    return {topic: at for at, topic in kept[:topics_max]}


def user_property(name: bytes, value: bytes) -> bytes:
    """One User Property as in a PUBLISH."""
    return b"&" + len(name).to_bytes(2, "big") + name + len(value).to_bytes(2, "big") + value


class PlacedRun(Run):
    """Packets of MQTT 5 of one length, each of which tells its own offset."""

    def __init__(
        self, topic: bytes, packets: bytes, count: int, properties_at: int, payload_at: int, client_id: str
    ) -> None:
        size = len(packets) // count
        super().__init__(topic, packets, 0, size, payload_at, 5, client_id, size)
        self.count = count
        self.stop = len(packets)
        self._packets = packets
        self._properties_at = properties_at
        self._payload_at = payload_at

    def messages(self) -> list[Message]:
        found: list[Message] = []
        for start in range(0, len(self._packets), self.packet_size):
            payload = self._packets[start + self._payload_at : start + self.packet_size]
            properties = self._packets[start + self._properties_at : start + self._payload_at]
            found.append(Message(self.topic, payload, 0, False, properties, NEVER, self.client_id))
        return found

    def aliased(self, alias: int) -> bytes:
        return b"".join(
            [
                encode_publish(5, b"", message.payload, 0, False, False, 0, message.properties, -1, alias)
                for message in self.messages()
            ]
        )


class Cursor:
    """Goes over blocks, and finds the records that one client gets.

    offset   of the next record to look at
    found    the record at `found_offset` is for the client
    found_offset, time_ns  of the record that was found
    steps    of a slice that the last `find` took
    is_resting  the last `find` has looked at enough for one turn
    wanted_before  of `last`: a record with a lower offset comes only if it is the one of its topic in `last`
    expired  number of records whose Message Expiry Interval had passed
    """

    def __init__(self, topic_filter: bytes, reader: FeedReader, node: str) -> None:
        self.offset = 0
        self.found = False
        self.found_offset = 0
        self.time_ns = 0
        self.steps = 0
        self.is_resting = False
        self.wanted_before = 0
        self.last: dict[bytes, int] = {}
        self.expired = 0
        self._filter = topic_filter
        self._reader = reader
        self._rules = -1
        self._node = user_property(b"node", node.encode())
        self._wall_offset = 0.0
        self._blocks: list[ParsedBlock] | None = None
        self._end = 0  # the offset behind the blocks
        self._next_block = 0
        self._block: ParsedBlock | None = None
        self._states = bytearray()  # of the topics of the block
        self._next_section = 0
        self._left = 0  # records of the section
        self._record_offset = 0  # of the first of them
        self._heap = 0
        self._topic = 0
        self._publisher = 0
        self._payload_size = 0
        self._record_size = 0
        self._extra = 0
        self._flags = 0
        self._section_ns = 0
        self._time = b""  # the User Property of the section, made when it is needed
        self._second = -1
        self._second_text = b""

    def load(self, blocks: list[ParsedBlock], next_offset: int, wall_offset: float) -> None:
        """Look at these blocks from `offset` on. `wall_offset`: how much Unix time is ahead of the monotonic one."""
        self._blocks = blocks
        self._end = next_offset
        self._wall_offset = wall_offset
        self._next_block = 0
        self._block = None
        self._left = 0
        self._next_section = 0

    def unload(self) -> None:
        """Forget the blocks. What was found is to be found again."""
        if self.found:
            self.offset = self.found_offset
            self.found = False
        self._blocks = None
        self._block = None
        self._left = 0

    def find(self) -> bool:
        """Return whether there is a record for the client. Without one, and unless `is_resting`, the blocks are used up."""
        self.steps = 0
        self.is_resting = False
        if self.found:
            if self._reader.rules() == self._rules:
                return True
            self.found = False
        blocks = self._blocks
        if blocks is None:
            return False
        looked = 0
        while True:
            block = self._block
            if block is None or (self._left == 0 and self._next_section >= block.header.sections):
                if self._next_block >= len(blocks):
                    self.offset = max(self.offset, self._end)
                    self._blocks = None
                    self._block = None
                    return False
                self._begin_block(blocks[self._next_block])
                self._next_block += 1
                continue
            if self._left == 0:
                if looked >= SECTIONS_AT_ONCE:
                    self.is_resting = True
                    return False
                looked += 1
                self.steps += SECTION_STEPS
                self._begin_section(block)
                continue
            if self._record_offset < self.offset:
                self._skip(min(self._left, self.offset - self._record_offset))
                continue
            if not self._is_wanted(block):
                self._skip(self._left)
                continue
            if self._record_offset < self.wanted_before:
                last = self.last.get(block.topics[self._topic], -1)
                if last != self._record_offset:
                    is_here = self._record_offset < last < self._record_offset + self._left
                    self._skip(last - self._record_offset if is_here else self._left)
                    continue
            self.found = True
            self.found_offset = self._record_offset
            self.time_ns = self._section_ns
            return True

    def take(self, now: float) -> Publication | None:
        """The message that was found, or a run that begins with it; None for one that has expired. The cursor is behind it
        afterwards."""
        block = self._block
        assert block is not None
        assert self.found
        self.found = False
        run = self._run(block)
        if run is not None:
            self._skip(run.count)
            return run
        self._skip(1)
        self.offset = self.found_offset + 1
        properties = b""
        expires_at = NEVER
        if self._extra:
            extra = block.extras[self._extra - 1]
            expiry = int.from_bytes(extra[:EXPIRY_BYTES], "little")
            if expiry != NO_EXPIRY:
                expires_at = self.time_ns / 1e9 + expiry - self._wall_offset
                if expires_at <= now:
                    self.expired += 1
                    return None
            properties = extra[EXPIRY_BYTES:]
        topic = block.topics[self._topic]
        if self._reader.version() == 5:
            placed = (
                properties + self._node + user_property(b"offset", b"%d" % self.found_offset) + self._time_property()
            )
            if len(topic) + len(placed) + self._payload_size <= PLACED_MAX:
                properties = placed
        return Message(
            topic,
            block.data[self._heap - self._payload_size : self._heap],
            self._flags & QOS_BITS,
            False,
            properties,
            expires_at,
            block.names[self._publisher],
        )

    def _run(self, block: ParsedBlock) -> Run | None:
        """The record and those behind it as one run; None where they are to come one by one."""
        if self._left < 2 or self._flags or self._extra or self._record_offset < self.wanted_before:
            return None
        topic = block.topics[self._topic]
        client_id = block.names[self._publisher]
        if self._reader.version() == 5:
            return self._placed_run(block.data, topic, client_id)
        size = self._record_size
        head_size = size - self._payload_size
        if head_size < len(topic) + HEAD_BYTES_LEAST:
            return None
        start = self._heap
        payload_at = start + head_size
        # The packets of MQTT 5 have properties between topic and payload.
        if block.data[payload_at - len(topic) - 2 : payload_at] != len(topic).to_bytes(2, "big") + topic:
            return None
        return Run(topic, block.data, start, start + size, payload_at, 4, client_id, start + self._left * size)

    def _placed_run(self, data: bytes, topic: bytes, client_id: str) -> Run:
        offset = self._record_offset
        digits = len(b"%d" % offset)
        count = min(self._left, RUN_MAX, 10**digits - offset)
        before = self._node + OFFSET_NAME + digits.to_bytes(2, "big")
        after = self._time_property()
        properties_size = len(before) + digits + len(after)
        size = 2 + len(topic) + len(encode_varint(properties_size)) + properties_size + self._payload_size
        head = b"".join(
            (b"\x30", encode_varint(size), len(topic).to_bytes(2, "big"), topic, encode_varint(properties_size))
        )
        properties_at = len(head)
        head += before
        end = self._heap + self._record_size
        packets: list[bytes] = []
        for number in range(offset, offset + count):
            packets += (head, b"%d" % number, after, data[end - self._payload_size : end])
            end += self._record_size
        return PlacedRun(topic, b"".join(packets), count, properties_at, properties_at + properties_size, client_id)

    def _time_property(self) -> bytes:
        if not self._time:
            self._time = user_property(b"time", self._text_of_time())
        return self._time

    def _text_of_time(self) -> bytes:
        """RFC 3339 in microseconds."""
        second, rest = divmod(self.time_ns, 1_000_000_000)
        if second != self._second:
            self._second = second
            self._second_text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()
        return b"%s.%06dZ" % (self._second_text, rest // 1000)

    def _begin_block(self, block: ParsedBlock) -> None:
        self._block = block
        self._states = bytearray(block.header.topics)
        self._rules = self._reader.rules()
        self._next_section = 0
        self._left = 0
        self._record_offset = block.header.offset
        self._heap = block.heap_at
        self.offset = max(self.offset, block.header.offset)

    def _begin_section(self, block: ParsedBlock) -> None:
        at = block.at + HEADER_BYTES + self._next_section * SECTION_BYTES
        delta, count, topic, publisher, payload_size, record_size, extra, flags = SECTION.unpack_from(block.data, at)
        self._next_section += 1
        self._left = count
        self._topic = topic
        self._publisher = publisher
        self._payload_size = payload_size
        self._record_size = record_size
        self._extra = extra
        self._flags = flags
        self._section_ns = block.header.time_ns + delta * 1000
        self._time = b""

    def _skip(self, count: int) -> None:
        """Go over so many records of the section."""
        self._left -= count
        self._record_offset += count
        self._heap += count * self._record_size
        self.offset = max(self.offset, self._record_offset)

    def _is_wanted(self, block: ParsedBlock) -> bool:
        """Return whether the client gets the records of the section."""
        rules = self._reader.rules()
        if rules != self._rules:
            self._rules = rules
            self._states = bytearray(block.header.topics)
        state = self._states[self._topic]
        if state == UNKNOWN:
            topic = block.topics[self._topic]
            self.steps += TOPIC_STEPS
            state = WANTED if filter_matches(self._filter, topic) and self._reader.may_have(topic) else UNWANTED
            self._states[self._topic] = state
        return state == WANTED and not self._reader.is_unwanted(block.names[self._publisher])
