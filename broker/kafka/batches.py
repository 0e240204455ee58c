"""Record batches of Kafka (magic 2, KIP-98) from blocks of the event log.

A record has the MQTT topic as its key, the payload as its value, and its time in milliseconds. Its headers are the User
Properties in their order, then the other properties, under the names below. A batch covers also the offsets of records that
are left out: its last offset delta says so, as in a topic that Kafka has compacted. Consumers go on behind it.
"""

# compiled with mypyc
from __future__ import annotations

import struct
from typing import Final

from librt.strings import BytesWriter, write_i16_le
from mypy_extensions import i16, i64, mypyc_attr

from broker.event_log.block import HEADER_BYTES, SECTION_BYTES, read_header, u32
from broker.event_log.records import block_texts, decode_extra
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
SLICE_STEPS: Final = 250
"""Records of one slice, some 0.05 ms. A block counts BLOCK_STEPS, a topic that has to be judged JUDGE_STEPS (once for all
blocks of a read), a section that is left out 1."""
BLOCK_STEPS: Final = 20
JUDGE_STEPS: Final = 60
BATCH_RECORDS_BYTES: Final = 64 * 1024  # of records, after which a batch is closed
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


def varint_bytes(value: i64) -> i64:
    """How many bytes `put_varint` adds."""
    rest = (value if value >= 0 else -(value + 1)) >> 6
    count: i64 = 1
    while rest > 0:
        rest >>= 7
        count += 1
    return count


def put_varint(output: BytesWriter, value: i64) -> None:
    """Add a signed number in zigzag encoding."""
    rest = value << 1 if value >= 0 else (-(value + 1) << 1) + 1
    if 0 <= rest < 0x80:
        output.append(rest)
    elif 0 <= rest < 0x4000:
        write_i16_le(output, i16(rest & 0x7F | 0x80 | rest >> 7 << 8))
    else:
        put_long_varint(output, value)


def put_long_varint(output: BytesWriter, value: i64) -> None:
    rest = value if value >= 0 else -(value + 1)
    byte = (rest & 0x3F) << 1
    if value < 0:
        byte |= 1
    rest >>= 6
    while rest > 0:
        output.append(byte | 0x80)
        byte = rest & 0x7F
        rest >>= 7
    output.append(byte)


