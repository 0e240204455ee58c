"""The newest retained message of each topic, over all nodes, and the topics that were deleted.

Each change has a stamp: a hybrid clock (federation/hybrid_clock.py), and a number of the process that gave it, which is made
of its store id. The greatest stamp wins on every node, in whatever order the changes come. A deletion stays as a tombstone, so
that a node that was away does not bring the message back; so does a message that has expired. Tombstones end TOMBSTONE_SECONDS
before the newest change that is known, whatever the time is: nodes that know the same changes keep the same tombstones.

A stamp is that of the node where the change entered. What is older than stamps has OLDEST as its clock, and its content in
place of the process. So nodes that hold the same start equal, and others choose the same.

Topics belong to BUCKETS parts by their hash. Two nodes compare the digests of all parts, then the stamps in those that differ
(docs/protocol-extensions.md).
"""

# compiled with mypyc
from __future__ import annotations

from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import Final

from broker.broker import Broker
from broker.message import Message
from broker.routing.retained import STAMP_BYTES, RetainedMessage, Versions
from broker.store.journal import Content, Journal, StoredRecord, checked
from broker.store.kinds import TOMBSTONE
from federation.cluster_clock import ClusterClock
from federation.hybrid_clock import AHEAD_MAX, COUNTER_BITS, HybridClock, seconds_of
from federation.stream.frames import FrameError

TOMBSTONES_MAX: Final = 65_536  # the oldest ones are forgotten first, and counted
TOMBSTONE_BYTES_MAX: Final = 16 * 2**20  # of the topics of all tombstones
BUCKETS: Final = 1_024
HASH_BYTES: Final = 8
PROCESS_BITS: Final = 64  # of a stamp: its lower ones
BUCKET_SHIFT: Final = 54  # of a hash of 64 bits: the upper ones number the bucket
OLDEST: Final = 0  # clock of what is older than stamps
BUCKET_BYTES: Final = 8  # of a digest

Listed = tuple[int, int]
"""(hash of a topic, its stamp)"""


def hash_of(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=HASH_BYTES).digest(), "big")


def clock_of(stamp: int) -> int:
    return stamp >> PROCESS_BITS


def oldest_stamp(message: Message) -> int:
    """The stamp of a message that was retained before there were stamps."""
    return hash_of(b"%d %d %s%s" % (len(message.payload), message.qos, message.payload, message.properties)) or 1


class Tombstone(Content):
    """The deletion of a topic's message. record: its number in the store, 0 for none."""

    __slots__ = ("record", "stamp", "topic")

    def __init__(self, topic: bytes, stamp: int) -> None:
        self.topic = topic
        self.stamp = stamp
        self.record = 0

    def values(self, wall_offset: float) -> tuple[object, ...]:
        return TOMBSTONE, self.topic, self.stamp.to_bytes(STAMP_BYTES, "big")


