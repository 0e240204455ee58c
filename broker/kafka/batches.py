"""Record batches of Kafka (magic 2, KIP-98) from blocks of the event log.

A record has the MQTT topic as its key, the payload as its value, and its time in milliseconds. Its headers are the User
Properties in their order, then the other properties, under the names below. A batch covers also the offsets of records that
are left out: its last offset delta says so, as in a topic that Kafka has compacted. Consumers go on behind it.
"""

# compiled with mypyc
from __future__ import annotations

import struct
from typing import Final

from mypy_extensions import mypyc_attr

from broker.event_log.block import SECTION_FIELDS, BlockHeader, read_header
from broker.event_log.records import block_texts, decode_extra, section_fields
from broker.kafka.checksum import crc32c

BATCH_HEADER: Final = struct.Struct(">qiib")  # base offset, bytes behind this field, leader epoch, magic
CHECKED: Final = struct.Struct(">hiqqqhii")  # what the checksum begins with: attributes to number of records
CHECKSUM: Final = struct.Struct(">I")
MAGIC: Final = 2
CONTROL: Final = 0x20
"""Attribute of a batch without records: librdkafka takes one that is none of control for an answer too small for a record, and
doubles what it fetches until it reports MSG_SIZE_TOO_LARGE, at which kcat ends."""
BATCH_BYTES: Final = 61  # of a batch without records
BEHIND_LENGTH: Final = 49  # bytes of them behind the length
SLICE_STEPS: Final = 600
"""Records of one slice, some 0.3 ms. A topic that has to be judged counts JUDGE_STEPS, a section that is left out counts 1."""
JUDGE_STEPS: Final = 20
SLICE_BYTES: Final = 64 * 1024  # after which a batch is closed
DELTA_MAX: Final = 2**31 - 1

CONTENT_TYPE: Final = b"content-type"
RESPONSE_TOPIC: Final = b"response-topic"
CORRELATION_DATA: Final = b"correlation-data"
EXPIRY: Final = b"message-expiry-interval"  # seconds, in decimal


@mypyc_attr(allow_interpreted_subclasses=True)
class TopicJudge:
    """Says which topics a consumer gets. This base class gives all."""

    def gets(self, topic: bytes) -> bool:
        return True


def varint(value: int) -> bytes:
    """A signed number in zigzag encoding."""
    rest = value * 2 if value >= 0 else -value * 2 - 1
    if rest < 0x80:
        return _BYTES[rest]
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


_BYTES: Final = [bytes((number,)) for number in range(256)]
_SMALL: Final = [varint(number) for number in range(8192)]  # offset deltas of most records
_SMALL_COUNT: Final = 8192


def sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def headers_of(extra: bytes) -> bytes:
    """The headers of a record with this extra (broker/event_log/block.py), with their number before them."""
    more = decode_extra(extra)
    pairs = [(key.encode(), value.encode()) for key, value in more.user_properties]
    if more.content_type is not None:
        pairs.append((CONTENT_TYPE, more.content_type.encode()))
    if more.response_topic is not None:
        pairs.append((RESPONSE_TOPIC, more.response_topic.encode()))
    if more.correlation_data is not None:
        pairs.append((CORRELATION_DATA, more.correlation_data))
    if more.expiry is not None:
        pairs.append((EXPIRY, str(more.expiry).encode()))
    return varint(len(pairs)) + b"".join([sized(key) + sized(value) for key, value in pairs])


NO_HEADERS: Final = varint(0)


