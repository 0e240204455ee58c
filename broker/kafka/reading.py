"""The requests of those who read: Metadata, ListOffsets, OffsetForLeaderEpoch, Fetch."""

# not a core: waits for the log
from __future__ import annotations

import asyncio
import time
from functools import partial
from random import Random
from typing import Final

from broker.event_log.faults import LogFault, OutOfRange
from broker.event_log.turns import Party
from broker.kafka import error_codes as errors
from broker.kafka.asked_partitions import Asked, Passed, answer_each, in_turns
from broker.kafka.batches import BatchWriter
from broker.kafka.fetch_sessions import NO_SESSION, FetchAsked, FetchSessions, Wanted
from broker.kafka.fields import Values
from broker.kafka.node import Consumer, KafkaNode, KafkaTopic
from broker.kafka.partitions import NOBODY

FETCH_BYTES_MAX: Final = 2**20
"""Of one answer, whatever the consumer asks for; a larger record comes all the same."""
FIRST_FETCH_BYTES: Final = 2**16
"""Of the first answers on a connection. Policy: a further one has as many bytes as the client has taken so far. One that reads
nothing costs little then, whatever the kernel takes for it."""
SLICE_SECONDS: Final = 1e-4  # of making an answer, at once
WAKE_SECONDS: Final = 0.001
"""For each Fetch that waits for records, before one of them looks at what was written: all of them together look a thousand
times a second at most, however many there are and however often publishers write."""
FOLLOWED_SECONDS: Final = 0.005
"""That a Fetch waits behind which another request has arrived, which is answered after it: the Java client sends a Fetch ahead,
and Spark then asks for the end of the log."""
WAIT_SECONDS_MAX: Final = 30.0  # of a Fetch, whatever the consumer asks for
EARLIEST: Final = -2
LATEST: Final = -1
NO_TIME: Final = -1
NO_OFFSET: Final = -1
MILLISECOND_NS: Final = 1_000_000
NOTHING_PASSED: Final = Passed(NO_OFFSET, NO_OFFSET, 0)


class Progress:
    """One partition of a Fetch.

    error    or NONE
    writer   None for a partition that cannot be read
    begun    where it was asked for: what was read is not in here
    is_full  the answer has what fits of it
    """

    def __init__(
        self, error: int, writer: BatchWriter | None = None, bytes_max: int = 0, begun: Passed = NOTHING_PASSED
    ) -> None:
        self.error = error
        self.writer = writer
        self.bytes_max = bytes_max
        self.begun = begun
        self.is_full = False

    @property
    def size(self) -> int:
        return 0 if self.writer is None else self.writer.total


