"""Record batches: what a naive reader of Kafka's format finds in them is what the log has, in slices of any size."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec.properties import encode_publish_properties
from broker.codec.writer import encode_publish
from broker.event_log.block import NO_EXPIRY, BlockBuilder, encode_extra
from broker.event_log.records import Record, records
from broker.kafka.batches import (
    BATCH_BYTES,
    BLOCK_STEPS,
    CONTROL,
    JUDGE_STEPS,
    SLICE_STEPS,
    BatchWriter,
    TopicJudge,
    varint,
)

TIME = 1_700_000_000_000_000_000
ALL = 2**31


class Taken:
    """A position in bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        assert 0 <= size <= len(self.data) - self.at
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)

    def sized(self) -> bytes:
        return self.take(self.varint())


def read_batches(parts: list[bytes]) -> tuple[list[tuple[Any, ...]], list[tuple[int, int]]]:
    """((offset, milliseconds, key, value, headers) of the records, (first, end) of the offsets of each batch), as the guide of
    the protocol describes record batches."""
    found: list[tuple[Any, ...]] = []
    covered = []
    all_taken = Taken(b"".join(parts))
    while all_taken.at < len(all_taken.data):
        base, size = struct.unpack(">qi", all_taken.take(12))
        batch = Taken(all_taken.take(size))
        _epoch, magic, crc = struct.unpack(">ibI", batch.take(9))
        assert magic == 2
        assert google_crc32c.value(batch.data[9:]) == crc
        attributes, last, first_ms, max_ms, producer, producer_epoch, sequence, count = struct.unpack(
            ">hiqqqhii", batch.take(40)
        )
        assert (attributes, producer, producer_epoch, sequence) == (0 if count else CONTROL, -1, -1, -1)
        times = []
        for _ in range(count):
            record = Taken(batch.sized())
            assert record.take(1) == b"\0"
            time_ms, offset = first_ms + record.varint(), base + record.varint()
            key, value = record.sized(), record.sized()
            headers = [(record.sized(), record.sized()) for _ in range(record.varint())]
            assert record.at == len(record.data)
            assert offset <= base + last
            times.append(time_ms)
            found.append((offset, time_ms, key, value, headers))
        assert batch.at == len(batch.data)
        assert not times or max(times) == max_ms
        covered.append((base, base + last + 1))
    return found, covered


def expected(record: Record) -> tuple[Any, ...]:
    headers = [(key.encode(), value.encode()) for key, value in record.user_properties]
    for name, value in (
        (b"content-type", record.content_type),
        (b"response-topic", record.response_topic),
        (b"correlation-data", record.correlation_data),
        (b"message-expiry-interval", None if record.expiry is None else str(record.expiry)),
    ):
        if value is not None:
            headers.append((name, value if isinstance(value, bytes) else value.encode()))
    return record.offset, record.time_ns // 1_000_000, record.topic.encode(), record.payload, headers


class Topics(TopicJudge):
    def __init__(self, wanted: set[bytes]) -> None:
        self._wanted = wanted

    def gets(self, topic: bytes) -> bool:
        return topic in self._wanted


def written(blocks: bytes, start: int, end: int, judge: TopicJudge, bytes_max: int = ALL) -> BatchWriter:
    writer = BatchWriter(start, 3, judge)
    writer.begin(blocks, end, bytes_max)
    while writer.go_on():
        pass
    return writer


EXTRAS = [
    b"",
    encode_extra(60, b""),
    encode_extra(
        NO_EXPIRY,
        encode_publish_properties(
            content_type="text/plain",
            response_topic=b"re/ply",
            correlation_data=b"\0\xff",
            user_properties=[("k", "1"), ("k", "ü")],
        ),
    ),
]
TOPICS = [b"a", b"b/c", "ä".encode(), b"t" * 200]
one_message = st.tuples(
    st.sampled_from(TOPICS), st.binary(max_size=300), st.sampled_from(EXTRAS), st.integers(0, 5_000), st.integers(1, 90)
)


def blocks_of(messages: list[tuple[bytes, bytes, bytes, int, int]], per_block: int, first: int) -> bytes:
    """Each message `count` times; QoS 0 as a run of packets where it has no extra."""
    builder = BlockBuilder()
    found = b""
    offset, time_ns = first, TIME
    for topic, payload, extra, later, count in messages:
        time_ns += later * 1_000_000
        if extra or len(payload) % 2:
            for _ in range(count):
                builder.add(topic, payload, 1, ("c", "", ""), extra, time_ns)
        else:
            packet = encode_publish(4, topic, payload, 0, False, False, 0, b"")
            builder.add_run(topic, packet * count, count, len(payload), ("c", "", ""), time_ns)
        if builder.records >= per_block:
            number = builder.records
            found += builder.take(offset)
            offset += number
    return found + (builder.take(offset) if builder.records else b"")


