"""Stamps of retained messages: in whatever order changes come, the same ones stay; and what two nodes tell each other."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.broker import Broker
from broker.config.settings import MqttSettings
from broker.message import NEVER, Message
from broker.routing.retained import RetainedMessage
from broker.store.journal import Journal
from broker.store.records import all_contents, encode_changes
from broker.store.restoring import Restoring
from federation.hybrid_clock import AHEAD_MAX, COUNTER_BITS
from federation.stream import retained_versions
from federation.stream.frames import (
    FrameError,
    decode_digest,
    decode_stamp,
    decode_stamps,
    encode_digest,
    encode_stamps,
)
from federation.stream.retained_versions import BUCKETS, PROCESS_BITS, RetainedVersions, clock_of, oldest_stamp

WALL = 1_700_000_000.0
DAY = 86_400.0
TOPICS = [b"t/%d" % number for number in range(6)]
Change = tuple[bytes, bytes, int]
"""(topic, payload, stamp)"""


class Station:
    """One broker with versions."""

    def __init__(self, seed: int = 1, wall: float = WALL, **limits: Any) -> None:
        self.broker = Broker(replace(MqttSettings(), **limits), random.Random(seed), 0.0)
        self.broker.wall_offset = wall
        self.versions = RetainedVersions(self.broker, 30 * DAY)
        self.journal: Journal | None = None

    def publish(self, topic: bytes, payload: bytes, now: float = 0.0, expires_at: float = NEVER) -> int:
        """A client's; the stamp."""
        self.broker.now = now
        message = Message(topic, payload, 1, True, b"", expires_at)
        return self.broker.router.store_retained(message, now).stamp

    def take(self, *changes: Change) -> None:
        for topic, payload, stamp in changes:
            self.broker.retained.put(RetainedMessage(Message(topic, payload, 1, True), stamp))

    def held(self) -> dict[bytes, bytes]:
        return {message.topic: message.payload for message in self.broker.retained.messages()}

    def state(self) -> tuple[dict[bytes, bytes], list[tuple[bytes, int]], bytes]:
        versions = self.versions
        return self.held(), sorted((topic, versions.stamp_of(topic)) for topic in versions.topics()), versions.digests()

    def tell(self, other: Station) -> int:
        """The digests of this node go to the other one, which answers with stamps; then comes what is newer here. The number of
        messages."""
        told = 0
        for part in other.versions.differing(self.versions.digests()):
            frame = encode_stamps(part << 54, (part + 1 << 54) - 1, other.versions.listed(part), other.versions.is_full)
            low, high, theirs = decode_stamps(frame, 6, len(frame))
            for topic in self.versions.newer(low, high, theirs, frame[1] != 0):
                message = self.versions.message(topic, self.broker.now)
                assert message is not None
                other.broker.retained.put(RetainedMessage(message, message.stamp))
                told += 1
        return told


def stamp_at(seconds: float, process: int = 7, count: int = 0) -> int:
    return ((int(seconds * 1000) << COUNTER_BITS) + count << PROCESS_BITS) + process


CHANGES = st.lists(
    st.builds(
        lambda topic, second, process: (
            topic,
            b"" if (second + process) % 3 == 0 else b"%d %d" % (second, process),
            stamp_at(WALL + second, process),
        ),
        st.sampled_from(TOPICS),
        st.integers(0, 20),
        st.integers(1, 4),
    ),
    max_size=20,
)


@given(CHANGES, st.randoms(use_true_random=False))
def test_the_order_of_changes_and_their_repetition_make_no_difference(
    changes: list[Change], rng: random.Random
) -> None:
    one, other = Station(1), Station(2)
    one.take(*changes)
    other.take(*rng.sample(changes, len(changes)), *changes)
    assert one.state() == other.state()
    for topic in TOPICS:
        of_topic = [change for change in changes if change[0] == topic]
        newest = max(of_topic, key=lambda change: change[2], default=(topic, b"", 0))
        assert one.held().get(topic, b"") == newest[1]


@given(CHANGES, CHANGES, CHANGES)
def test_it_makes_no_difference_who_tells_whom_first(a: list[Change], b: list[Change], c: list[Change]) -> None:
    found = []
    for order in permutations(range(3)):
        stations = [Station(number) for number in range(3)]
        for station, changes in zip(stations, (a, b, c), strict=True):
            station.take(*changes)
        first, second, third = (stations[number] for number in order)
        for source, target in ((first, second), (second, third), (third, first), (first, second)):
            source.tell(target)
            target.tell(source)
        assert first.tell(second) == second.tell(third) == third.tell(first) == 0
        found += [station.state() for station in stations]
    assert all(state == found[0] for state in found)