class Reading:
    """Answers the requests of all consumers. Totals: records, bytes of Fetch."""

    def __init__(self, node: KafkaNode, rng: Random) -> None:
        self.node = node
        self.sessions = FetchSessions(rng, node.topics)
        self.records = 0
        self.bytes = 0
        self._first = 0
        self._waiting = 0

    # --- Metadata ---

    async def metadata(self, asked: Asked) -> Values:
        partitions = self.node.partitions()
        topics = asked.values["topics"]
        is_all = topics is None or (not topics and asked.version == 0)
        names = self.node.topics if is_all else [topic["name"] for topic in topics]
        answers: list[Values] = []
        listed = [
            {
                "error_code": errors.NONE if partition.is_alive else errors.LEADER_NOT_AVAILABLE,
                "partition_index": partition.number,
                "leader_id": partition.number if partition.is_alive else NOBODY,
                "leader_epoch": partition.epoch,
                "replica_nodes": [partition.number],
                "isr_nodes": [partition.number] if partition.is_alive else [],
                "offline_replicas": [] if partition.is_alive else [partition.number],
            }
            for partition in partitions
        ]
        starting = errors.NONE if partitions else errors.LEADER_NOT_AVAILABLE
        for name, error in self.node.topic_errors(names, asked.identity).items():
            if not (is_all and error):
                answers.append({"error_code": error or starting, "name": name, "partitions": [] if error else listed})
        alive = [partition for partition in partitions if partition.is_alive]
        return {
            "brokers": [{"node_id": each.number, "host": each.host, "port": each.port, "rack": None} for each in alive],
            "cluster_id": None,
            "controller_id": alive[0].number if alive else NOBODY,
            "topics": answers,
        }

    def _partition_error(self, topic_error: int, index: int, epoch: int) -> int:
        """The error of a request for a partition that this node must lead. `epoch`: as the consumer knows it, or -1."""
        if topic_error:
            return topic_error
        if index != self.node.own_partition():
            count = len(self.node.partitions())
            is_known = 0 <= index < count or not count
            return errors.NOT_LEADER_OR_FOLLOWER if is_known else errors.UNKNOWN_TOPIC_OR_PARTITION
        if 0 <= epoch < self.node.epoch:
            return errors.FENCED_LEADER_EPOCH
        return errors.UNKNOWN_LEADER_EPOCH if epoch > self.node.epoch else errors.NONE

    # --- offsets ---

    async def list_offsets(self, asked: Asked) -> Values:
        topics = asked.values["topics"]
        topic_errors = self.node.topic_errors((topic["name"] for topic in topics), asked.identity)

        async def answer(name: str, each: Values) -> Values:
            epoch = each.get("current_leader_epoch", -1)
            error = self._partition_error(topic_errors[name], each["partition_index"], epoch)
            time_ms, offset = NO_TIME, NO_OFFSET
            if not error:
                try:
                    time_ms, offset = await self._find(each["timestamp"], asked.party)
                except LogFault:
                    error = errors.KAFKA_STORAGE_ERROR
            return {"error_code": error, "timestamp": time_ms, "offset": offset, "leader_epoch": self.node.epoch}

        return {"topics": await answer_each(topics, ("name", "partition_index"), answer)}

    async def _find(self, timestamp: int, party: Party) -> tuple[int, int]:
        """(milliseconds, offset) of the first record of this time or later, (-1, -1) for none. Raises LogFault."""
        log = self.node.log
        if timestamp == LATEST:
            return NO_TIME, log.next_offset
        if timestamp == EARLIEST:
            return NO_TIME, log.first_offset
        offset, time_ns = await log.readers.find_record(log.log_id, max(timestamp, 0) * MILLISECOND_NS, party)
        return (time_ns // MILLISECOND_NS, offset) if time_ns else (NO_TIME, NO_OFFSET)

    async def epoch_ends(self, asked: Asked) -> Values:
        """Return where a leader epoch ended: the first offset that may differ from what a consumer has read (KIP-320)."""
        log = self.node.log
        topics = asked.values["topics"]
        topic_errors = self.node.topic_errors((topic["topic"] for topic in topics), asked.identity)

        async def answer(name: str, each: Values) -> Values:
            epoch = each["leader_epoch"]
            error = self._partition_error(topic_errors[name], each["partition"], each["current_leader_epoch"])
            end = NO_OFFSET
            if not error and epoch == self.node.epoch:
                end = log.next_offset
            elif not error and 0 <= epoch < self.node.epoch:
                end = self.node.epoch_end(epoch)
            return {"error_code": error, "leader_epoch": NOBODY if end == NO_OFFSET else epoch, "end_offset": end}

        return {"topics": await answer_each(topics, ("topic", "partition"), answer)}

    # --- Fetch ---

    async def fetch(self, asked: Asked) -> Values:
        fetch = self.sessions.asked(asked.values, self.node.now())
        if fetch.error:
            return {"error_code": fetch.error, "responses": []}
        topic_errors = self.node.topic_errors((name for name, _ in fetch.wanted), asked.identity)
        found: dict[tuple[str, int], Progress] = {}
        async for (name, index), wanted in in_turns(list(fetch.wanted.items())):
            error = self._partition_error(topic_errors[name], index, wanted.leader_epoch)
            found[name, index] = Progress(error) if error else self._begin(name, wanted, asked)
        await self._fill(found, asked)
        return self._answer(found, fetch, asked)

    def _begin(self, name: str, wanted: Wanted, asked: Asked) -> Progress:
        log = self.node.log
        if not log.first_offset <= wanted.offset <= log.next_offset:
            return Progress(errors.OFFSET_OUT_OF_RANGE)
        judge = Consumer(self.node, asked.identity, self.node.topics[name])
        writer = BatchWriter(wanted.offset, self.node.epoch, judge)
        begun = Passed(wanted.offset, wanted.offset, self.node.rules)
        passed = asked.passed.get(name, begun)
        if (passed.offset, passed.rules) == (begun.offset, begun.rules):
            writer.pass_to(passed.next_offset)
        return Progress(errors.NONE, writer, max(wanted.bytes_max, 1), begun)

    async def _fill(self, found: dict[tuple[str, int], Progress], asked: Asked) -> None:
        """Read until there are `min_bytes`, or what fits of a partition, or an error, or the time is over."""
        request, followed = asked.values, asked.followed
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        deadline: float = began_at + min(max(request["max_wait_ms"], 0) / 1000, WAIT_SECONDS_MAX)

        def left() -> float:
            end = min(deadline, began_at + FOLLOWED_SECONDS) if followed.done() else deadline
            return max(end - loop.time(), 0.0)

        bytes_max = min(max(request["max_bytes"], 1), FETCH_BYTES_MAX, max(asked.taken, FIRST_FETCH_BYTES))
        bytes_min = min(max(request["min_bytes"], 0), bytes_max)
        log = self.node.log
        self._first += 1  # of several partitions another one is first each time: one with many records starves none
        order = [(self.node.topics[name], each) for (name, _), each in found.items() if each.writer is not None]
        first = self._first % max(len(order), 1)
        order = order[first:] + order[:first]
        while True:
            grown = log.when_grown()
            for topic, progress in order:
                room = bytes_max - sum(each.size for _, each in order)
                if progress.writer is not None and room > 0:
                    await self._read(progress, topic, room, deadline, asked.party)
            size = sum(progress.size for _, progress in order)
            if size >= bytes_min or any(progress.error or progress.is_full for progress in found.values()):
                return
            if not left():
                return
            self._waiting += 1
            try:
                waited_for = [grown] if followed.done() else [grown, followed]
                await asyncio.wait(waited_for, timeout=left(), return_when=asyncio.FIRST_COMPLETED)
                pause = min(WAKE_SECONDS * self._waiting, left())
                if pause > FOLLOWED_SECONDS:
                    await asyncio.wait([followed], timeout=pause)
                else:
                    await asyncio.sleep(pause)
            finally:
                self._waiting -= 1

    async def _read(self, progress: Progress, topic: KafkaTopic, room: int, deadline: float, party: Party) -> None:
        """Read one partition to the end of the log, as far as there is room. The read that passes the deadline is the last
        one: the next Fetch goes on behind it."""
        loop = asyncio.get_running_loop()
        log = self.node.log
        writer = progress.writer
        assert writer is not None
        room = min(room, progress.bytes_max - writer.total)
        bytes_max = writer.total + room
        while room > 0 and writer.next_offset < log.next_offset:
            end = log.next_offset
            try:
                blocks, following = await log.readers.read(
                    log.log_id, writer.next_offset, end, room, (topic.topic_filter,), party
                )
            except OutOfRange:  # the retention was faster
                progress.error = errors.OFFSET_OUT_OF_RANGE
                progress.writer = None
                return
            except LogFault:
                progress.error = errors.KAFKA_STORAGE_ERROR
                progress.writer = None
                return
            writer.begin(blocks, end, bytes_max)
            while await party.do(partial(_go_on, writer)):
                pass
            if writer.is_full or 2 * writer.total > bytes_max:
                # Most blocks are large: of one more, what does not fit would be read again by the next Fetch.
                progress.is_full = True
                return
            writer.pass_to(following)
            if loop.time() >= deadline:
                return
            room = bytes_max - writer.total

    def _answer(self, found: dict[tuple[str, int], Progress], fetch: FetchAsked, asked: Asked) -> Values:
        log = self.node.log
        session = fetch.session
        topics: dict[str, list[Values]] = {}
        for (name, index), progress in found.items():
            data = [] if progress.writer is None else progress.writer.take()
            if progress.writer is not None:
                self.records += progress.writer.records
                self.bytes += progress.writer.size
                if not progress.writer.records:
                    asked.passed[name] = progress.begun._replace(next_offset=progress.writer.next_offset)
            has_log = progress.writer is not None or progress.error == errors.OFFSET_OUT_OF_RANGE
            watermark, start = (log.next_offset, log.first_offset) if has_log else (-1, -1)
            is_told = session is None or session.must_tell((name, index), progress.error, watermark, start, bool(data))
            if is_told or fetch.is_full:
                topics.setdefault(name, []).append(
                    {
                        "partition_index": index,
                        "error_code": progress.error,
                        "high_watermark": watermark,
                        "last_stable_offset": watermark,
                        "log_start_offset": start,
                        "aborted_transactions": [],
                        "records": data,
                    }
                )
        return {
            "session_id": NO_SESSION if session is None else session.number,
            "responses": [{"topic": name, "partitions": partitions} for name, partitions in topics.items()],
        }


def _go_on(writer: BatchWriter) -> bool:
    """Make batches for SLICE_SECONDS. Returns whether more is to be done."""
    end = time.perf_counter() + SLICE_SECONDS
    while writer.go_on():
        if time.perf_counter() >= end:
            return True
    return False