@given(st.lists(one_message, min_size=1, max_size=12), st.integers(1, 300), st.sets(st.sampled_from(TOPICS)), st.data())
def test_batches_have_the_records_of_the_blocks(
    messages: list[tuple[bytes, bytes, bytes, int, int]], per_block: int, wanted: set[bytes], data: st.DataObject
) -> None:
    blocks = blocks_of(messages, per_block, 1_000)
    in_log = list(records(blocks))
    last = in_log[-1].offset + 1
    start = data.draw(st.integers(1_000, last - 1))
    end = data.draw(st.integers(start + 1, last))
    writer = written(blocks, start, end, Topics(wanted))
    assert writer.next_offset == end
    assert not writer.is_full
    found, covered = read_batches(writer.take())
    assert found == [
        expected(record) for record in in_log if start <= record.offset < end and record.topic.encode() in wanted
    ]
    assert writer.records == len(found)
    assert covered[0][0] == start
    assert covered[-1][1] == end
    assert all(one[1] == other[0] for one, other in pairwise(covered))


@given(st.lists(one_message, min_size=1, max_size=12), st.integers(1, 300), st.integers(1, 30_000))
def test_a_consumer_that_goes_on_behind_each_answer_gets_all(
    messages: list[tuple[bytes, bytes, bytes, int, int]], per_block: int, bytes_max: int
) -> None:
    blocks = blocks_of(messages, per_block, 0)
    in_log = list(records(blocks))
    found: list[tuple[Any, ...]] = []
    offset = 0
    while offset < len(in_log):
        writer = written(blocks, offset, len(in_log), TopicJudge(), bytes_max)
        answer = writer.take()
        part, covered = read_batches(answer)
        largest = max(len(record[2]) + len(record[3]) for record in part)
        assert sum(map(len, answer)) <= bytes_max + largest + 200 + BATCH_BYTES
        assert covered[-1][1] == writer.next_offset > offset
        found += part
        offset = writer.next_offset
    assert found == [expected(record) for record in in_log]


def test_records_that_are_left_out_are_covered() -> None:
    blocks = blocks_of([(b"a", b"x", b"", 0, 5_000)], 5_000, 10)
    writer = written(blocks, 10, 5_010, Topics(set()))
    assert read_batches(writer.take()) == ([], [(10, 5_010)])
    assert writer.records == 0


def test_a_topic_is_judged_once_for_all_blocks_of_a_read() -> None:
    class Counted(TopicJudge):
        asked: list[bytes]

        def gets(self, topic: bytes) -> bool:
            self.asked.append(topic)
            return topic != b"no"

    judge = Counted()
    judge.asked = []
    messages = [(topic, b"x", b"", 0, 1) for topic in (b"yes", b"no") for _ in range(3)] * 2
    written(blocks_of(messages, 2, 0), 0, len(messages), judge)
    assert sorted(judge.asked) == [b"no", b"yes"]


def test_missing_offsets_are_covered() -> None:
    """The log misses the records before the block, and those that a read has passed."""
    blocks = blocks_of([(b"a", b"x", b"", 0, 3)], 3, 100)
    writer = written(blocks, 40, 200, TopicJudge())
    writer.pass_to(200)
    found, covered = read_batches(writer.take())
    assert [record[0] for record in found] == [100, 101, 102]
    assert covered == [(40, 200)]


def test_a_gap_that_one_batch_cannot_cover() -> None:
    writer = BatchWriter(0, 0, TopicJudge())
    writer.pass_to(3 * 2**31)
    found, covered = read_batches(writer.take())
    assert found == []
    assert (covered[0][0], covered[-1][1]) == (0, 3 * 2**31)


def test_blocks_that_follow_go_into_the_same_answer() -> None:
    first = blocks_of([(b"a", b"1", b"", 0, 7)], 7, 0)
    second = blocks_of([(b"a", b"2", b"", 0, 7)], 7, 7)
    writer = BatchWriter(0, 0, TopicJudge())
    for blocks, end in ((first, 7), (second, 14)):
        writer.begin(blocks, end, ALL)
        while writer.go_on():
            pass
    found, covered = read_batches(writer.take())
    assert [record[3] for record in found] == [b"1"] * 7 + [b"2"] * 7
    assert covered == [(0, 14)]


@pytest.mark.parametrize("value", [0, -1, 1, 63, 64, -64, -65, 8191, 8192, 2**31 - 1, -(2**31), 2**62])
def test_signed_varints(value: int) -> None:
    assert Taken(varint(value)).varint() == value


def test_slices_count_the_judgement_of_a_topic_once_for_all_blocks() -> None:
    """Blocks of many publishers have few records of each topic."""
    topics = [b"topic/%d" % number for number in range(50)]
    blocks = b""
    for number in range(20):
        builder = BlockBuilder()
        for topic in topics:
            builder.add(topic, b"payload", 1, ("", "", ""), b"", TIME)
        blocks += builder.take(number * len(topics))
    judged: list[bytes] = []

    class Judge(TopicJudge):
        def gets(self, topic: bytes) -> bool:
            judged.append(topic)
            return True

    writer = BatchWriter(0, 3, Judge())
    writer.begin(blocks, 1000, ALL)
    slices = 1
    while writer.go_on():
        slices += 1
    assert sorted(judged) == sorted(topics)
    steps = 20 * BLOCK_STEPS + 1000 + len(topics) * JUDGE_STEPS
    assert slices <= steps // SLICE_STEPS + 2
    assert len(read_batches(writer.take())[0]) == 1000