@given(st.lists(st.tuples(st.booleans(), st.floats(-2e9, 2e9)), min_size=1, max_size=10))
def test_a_node_sees_its_own_writes_whatever_its_clock_does(steps: list[tuple[bool, float]]) -> None:
    station = Station()
    last = 0
    for number, (jumps, seconds) in enumerate(steps):
        if jumps:
            station.broker.wall_offset = WALL + seconds
        stamp = station.publish(b"t", b"%d" % number)
        assert stamp > last
        assert station.held() == {b"t": b"%d" % number}
        last = stamp


def test_only_what_differs_is_told() -> None:
    one, other = Station(1), Station(2)
    for number in range(3_000):
        one.publish(b"r/%d" % number, b"x", number / 1000)
    assert one.tell(other) == 3_000
    one.publish(b"r/7", b"", 5.0)
    other.publish(b"r/8", b"newer", 5.0)
    assert one.tell(other) == 1
    assert other.tell(one) == 1
    assert one.state() == other.state()
    assert one.tell(other) == other.tell(one) == 0
    assert one.held()[b"r/8"] == b"newer"
    assert b"r/7" not in other.held()


def test_a_message_that_has_expired_is_gone_everywhere_and_its_topic_does_not_come_back() -> None:
    one, other = Station(1), Station(2)
    one.publish(b"t", b"old")
    one.tell(other)
    one.publish(b"t", b"new", 1.0, expires_at=5.0)
    digests = one.versions.digests()
    one.broker.now = 6.0
    one.broker.retained.expire(6.0)
    assert one.versions.digests() == digests, "another node may not have looked at its clock yet"
    one.tell(other)
    assert other.held() == {}


def test_a_tombstone_ends_and_an_older_value_may_come_then() -> None:
    station = Station()
    station.publish(b"t", b"")
    old = (b"t", b"old", stamp_at(WALL - 1))
    station.take(old)
    assert station.held() == {}
    station.publish(b"other", b"x", 30 * DAY + 1)
    assert station.versions.tombstones == 0
    station.take(old)
    assert b"t" in station.held()
    assert station.versions.tombstones_dropped == 0


@pytest.mark.interpreted  # it shortens a constant
@pytest.mark.parametrize("bound", ["TOMBSTONES_MAX", "TOMBSTONE_BYTES_MAX"])
def test_the_oldest_tombstones_make_room_and_are_counted(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained_versions, bound, 10 * (4 if "BYTES" in bound else 1))
    one, other = Station(1), Station(2)
    changes = [(b"t/%02d" % number, b"", stamp_at(WALL + number)) for number in range(15)]
    one.take(*changes)
    other.take(*reversed(changes))
    assert one.versions.tombstones == 10
    assert one.versions.tombstones_dropped == 5
    assert one.state() == other.state(), "all nodes forget the same ones"
    assert one.versions.topics() == [topic for topic, _, _ in changes[5:]]


def test_topics_that_are_deleted_again_and_again_take_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained_versions, "TOMBSTONES_MAX", 10)
    station = Station()
    for number in range(1_000):
        station.publish(b"t", b"", number / 1000)
        station.publish(b"t", b"x" * (number % 2), number / 1000)
    assert len(station.versions._ages) <= 2 + 2 * station.versions.tombstones + 10


def test_a_clock_that_is_far_ahead_is_refused_and_stamped_anew_where_it_was() -> None:
    good, third, wrong = Station(1), Station(2), Station(3, WALL + 3_600.0)
    wrong.publish(b"t", b"ahead")
    assert wrong.tell(good) == 1
    assert good.held() == {}
    assert good.versions.refused_ahead == 1
    for station in (good, third):
        wrong.versions.heard(str(id(station)), WALL, 0.0)
    assert wrong.versions.stamped_anew == 1
    assert wrong.held() == {b"t": b"ahead"}
    wrong.tell(good)
    assert good.held() == {b"t": b"ahead"}
    good.publish(b"t", b"later", 1.0)
    good.tell(wrong)
    assert wrong.held() == {b"t": b"later"}


def test_a_clock_that_is_a_little_ahead_is_believed_and_the_next_write_is_behind_it() -> None:
    good, fast = Station(1), Station(2, WALL + AHEAD_MAX - 1)
    fast.publish(b"t", b"fast")
    fast.tell(good)
    stamp = good.publish(b"t", b"good", 0.5)
    assert clock_of(stamp) > clock_of(stamp_at(WALL + AHEAD_MAX - 1))
    good.tell(fast)
    assert fast.held() == {b"t": b"good"}