class RetainedVersions(Versions):
    """Of the retained messages of a broker, which it follows from now on.

    cluster            the clocks of the other nodes
    is_full            a limit has refused a message, and little has become free since
    refused_ahead      changes that were not taken because the clock of their node was too far ahead
    stamped_anew       changes here that a wrong clock had stamped
    tombstones_dropped that were forgotten before their time, because there were too many
    """

    def __init__(self, broker: Broker, tombstone_seconds: float) -> None:
        self.cluster = ClusterClock()
        self.clock = HybridClock()
        self.refused_ahead = 0
        self.stamped_anew = 0
        self.tombstones_dropped = 0
        self._broker = broker
        self._retained = broker.retained
        self._tombstone_seconds = tombstone_seconds
        self._process = 0
        self._journal: Journal | None = None
        self._stamps: list[dict[bytes, int]] = [{} for _ in range(BUCKETS)]  # of messages and tombstones, by topic
        self._digests = [0] * BUCKETS
        self._tombstones: dict[bytes, Tombstone] = {}
        self._tombstone_bytes = 0
        self._ages: list[
            tuple[int, bytes]
        ] = []  # a heap of (stamp, topic); those of former tombstones stay for a while
        self._refused_seen = 0
        self._last_topic = b""
        self._last_part = hash_of(b"") >> BUCKET_SHIFT
        self._retained.versions = self
        self.begin()

    def begin(self) -> None:
        """The store has brought its retained messages, or there is none."""
        identity = self._broker.identity
        self._process = hash_of(b"%s %d" % (identity.store_id.encode(), identity.starts))
        for message in self._retained.messages():
            if not message.stamp:
                message.stamp = oldest_stamp(message)
            self.changed(message.topic, message.stamp, False)

    def restore(self, journal: Journal) -> None:
        """Take the tombstones of the store, and keep them there from now on. Raises ValueError or TypeError for a record that
        no node has written."""
        for number, content in list(journal.kept.items()):
            if isinstance(content, StoredRecord) and content.stored[0] == TOMBSTONE:
                _, topic, stamp = content.stored
                tombstone = Tombstone(checked(bytes, topic), int.from_bytes(checked(bytes, stamp), "big"))
                journal.drop(number)
                if self.takes(tombstone.topic, tombstone.stamp):
                    self.changed(tombstone.topic, tombstone.stamp, True)
        self._journal = journal
        for tombstone in self._tombstones.values():
            tombstone.record = journal.keep(tombstone)

    # --- the store's side

    def time(self, now: float) -> float:
        """Unix seconds to stamp with."""
        return self.cluster.time(now + self._broker.wall_offset)

    def time_ms(self, now: float) -> int:
        return max(int(self.time(now) * 1000), self.clock.latest >> COUNTER_BITS)

    def next_stamp(self, topic: bytes, time_ms: int, now: float) -> int:
        clock = time_ms << COUNTER_BITS
        if not time_ms:
            clock = self.clock.next(self.time(now))
        else:
            known = clock_of(self.stamp_of(topic))
            if known >> COUNTER_BITS == time_ms:
                clock = known + 1
        return (clock << PROCESS_BITS) + self._process

    def takes(self, topic: bytes, stamp: int) -> bool:
        if stamp <= self.stamp_of(topic):
            return False
        if seconds_of(clock_of(stamp)) > self.time(self._broker.now) + AHEAD_MAX and not self._is_own(stamp):
            self.refused_ahead += 1
            return False
        return True

    def _is_own(self, stamp: int) -> bool:
        return stamp & ((1 << PROCESS_BITS) - 1) == self._process

    def stamp_of(self, topic: bytes) -> int:
        """Of the newest change that is known of the topic, 0 for none."""
        return self._stamps[self._part_of(topic)].get(topic, 0)

    def _part_of(self, topic: bytes) -> int:
        """The number of its part; a change asks several times."""
        if topic != self._last_topic:
            self._last_topic = topic
            self._last_part = hash_of(topic) >> BUCKET_SHIFT
        return self._last_part

    def changed(self, topic: bytes, stamp: int, is_deletion: bool) -> None:
        self.forgotten(topic)
        self.clock.saw(clock_of(stamp))
        if is_deletion and self._is_over(stamp):
            return
        bucket = self._part_of(topic)
        self._stamps[bucket][topic] = stamp
        self._digests[bucket] ^= _digest(topic, stamp)
        if is_deletion:
            tombstone = self._tombstones[topic] = Tombstone(topic, stamp)
            self._tombstone_bytes += len(topic)
            heappush(self._ages, (stamp, topic))
            if self._journal is not None:
                tombstone.record = self._journal.keep(tombstone)
        self._drop_tombstones()

    def forgotten(self, topic: bytes) -> None:
        bucket = self._part_of(topic)
        stamp = self._stamps[bucket].pop(topic, None)
        if stamp is not None:
            self._digests[bucket] ^= _digest(topic, stamp)
        tombstone = self._tombstones.pop(topic, None)
        if tombstone is not None:
            self._tombstone_bytes -= len(topic)
            if self._journal is not None:
                self._journal.drop(tombstone.record)

    # --- tombstones

    def _is_over(self, stamp: int) -> bool:
        return seconds_of(clock_of(stamp)) + self._tombstone_seconds < seconds_of(self.clock.latest)

    def _drop_tombstones(self) -> None:
        """Forget those that are over, and the oldest ones above the bounds."""
        ages = self._ages
        tombstones = self._tombstones
        while ages:
            stamp, topic = ages[0]
            found = tombstones.get(topic)
            is_there = found is not None and found.stamp == stamp
            if is_there and not self._is_over(stamp):
                if len(tombstones) <= TOMBSTONES_MAX and self._tombstone_bytes <= TOMBSTONE_BYTES_MAX:
                    break
                self.tombstones_dropped += 1
            heappop(ages)
            if is_there:
                self.forgotten(topic)
        if len(ages) > 2 * len(tombstones) + TOMBSTONES_MAX:
            self._ages = [(tombstone.stamp, topic) for topic, tombstone in tombstones.items()]
            heapify(self._ages)

    @property
    def tombstones(self) -> int:
        return len(self._tombstones)

    # --- the state of this node, for others

    def topics(self) -> list[bytes]:
        """All topics of messages and of tombstones."""
        return [message.topic for message in self._retained.messages()] + list(self._tombstones)

    def message(self, topic: bytes, now: float) -> RetainedMessage | None:
        """The present value of a topic: without payload for one that was deleted, None where nothing is known."""
        held = self._retained.get(topic)
        if held is not None and held.expires_at > now:
            return held
        stamp = self.stamp_of(topic)
        return RetainedMessage(Message(topic, b"", 0, True), stamp) if stamp else None

    @property
    def is_full(self) -> bool:
        retained = self._retained
        if retained.refused == self._refused_seen:
            return False
        if len(retained) * 10 < retained.messages_max * 9 and retained.bytes * 10 < retained.bytes_max * 9:
            self._refused_seen = retained.refused
            return False
        return True

    # --- comparing

    def digests(self) -> bytes:
        """Those of all parts, one behind the other."""
        return b"".join([digest.to_bytes(BUCKET_BYTES, "big") for digest in self._digests])

    def differing(self, digests: bytes) -> list[int]:
        """The parts whose digest is another one. Raises FrameError for another number of parts."""
        if len(digests) != BUCKETS * BUCKET_BYTES:
            raise FrameError(f"digests of {len(digests)} bytes, not {BUCKETS * BUCKET_BYTES}")
        if digests == self.digests():
            return []
        return [
            bucket
            for bucket, digest in enumerate(self._digests)
            if digest != int.from_bytes(digests[bucket * BUCKET_BYTES : (bucket + 1) * BUCKET_BYTES], "big")
        ]

    def listed(self, bucket: int) -> list[Listed]:
        """All that is known in one part, in order."""
        return sorted([(hash_of(topic), stamp) for topic, stamp in self._stamps[bucket].items()])

    def newer(self, low: int, high: int, theirs: dict[int, int], only_theirs: bool) -> list[bytes]:
        """Topics with hashes from `low` to `high` whose change here is newer than that of another node,
        which has these stamps by the hashes. only_theirs: and no others than those of its topics. Raises FrameError for hashes
        of several parts."""
        if low >> BUCKET_SHIFT != high >> BUCKET_SHIFT:
            raise FrameError("stamps of several parts")
        found: list[bytes] = []
        for topic, stamp in self._stamps[low >> BUCKET_SHIFT].items():
            key = hash_of(topic)
            if low <= key <= high and stamp > theirs.get(key, 0) and (key in theirs or not only_theirs):
                found.append(topic)
        return found

    # --- clocks

    def heard(self, node: str, time: float, now: float) -> None:
        """Another node has told its clock, in Unix seconds."""
        self.cluster.heard(node, time, now + self._broker.wall_offset)
        self._correct(now)

    def _correct(self, now: float) -> None:
        """Stamp changes anew that are too far ahead of the time of all nodes: others refuse them."""
        limit = int((self.time(now) + AHEAD_MAX) * 1000) << COUNTER_BITS
        if self.clock.latest <= limit:
            return
        wrong: list[tuple[int, bytes]] = []
        self.clock.latest = 0
        for stamps in self._stamps:
            for topic, stamp in stamps.items():
                if clock_of(stamp) > limit:
                    wrong.append((stamp, topic))
                else:
                    self.clock.saw(clock_of(stamp))
        for _, topic in sorted(wrong):
            message = self._retained.get(topic)
            stamp = self.next_stamp(topic, 0, now)
            self.forgotten(topic)
            if message is None:
                self.changed(topic, stamp, True)
            else:
                self._retained.put(RetainedMessage(message, stamp))
        self.stamped_anew += len(wrong)


def _digest(topic: bytes, stamp: int) -> int:
    return hash_of(stamp.to_bytes(STAMP_BYTES, "big") + topic)