class BatchWriter:
    """Makes batches of whole blocks, in slices.

    size         bytes of the batches that are closed
    records      number of the records in them
    next_offset  behind the last offset that they cover
    """

    def __init__(self, start: int, epoch: int, judge: TopicJudge) -> None:
        """Records before `start` are left out. `epoch`: the leader epoch of the partition."""
        self.size = 0
        self.records = 0
        self.next_offset = start
        self._epoch = epoch
        self._judge = judge
        self._batches: list[bytes] = []
        # The batch that is being made.
        self._base = start
        self._parts: list[bytes] = []
        self._count = 0
        self._bytes = 0
        self._first_ms = 0
        self._last_ms = 0
        # The block that is being read.
        self._blocks = b""
        self._at = 0
        self._end = 0
        self._bytes_max = 0
        self._keys: dict[bytes, bytes] = {}  # of the topics of these blocks: as in _judged
        self._header: BlockHeader | None = None
        self._sections: list[int] = []
        self._section = 0
        self._done = 0  # records of the section that were handled
        self._offset = 0  # of the next record
        self._heap = 0
        self._topics: list[bytes] = []
        # Of the block, by topic: size and bytes of the key; empty when it is left out.
        self._judged: list[bytes | None] = []
        self._extras: list[bytes] = []
        self._headers: list[bytes | None] = []

    def begin(self, blocks: bytes, end: int, bytes_max: int) -> None:
        """Whole blocks follow that go on at `next_offset`. Batches end before offset `end`, and after `bytes_max` bytes; one
        record is taken whatever its size."""
        self._blocks = blocks
        self._at = 0
        self._end = end
        self._bytes_max = bytes_max
        self._keys = {}
        self._header = None

    def go_on(self) -> bool:
        """Do one slice. Returns whether more is to be done."""
        steps = 0
        while steps < SLICE_STEPS:
            if self.is_full:
                return False
            if self._header is None:
                if not self._next_block():
                    return False
                steps += 10
            if self._section >= len(self._sections):
                assert self._header is not None
                self._at += self._header.size
                self._header = None
                continue
            steps += self._do_section(SLICE_STEPS - steps)
            if self.next_offset >= self._end:
                return False
        return True

    def _next_block(self) -> bool:
        """Returns False when there is none with a record before the end."""
        blocks = self._blocks
        while True:
            header = read_header(blocks, self._at)
            if header is None or header.offset >= self._end:
                return False
            if header.end_offset > self.next_offset:
                break
            self._at += header.size
        self._header = header
        topics, _, extras, heap = block_texts(blocks, self._at, header)
        self._topics = topics
        self._extras = extras
        self._judged = [None] * len(topics)
        self._headers = [None] * len(extras)
        self._sections = section_fields(blocks, self._at, header).tolist()
        self._section = 0
        self._done = 0
        self._offset = header.offset
        self._heap = heap
        self.next_offset = max(self.next_offset, header.offset)  # the log misses the records before
        return True

    def _do_section(self, steps: int) -> int:
        """Go on with the section, for so many steps. Returns the number of steps that it took."""
        header = self._header
        assert header is not None
        sections = self._sections
        at = self._section
        count = sections[at + 1] - self._done
        record_size = sections[at + 5]
        skipped = min(max(self.next_offset - self._offset, 0), count)
        if skipped:
            self._pass(skipped, record_size)
            count -= skipped
        count = min(count, self._end - self._offset)
        if count <= 0:
            return 1
        topic = sections[at + 2]
        key = self._judged[topic]
        taken = 1
        if key is None:
            name = self._topics[topic]
            key = self._keys.get(name)
            if key is None:
                key = sized(name) if self._judge.gets(name) else b""
                self._keys[name] = key
                taken = JUDGE_STEPS
            self._judged[topic] = key
        if not key:
            self._pass(count, record_size)
            self.next_offset = self._offset
            return taken
        if self._offset - self._base > DELTA_MAX or self._bytes >= SLICE_BYTES:
            self._close(self._offset)
        count = min(count, max(steps - taken, 1))
        extra = sections[at + 6]
        headers: bytes | None = NO_HEADERS
        if extra:
            headers = self._headers[extra - 1]
            if headers is None:
                headers = headers_of(self._extras[extra - 1])
                self._headers[extra - 1] = headers
        assert headers is not None
        time_ms = (header.time_ns + sections[at] * 1000) // 1_000_000
        count = self._add(count, sections[at + 4], record_size, key, headers, time_ms)
        self._pass(count, record_size)
        self.next_offset = self._offset
        return taken + count

    def _add(self, count: int, payload_size: int, record_size: int, key: bytes, headers: bytes, time_ms: int) -> int:
        """Add records of one section. Returns their number: fewer when the batch or the answer is full."""
        if self._count == 0:
            self._first_ms = time_ms
        self._last_ms = time_ms
        time_delta = varint(time_ms - self._first_ms)
        middle = key + varint(payload_size)
        fixed = 1 + len(time_delta) + len(middle) + payload_size + len(headers)
        parts = self._parts
        blocks = self._blocks
        delta = self._offset - self._base
        heap = self._heap
        size = self._bytes
        room = self._bytes_max - self.size
        known = 0  # bytes of the offset delta that `begin` is for
        begin = b""
        added = 0
        while added < count:
            offset_delta = _SMALL[delta] if delta < _SMALL_COUNT else varint(delta)
            if len(offset_delta) != known:
                known = len(offset_delta)
                begin = varint(fixed + known) + b"\0" + time_delta
            heap += record_size
            parts.append(begin)
            parts.append(offset_delta)
            parts.append(middle)
            parts.append(blocks[heap - payload_size : heap])
            parts.append(headers)
            size += len(begin) + known + fixed - 1 - len(time_delta)
            delta += 1
            added += 1
            if size >= SLICE_BYTES or size >= room:
                break
        self._bytes = size
        self._count += added
        return added

    def _pass(self, count: int, record_size: int) -> None:
        """Go on behind records of the section."""
        self._offset += count
        self._heap += count * record_size
        self._done += count
        if self._done == self._sections[self._section + 1]:
            self._section += SECTION_FIELDS
            self._done = 0

    def _close(self, end: int) -> None:
        """Close the batch: it covers the offsets before `end`."""
        while True:
            covered = min(end, self._base + DELTA_MAX)
            attributes = 0 if self._count else CONTROL
            fixed = CHECKED.pack(
                attributes, covered - 1 - self._base, self._first_ms, self._last_ms, -1, -1, -1, self._count
            )
            checked = fixed + b"".join(self._parts)
            begin = BATCH_HEADER.pack(self._base, BEHIND_LENGTH + len(checked) - CHECKED.size, self._epoch, MAGIC)
            batch = b"".join((begin, CHECKSUM.pack(crc32c(checked)), checked))
            self._batches.append(batch)
            self.size += len(batch)
            self.records += self._count
            self._parts = []
            self._count = 0
            self._bytes = 0
            self._base = covered
            if covered == end:
                return

    @property
    def total(self) -> int:
        """Bytes of all batches, also of the one that is being made."""
        return self.size + self._bytes

    @property
    def is_full(self) -> bool:
        """Return whether the answer has as many bytes as it may."""
        return self.total >= self._bytes_max and self.records + self._count > 0

    def pass_to(self, offset: int) -> None:
        """The log has nothing more for this consumer before `offset`."""
        self.next_offset = max(self.next_offset, offset)

    def take(self) -> bytes:
        """All batches. They cover the offsets from the start to `next_offset`; b"" when these are none."""
        if self.next_offset > self._base:
            self._close(self.next_offset)
        return b"".join(self._batches)
