"""Feeds of several logs: each log in its order, nothing missed or repeated, whatever order reads end in and wherever the client
goes away."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from broker.event_log.selection import Selection
from broker.event_log.stream.feed import AWAY, READING, READY, LogFeed, Strand
from broker.event_log.stream.parsed import last_records
from broker.event_log.stream.place import LogPlace, Place, decode_place
from broker.message import Message
from broker.routing.names import filter_matches
from stream_logs import Entry, OneReader, ScriptedLogs, TestLog, entries, messages_of, taken

NODES = ("n1", "n2", "n3")


def open_feed(logs: ScriptedLogs, place: Place, nodes: tuple[str, ...] = NODES) -> LogFeed:
    feed = LogFeed(OneReader(5), place, logs)
    for node in nodes:
        feed.add_strand(node)
    return feed


def place_of(message_properties: bytes) -> tuple[str, int]:
    """(node, offset) of a message."""
    _, _, rest = message_properties.partition(b"&\x00\x04node\x00\x02")
    node = rest[:2].decode()
    size = int.from_bytes(rest[11:13], "big")
    return node, int(rest[13 : 13 + size])


@given(st.tuples(entries, entries, entries), st.integers(1, 5), st.integers(0, 2**32))
def test_every_log_comes_whole_and_in_order(
    contents: tuple[list[Entry], list[Entry], list[Entry]], size: int, seed: int
) -> None:
    logs = {node: TestLog(node, records, size) for node, records in zip(NODES, contents, strict=True)}
    scripted = ScriptedLogs(logs)
    feed = open_feed(scripted, Place(b"#", "earliest", 0, False))
    rng = Random(seed)
    got: list[tuple[str, int]] = []
    for _ in range(300):
        is_all_read = all(scripted.ends[node] == len(log.records) for node, log in logs.items())
        step = rng.choice(("next", "take", "take", "serve", "grow", "leave", "evict"))
        if step == "take":
            message = feed.next(0.0)
            if message is not None:
                feed.taken()
                got += [place_of(one.properties) for one in messages_of(message)]
            elif is_all_read and not scripted.waiting:
                break
        elif step == "next":
            message = feed.next(0.0)  # the client has no room, or goes away now
            if message is not None:
                feed = reopened(scripted, feed)
        elif step == "serve" and scripted.waiting:
            scripted.serve(rng.choice(scripted.waiting))
        elif step == "grow":
            node = rng.choice(NODES)
            ends = [end for _, end, _ in logs[node].blocks if end >= scripted.ends[node]]
            if ends:
                scripted.grow(node, rng.choice(ends), feed)
        elif step == "leave":
            feed = reopened(scripted, feed)
        elif step == "evict":
            rng.choice(feed.strands).unload()
    for node, log in logs.items():
        scripted.grow(node, len(log.records), feed)
    while True:
        got += [place_of(message.properties) for message in taken(feed)]
        if not scripted.waiting:
            break
        for strand in list(scripted.waiting):
            scripted.serve(strand)
    for node, log in logs.items():
        wanted = [offset for offset, entry in enumerate(log.records) if not entry.topic.startswith(b"$")]
        assert [offset for found, offset in got if found == node] == wanted


def reopened(scripted: ScriptedLogs, feed: LogFeed) -> LogFeed:
    position = feed.position()
    feed.close()
    return open_feed(scripted, decode_place(position))


@given(st.tuples(entries, entries, entries), st.integers(1, 5))
def test_history_comes_in_the_order_of_time(contents: tuple[list[Entry], list[Entry], list[Entry]], size: int) -> None:
    logs = {node: TestLog(node, records, size) for node, records in zip(NODES, contents, strict=True)}
    scripted = ScriptedLogs(logs)
    scripted.ends = {node: len(log.records) for node, log in logs.items()}
    feed = open_feed(scripted, Place(b"#", "earliest", 0, False))
    got: list[tuple[str, int]] = []
    while True:
        got += [place_of(message.properties) for message in taken(feed)]
        if not scripted.waiting:
            break
        scripted.serve(scripted.waiting[-1])
    times = [logs[node].times[offset] for node, offset in got]
    assert times == sorted(times)


def test_a_log_that_is_away_holds_up_nobody() -> None:
    records = [Entry(b"a", b"x", 1, "c", 1, 0xFFFFFFFF)]
    scripted = ScriptedLogs({node: TestLog(node, records, 1) for node in ("n1", "n2")})
    scripted.ends = {"n1": 1, "n2": 1}
    feed = open_feed(scripted, Place(b"#", "earliest", 0, False), ("n1", "n2"))
    assert taken(feed) == []
    first, second = scripted.waiting
    scripted.serve(first)
    assert taken(feed) == [], "the record of the other may be earlier"
    second.state = AWAY
    assert [place_of(message.properties) for message in taken(feed)] == [("n1", 0)]


def test_the_place_keeps_logs_that_are_not_read_here() -> None:
    place = decode_place(
        b'{"filter": "#", "from": "earliest", "since": 0, "last": false, "logs": {"n9": ["id", 7, 0]}}'
    )
    scripted = ScriptedLogs({"n1": TestLog("n1", [], 1)})
    feed = open_feed(scripted, place, ("n1",))
    assert taken(feed) == []
    scripted.serve(scripted.waiting[0])
    assert {node: at.offset for node, at in decode_place(feed.position()).logs.items()} == {"n1": 0, "n9": 7}


@given(st.tuples(entries, entries, entries), st.integers(1, 5), st.sets(st.sampled_from(NODES)))
def test_last_is_the_newest_record_of_each_topic_in_all_logs(
    contents: tuple[list[Entry], list[Entry], list[Entry]], size: int, away: set[str]
) -> None:
    """Of logs that can be read."""
    logs = {node: TestLog(node, records, size) for node, records in zip(NODES, contents, strict=True)}
    scripted = ScriptedLogs(logs)
    scripted.ends = {node: len(log.records) for node, log in logs.items()}
    feed = open_feed(scripted, Place(b"a/#", "last", 0, True))
    placed: list[Strand] = []
    for strand in feed.strands:
        log = logs[strand.node]
        if strand.node in away:
            strand.state = AWAY
        else:
            strand.state = READING
            found: dict[bytes, tuple[int, int]] = {}
            portion = log.read(0, len(log.records), 1000)
            if portion is not None:
                last_records(portion, Selection([b"a/#"]), len(log.records), found)
            strand.searched(LogPlace("id", 0, len(log.records)), found)
        for other in feed.combine():
            other.state = READY
            placed.append(other)
    assert {strand.node for strand in placed} == set(NODES) - away
    newest: dict[bytes, tuple[int, int]] = {}
    for index, (node, log) in enumerate(logs.items()):
        for offset, entry in enumerate(log.records):
            if node not in away and filter_matches(b"a/#", entry.topic):
                newest[entry.topic] = max(newest.get(entry.topic, (0, 0)), (log.times[offset], index))
    got: list[Message] = []
    while True:
        got += taken(feed)
        if not scripted.waiting:
            break
        scripted.serve(scripted.waiting[0])
    assert sorted(message.topic for message in got) == sorted(newest)
    for message in got:
        node, offset = place_of(message.properties)
        assert (logs[node].times[offset], NODES.index(node)) == newest[message.topic]
