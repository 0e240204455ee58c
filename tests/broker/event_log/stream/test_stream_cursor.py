"""Blocks become messages as a naive reader takes them from the list of records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec.packets import Publish
from broker.codec.properties import get_user_properties, publish_properties_to_dict
from broker.codec.reader import PacketReader
from broker.codec.runs import Run
from broker.event_log.block import NO_EXPIRY
from broker.event_log.selection import Selection
from broker.event_log.stream import parsed
from broker.event_log.stream.parsed import SECTIONS_AT_ONCE, Cursor, last_records
from broker.message import NEVER, Message, Publication
from broker.routing.names import filter_matches
from stream_logs import CLIENTS, FILTERS, TIME, TOPICS, Entry, OneReader, TestLog, entries, messages_of


def read_all(cursor: Cursor, log: TestLog, now: float = 0.0) -> list[tuple[int, bytes, bytes, int, str]]:
    found = []
    while (portion := log.read(cursor.offset, len(log.records))) is not None:
        cursor.load(portion.blocks, portion.next_offset, TIME / 1e9)
        while cursor.find() or cursor.is_resting:
            if not cursor.is_resting:
                message = cursor.take(now)
                first = cursor.found_offset
                if message is not None:
                    found += [
                        (first + index, one.topic, one.payload, one.qos, one.client_id)
                        for index, one in enumerate(messages_of(message))
                    ]
    return found


@given(
    entries,
    st.integers(1, 6),
    st.sampled_from(FILTERS),
    st.sets(st.sampled_from(TOPICS)),
    st.sets(st.sampled_from(CLIENTS)),
    st.integers(0, 30),
    st.sampled_from((4, 5)),
)
def test_the_records_that_the_client_wants_and_may_read_come_in_order(
    records: list[Entry],
    size: int,
    topic_filter: bytes,
    denied: set[bytes],
    unwanted: set[str],
    start: int,
    version: int,
) -> None:
    log = TestLog("n1", records, size)
    cursor = Cursor(topic_filter, OneReader(version, tuple(denied), tuple(unwanted)), "n1")
    cursor.offset = start
    assert read_all(cursor, log) == [
        (offset, entry.topic, entry.payload, log.qos(offset), entry.client_id)
        for offset, entry in enumerate(records)
        if offset >= start
        and filter_matches(topic_filter, entry.topic)
        and entry.topic not in denied
        and entry.client_id not in unwanted
    ]
    assert cursor.offset == max(start, len(records))


@given(entries, st.integers(1, 6), st.integers(0, 25), st.sampled_from(FILTERS))
def test_last_gives_the_last_record_of_each_topic_and_then_all(
    records: list[Entry], size: int, barrier: int, topic_filter: bytes
) -> None:
    log = TestLog("n1", records, size)
    cursor = Cursor(topic_filter, OneReader(), "n1")
    found: dict[bytes, tuple[int, int]] = {}
    at = 0
    while (portion := log.read(at, len(records), 1)) is not None:
        last_records(portion, Selection([topic_filter]), barrier, found)
        at = portion.next_offset
    cursor.wanted_before = barrier
    cursor.last = {topic: offset for topic, (_, offset) in found.items()}
    matching = [offset for offset, entry in enumerate(records) if filter_matches(topic_filter, entry.topic)]
    before = [offset for offset in matching if offset < barrier]
    last = {records[offset].topic: offset for offset in before}
    wanted = sorted(last.values()) + [offset for offset in matching if offset >= barrier]
    assert [offset for offset, *_ in read_all(cursor, log)] == wanted
    assert all(log.times[offset] == time_ns for time_ns, offset in found.values())


def test_a_message_tells_mqtt_5_clients_its_place_and_expires_as_published() -> None:
    log = TestLog("n1", [Entry(b"a", b"x", 1, "c", 1, 60), Entry(b"a", b"y", 2, "c", 1, NO_EXPIRY)], 2)
    cursor = Cursor(b"#", OneReader(5), "n1")
    portion = log.read(0, 2)
    assert portion is not None
    cursor.load(portion.blocks, 2, TIME / 1e9)
    assert cursor.find()
    message = cursor.take(50.0)
    assert isinstance(message, Message)
    assert round(message.expires_at) == 60
    assert get_user_properties(publish_properties_to_dict(message.properties)) == [
        ("node", "n1"),
        ("offset", "0"),
        ("time", "2023-11-14T22:13:20.000001Z"),
    ]
    assert message.properties.startswith(b"\x01\x01")
    assert cursor.find()
    second = cursor.take(50.0)
    assert isinstance(second, Message)
    assert second.expires_at == NEVER
    cursor.offset = 0
    cursor.load(portion.blocks, 2, TIME / 1e9)
    assert cursor.find()
    assert cursor.take(61.0) is None
    assert cursor.expired == 1


@pytest.mark.interpreted
def test_a_message_that_is_as_large_as_a_packet_may_be_comes_without_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parsed, "PLACED_MAX", 300)
    log = TestLog("n1", [Entry(b"t", bytes(size), 1, "c", 1, NO_EXPIRY) for size in (100, 299)], 2)
    cursor = Cursor(b"#", OneReader(5), "n1")
    portion = log.read(0, 2)
    assert portion is not None
    cursor.load(portion.blocks, portion.next_offset, TIME / 1e9)
    found: list[tuple[int, bool]] = []
    while cursor.find():
        message = cursor.take(0.0)
        assert isinstance(message, Message)
        found.append((len(message.payload), b"offset" in message.properties))
    assert found == [(100, True), (299, False)]


def test_what_was_found_is_judged_again_when_the_rules_change() -> None:
    log = TestLog("n1", [Entry(topic, b"x", 1, "c", 1, NO_EXPIRY) for topic in (b"a", b"b", b"a")], 3)
    reader = OneReader()
    cursor = Cursor(b"#", reader, "n1")
    portion = log.read(0, 3)
    assert portion is not None
    cursor.load(portion.blocks, 3, 0.0)
    assert (cursor.find(), cursor.found_offset) == (True, 0)
    reader.denied, reader.number = (b"a",), 2
    assert (cursor.find(), cursor.found_offset) == (True, 1)
    reader.denied, reader.number = (), 3
    assert cursor.take(0.0) is not None
    assert (cursor.find(), cursor.found_offset) == (True, 2)


def test_a_search_rests_and_goes_on() -> None:
    """A block without a record for the client takes a share of several turns."""
    count = 3 * SECTIONS_AT_ONCE
    log = TestLog("n1", [Entry(b"a%d" % (n % 2), b"x", 0, "c", 1, NO_EXPIRY, False) for n in range(count)], count)
    cursor = Cursor(b"none", OneReader(), "n1")
    portion = log.read(0, count)
    assert portion is not None
    cursor.load(portion.blocks, count, 0.0)
    rests = 0
    while not cursor.find() and cursor.is_resting:
        rests += 1
        assert cursor.steps >= SECTIONS_AT_ONCE
    assert (rests, cursor.offset) == (2, count)


@pytest.mark.parametrize(("form", "version", "counts"), [(4, 4, [256, 44]), (5, 4, [1] * 300), (4, 5, [10, 90, 200])])
def test_records_that_follow_each_other_are_runs(form: int, version: int, counts: list[int]) -> None:
    """To clients of MQTT 3.1.1 packets go as they were; those of MQTT 5 tell the offset."""
    log = TestLog("n1", [Entry(b"a", b"%03d" % number, 0, "c", 0, NO_EXPIRY, form) for number in range(300)], 300)
    cursor = Cursor(b"#", OneReader(version), "n1")
    portion = log.read(0, 300)
    assert portion is not None
    cursor.load(portion.blocks, 300, 0.0)
    found: list[Publication] = []
    while cursor.find():
        publication = cursor.take(0.0)
        assert publication is not None
        found.append(publication)
    assert [publication.count for publication in found] == counts
    packets: list[Publish] = []
    for publication in found:
        if isinstance(publication, Run):
            for data in (publication.encoded(version), *([publication.aliased(7)] if version == 5 else [])):
                decoded = PacketReader(version).receive_data(data)
                assert len(decoded) == publication.count
                packets += [packet for packet in decoded if isinstance(packet, Publish) and not packet.topic_alias]
            assert publication.packet_size * publication.count == len(publication.encoded(version))
            alone = [one.properties for one in publication.messages()]
            assert [packet.properties for packet in packets[-publication.count :]] == alone
    if packets:
        assert [(packet.topic, packet.payload) for packet in packets] == [(b"a", b"%03d" % n) for n in range(300)]
    if version == 5:
        offsets = [dict(get_user_properties(publish_properties_to_dict(packet.properties))) for packet in packets]
        assert [int(offset["offset"]) for offset in offsets] == list(range(300))