def varint(value: i64) -> bytes:
    """As `put_varint`, alone."""
    output = BytesWriter()
    put_varint(output, value)
    return output.getvalue()


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
        self.size: i64 = 0
        self.records: i64 = 0
        self.next_offset: i64 = start
        self._epoch = epoch
        self._judge = judge
        self._batches: list[bytes] = []  # and their parts
        # The batch that is being made.
        self._base: i64 = start
        self._output = BytesWriter()  # its records
        self._count: i64 = 0
        self._first_ms: i64 = 0
        self._last_ms: i64 = 0
        # The blocks that are being read.
        self._blocks = b""
        self._end: i64 = 0
        self._bytes_max: i64 = 0
        self._keys: dict[bytes, bytes] = {}  # of their topics: as in _judged
        # One of them.
        self._next_at: i64 = 0  # where the one behind it begins
        self._time_us: i64 = 0
        self._section_at: i64 = 0
        self._sections_end: i64 = 0
        self._done: i64 = 0  # records of the section that were handled
        self._offset: i64 = 0  # of the next record
        self._heap: i64 = 0
        self._topics: list[bytes] = []
        # Of the block, by topic: size and bytes of the key; empty when it is left out.
        self._judged: list[bytes | None] = []
        self._extras: list[bytes] = []
        self._headers: list[bytes | None] = []

    def begin(self, blocks: bytes, end: int, bytes_max: int) -> None:
        """Whole blocks follow that go on at `next_offset`. Batches end before offset `end`, and after `bytes_max` bytes; one
        record is taken whatever its size."""
        self._blocks = blocks
        self._end = end
        self._bytes_max = bytes_max
        self._keys = {}
        self._next_at = 0
        self._section_at = self._sections_end = 0

    def go_on(self) -> bool:
        """Do one slice. Returns whether more is to be done."""
        steps: i64 = 0
        while steps < SLICE_STEPS:
            if self.is_full:
                return False
            if self._section_at >= self._sections_end:
                if not self._next_block():
                    return False
                steps += BLOCK_STEPS
            steps += self._do_sections(SLICE_STEPS - steps)
            if self.next_offset >= self._end:
                return False
        return True

    def _next_block(self) -> bool:
        """Returns False when there is none with a record before the end."""
        blocks = self._blocks
        while True:
            at = self._next_at
            header = read_header(blocks, at)
            if header is None or header.offset >= self._end:
                return False
            self._next_at = at + header.size
            if header.end_offset > self.next_offset:
                break
        topics, _, extras, heap = block_texts(blocks, at, header, has_publishers=False)
        self._topics = topics
        self._extras = extras
        self._judged = [None] * len(topics)
        self._headers = [None] * len(extras)
        self._time_us = header.time_ns // 1000
        self._section_at = at + HEADER_BYTES
        self._sections_end = self._section_at + header.sections * SECTION_BYTES
        self._done = 0
        self._offset = header.offset
        self._heap = heap
        self.next_offset = max(self.next_offset, header.offset)  # the log misses the records before
        return True

    def _do_sections(self, steps: i64) -> i64:
        """Go on with the block, for so many steps or some more. Returns the number of steps that it took."""
        blocks = self._blocks
        at = self._section_at
        done = self._done
        offset = self._offset
        heap = self._heap
        end = self._end
        next_offset = self.next_offset
        taken: i64 = 0
        while at < self._sections_end and taken < steps and offset < end:
            section_count = u32(blocks, at + 4)
            record_size = u32(blocks, at + 20)
            count = section_count - done
            if offset < next_offset:
                passed = next_offset - offset
                passed = min(passed, count)
                offset += passed
                heap += passed * record_size
                done += passed
                count -= passed
            count = min(count, end - offset)
            taken += 1
            if count > 0:
                topic = u32(blocks, at + 8)
                key = self._judged[topic]
                if key is None:
                    known = len(self._keys)
                    key = self._key_of(topic)
                    if len(self._keys) > known:
                        taken += JUDGE_STEPS
                if len(key) > 0:
                    if len(self._output) >= BATCH_RECORDS_BYTES or offset - self._base > DELTA_MAX:
                        self._close(offset)
                    if count > steps - taken:
                        count = max(steps - taken, 1)
                    count = self._add(at, count, offset, heap, key)
                    taken += count - 1
                offset += count
                heap += count * record_size
                done += count
                next_offset = offset
                if len(key) > 0 and self.size + len(self._output) >= self._bytes_max:
                    steps = 0  # the answer is full
            if done == section_count:
                at += SECTION_BYTES
                done = 0
        self._section_at = at
        self._done = done
        self._offset = offset
        self._heap = heap
        self.next_offset = next_offset
        return taken

    def _key_of(self, topic: i64) -> bytes:
        """The key of records of a topic, judged once for all blocks of a read."""
        name = self._topics[topic]
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = sized(name) if self._judge.gets(name) else b""
        self._judged[topic] = key
        return key

    def _headers_of(self, extra: i64) -> bytes:
        """The headers of records with this extra of the block."""
        if extra == 0:
            return NO_HEADERS
        headers = self._headers[extra - 1]
        if headers is None:
            headers = self._headers[extra - 1] = headers_of(self._extras[extra - 1])
        return headers

    def _add(self, at: i64, count: i64, offset: i64, heap: i64, key: bytes) -> i64:
        """Add records of the section at `at`, the first of which has the offset `offset` and begins at `heap`. Returns their
        number: fewer when the batch or the answer is full."""
        blocks = self._blocks
        output = self._output
        time_ms = (self._time_us + u32(blocks, at)) // 1000
        payload_size = u32(blocks, at + 16)
        record_size = u32(blocks, at + 20)
        headers = self._headers_of(u32(blocks, at + 24))
        if self._count == 0:
            self._first_ms = time_ms
        self._last_ms = time_ms
        time_delta = time_ms - self._first_ms
        rest = 1 + varint_bytes(time_delta) + len(key) + varint_bytes(payload_size) + payload_size + len(headers)
        room = self._bytes_max - self.size
        room = min(room, BATCH_RECORDS_BYTES)
        delta = offset - self._base
        added: i64 = 0
        while added < count:
            put_varint(output, rest + varint_bytes(delta))
            output.append(0)
            put_varint(output, time_delta)
            put_varint(output, delta)
            output.write(key)
            put_varint(output, payload_size)
            heap += record_size
            output.write(blocks[heap - payload_size : heap])
            output.write(headers)
            delta += 1
            added += 1
            if len(output) >= room:
                break
        self._count += added
        return added

    def _close(self, end: i64) -> None:
        """Close the batch: it covers the offsets before `end`."""
        records = self._output.getvalue()
        while True:
            covered = min(end, self._base + DELTA_MAX)
            attributes = 0 if self._count else CONTROL
            fixed = CHECKED.pack(
                attributes, covered - 1 - self._base, self._first_ms, self._last_ms, -1, -1, -1, self._count
            )
            size = BEHIND_LENGTH + len(records)
            self._batches.append(BATCH_HEADER.pack(self._base, size, self._epoch, MAGIC))
            self._batches.append(CHECKSUM.pack(crc32c(fixed, records)))
            self._batches.append(fixed)
            self._batches.append(records)
            self.size += BATCH_BYTES + len(records)
            self.records += self._count
            self._output = BytesWriter()
            records = b""
            self._count = 0
            self._base = covered
            if covered == end:
                return

    @property
    def total(self) -> int:
        """Bytes of all batches, also of the one that is being made."""
        return self.size + len(self._output)

    @property
    def is_full(self) -> bool:
        """Return whether the answer has as many bytes as it may."""
        return self.total >= self._bytes_max and self.records + self._count > 0

    def pass_to(self, offset: int) -> None:
        """The log has nothing more for this consumer before `offset`."""
        self.next_offset = max(self.next_offset, offset)

    def take(self) -> list[bytes]:
        """All batches, in parts. They cover the offsets from the start to `next_offset`; none when these are none."""
        if self.next_offset > self._base:
            self._close(self.next_offset)
        return self._batches