def test_a_message_of_a_link_keeps_its_time() -> None:
    one, other = Station(1), Station(2)
    time_ms = int(WALL * 1000) - 5_000
    late = one.versions.next_stamp(b"t", time_ms, 0.0)
    here = other.publish(b"t", b"later")
    assert late < here
    one.take((b"t", b"late", late))
    assert one.versions.next_stamp(b"t", time_ms, 0.0) > late, "the next one of the same millisecond"


def test_a_full_node_asks_for_no_new_topics_until_there_is_room() -> None:
    one, full = Station(1), Station(2, max_retained_messages=10)
    for number in range(30):
        one.publish(b"%d" % number, b"x")
    assert one.tell(full) == 11, "the first one that is refused ends it"
    assert one.tell(full) == 0
    assert len(full.held()) == 10
    assert full.versions.is_full
    topic = next(iter(full.held()))
    one.publish(topic, b"newer", 1.0)
    assert one.tell(full) == 1
    assert full.held()[topic] == b"newer"
    for other in list(full.held())[:2]:
        full.publish(other, b"", 2.0)
    assert one.tell(full) > 2


def test_what_is_older_than_stamps_starts_equal_or_converges() -> None:
    same, first, second = (Message(b"t", payload, 1, True) for payload in (b"same", b"first", b"second"))
    stations = []
    for number, message in enumerate((same, same, first, second)):
        broker = Broker(MqttSettings(), random.Random(number), 0.0)
        broker.wall_offset = WALL
        broker.retained.put(message.copy())
        station = Station(number)
        station.broker = broker
        station.versions = RetainedVersions(broker, DAY)
        stations.append(station)
    assert stations[0].tell(stations[1]) == 0
    stations[2].tell(stations[3])
    stations[3].tell(stations[2])
    assert stations[2].held() == stations[3].held()
    newer = Station(9)
    newer.publish(b"t", b"stamped")
    newer.tell(stations[2])
    assert stations[2].held() == {b"t": b"stamped"}
    assert 0 < oldest_stamp(first) < 1 << PROCESS_BITS


def test_stamps_and_tombstones_outlive_the_process() -> None:
    def start(records: dict[int, tuple[object, ...]], seed: int) -> Station:
        station = Station(seed)
        restoring = Restoring(station.broker, WALL, 0.0)
        for number in sorted(records):
            restoring.add(number, records[number])
        station.journal = restoring.end()
        station.versions.begin()
        station.versions.restore(station.journal)
        return station

    def stored(station: Station) -> dict[int, tuple[object, ...]]:
        found = encode_changes(all_contents(station.broker), WALL)
        return {number: record for number, record in found.items() if record is not None}

    first = start({}, 1)
    for number in range(4):
        first.publish(b"t/%d" % number, b"x")
    first.publish(b"t/0", b"", 1.0)
    first.publish(b"t/1", b"", 1.0)
    first.publish(b"t/1", b"again", 2.0)
    records = stored(first)
    second = start(records, 2)
    assert second.state() == first.state()
    assert second.versions.tombstones == 1
    assert stored(second).keys() != records.keys(), "its records are new ones"
    assert second.publish(b"t/2", b"y", -3_600.0) > first.versions.stamp_of(b"t/2"), "although the clock was set back"
    third = start(stored(second), 3)
    assert third.state() == second.state()
    # Records of the version before have no stamps.
    before = {number: record[:8] if record[0] == 6 else record for number, record in records.items() if record[0] != 11}
    fourth, fifth = start(before, 4), start(before, 5)
    assert fourth.held() == first.held()
    assert fourth.versions.digests() == fifth.versions.digests()
    first.tell(fourth)
    assert fourth.state() == first.state()


@pytest.mark.parametrize("size", [1, 15, 17])
def test_frames_of_other_sizes_are_refused(size: int) -> None:
    with pytest.raises(FrameError, match="stamp"):
        decode_stamp(bytes(size))
    with pytest.raises(FrameError, match="stamps"):
        decode_stamps(bytes(16 + size), 0, 16 + size)
    with pytest.raises(FrameError, match="digest"):
        decode_digest(bytes(7), 0, 7)
    with pytest.raises(FrameError, match=str(BUCKETS * 8)):
        Station().versions.differing(bytes(size))
    with pytest.raises(FrameError, match="several parts"):
        Station().versions.newer(0, 1 << 60, {}, False)


def test_a_digest_carries_the_clock_of_its_node() -> None:
    frame = encode_digest(WALL, b"digests")
    assert decode_digest(frame, 6, len(frame)) == (WALL, b"digests")
    assert decode_stamp(b"") == 0
