"""Streams of real logs: what is missed, bounded memory, the log of another member, members that send nonsense."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.codec.reason_codes import TOPIC_FILTER_INVALID
from broker.errors import MemberFault, MemberLate, MqttError
from broker.event_log.faults import LogFault
from broker.event_log.pb import event_log_pb2 as pb
from broker.event_log.settings import EventLogSettings
from broker.event_log.stream import reads, stream_log
from broker.event_log.stream.place import LogPlace, Place, decode_place
from broker.event_log.stream.remote_log import FOLLOW, LOCATE, READ
from broker.event_log.stream.streams import Streams
from broker.hooks import Members
from event_log_reader import AppendingLog
from linked_members import Linked
from stream_logs import OneReader, messages_of
from waiting import DEADLINE, eventually

EARLIEST = Place(b"#", "earliest", 0, False)


class Woken(OneReader):
    """Sets an event when the feed has something again."""

    def __init__(self) -> None:
        super().__init__(5)
        self.event = asyncio.Event()

    def wake(self, now: float) -> None:
        self.event.set()


class Node:
    def __init__(self, log: AppendingLog, members: Linked) -> None:
        self.log = log
        self.members = members
        self.loop = asyncio.get_running_loop()
        self.streams = Streams(log, members, self.loop.time, lambda: None)

    async def write(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.log.append(b"t", payload, 1)
        await self.log.flush()

    async def is_followed(self) -> None:
        await eventually(lambda: self.log.writer.is_followed, "somebody waits for new records")

    async def read(self, count: int, place: Place = EARLIEST, feed_of: list[object] | None = None) -> list[bytes]:
        """The next messages of a feed that is opened for them."""
        reader = Woken()
        feed = self.streams.open(reader, place.encode())
        if feed_of is not None:
            feed_of.append(feed)
        found: list[bytes] = []
        async with asyncio.timeout(DEADLINE):
            while len(found) < count:
                reader.event.clear()
                message = feed.next(self.loop.time())
                if message is not None:
                    feed.taken()
                    found += [one.payload for one in messages_of(message)]
                elif not feed.is_resting:
                    await reader.event.wait()
        if feed_of is None:
            feed.close()
        return found


@pytest.fixture
async def make_node(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Node]]]:
    everybody: dict[str, Linked] = {}
    nodes: list[Node] = []

    async def make(name: str = "n1", **settings: int) -> Node:
        log = AppendingLog(EventLogSettings(dir=str(tmp_path / name), **settings), name)  # type: ignore[arg-type]
        await log.start()
        nodes.append(Node(log, Linked(name, everybody)))
        for node in nodes:
            for changed in node.members.observers:
                changed()
        return nodes[-1]

    yield make
    for node in nodes:
        node.streams.stop()
        await node.log.stop()


MakeNode = Callable[..., Awaitable[Node]]


async def test_history_and_then_what_is_new(make_node: MakeNode) -> None:
    node = await make_node()
    await node.write(b"0", b"1")
    task = asyncio.create_task(node.read(4))
    await node.is_followed()
    await node.write(b"2")
    await node.write(b"3")
    assert await task == [b"0", b"1", b"2", b"3"]
    assert not node.log.writer.is_followed
    assert node.streams.reads.read_ahead_bytes == 0


async def test_latest_is_the_end_of_the_log_also_behind_a_clock_that_was_ahead(make_node: MakeNode) -> None:
    """All records until the clock has passed it have the time of the newest one."""
    node = await make_node()
    node.log.appender.time_ns = node.log.wall_ns() + 3_600 * 10**9
    await node.write(b"0", b"1")
    _, position = node.streams.begin(b"$stream/latest/#", "", b"")
    await node.write(b"2")
    assert await node.read(1, decode_place(position)) == [b"2"]


@pytest.mark.interpreted
async def test_many_followers_share_a_read(make_node: MakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are woken some at a time."""
    monkeypatch.setattr(reads, "WAKES_AT_ONCE", 3)
    node = await make_node()
    tasks = [asyncio.create_task(node.read(1)) for _ in range(20)]
    await node.is_followed()
    await eventually(lambda: len(node.streams.reads.logs["n1"].at_end) == 20, "all wait")
    begun: list[Any] = []
    read_as = node.log.readers.read_as

    async def counted(*arguments: Any) -> Any:
        begun.append(arguments)
        return await read_as(*arguments)

    node.log.readers.read_as = counted  # type: ignore[method-assign, assignment]
    await node.write(b"0")
    assert await asyncio.gather(*tasks) == [[b"0"]] * 20
    assert len(begun) == 1


@pytest.mark.interpreted
async def test_shared_reads_of_the_end_of_a_log_are_few(make_node: MakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that do not reach the end are not kept, nor is one that failed."""
    monkeypatch.setattr(stream_log, "NEWEST_MAX", 2)
    node = await make_node()
    for number in range(10):
        await node.write(b"%d" % number * 60_000)
    log, log_id = node.streams.reads.logs["n1"].log, node.log.log_id
    kept = log._newest

    async def read(start: int) -> int:
        portion = await log.read_newest(log_id, start)
        assert portion is not None
        return portion.next_offset

    assert await read(0) < 10
    assert not kept
    assert [await read(start) for start in (7, 8, 9)] == [10, 10, 10]
    assert list(kept) == [8, 9]
    with pytest.raises(LogFault):
        await log.read_newest("another", 7)
    assert 7 not in kept


async def test_a_call_that_follows_a_log_waits_whatever_is_heard_meanwhile(make_node: MakeNode) -> None:
    """It does not ask again and again for what is known."""
    first, second = await make_node("n1"), await make_node("n2")
    log = first.streams.reads.logs["n2"].log
    await log.locate(None, 0)
    served, calls = second.members.served[FOLLOW], 0

    async def follow(data: bytes) -> bytes:
        nonlocal calls
        calls += 1
        await log.locate(None, 0)
        return await served(data) if calls < 5 else b"\xff"

    await second.write(b"0")
    second.members.served[FOLLOW] = follow
    log._end = 0  # type: ignore[attr-defined]
    grown = log.when_grown(second.log.log_id)
    async with asyncio.timeout(DEADLINE):
        await grown
    assert (calls, log.next_offset) == (1, 1)


async def test_what_was_removed_or_lost_is_counted_as_missed(make_node: MakeNode, tmp_path: Path) -> None:
    node = await make_node(segment_bytes=2**16)
    for number in range(30):  # 12 in each segment
        await node.write(b"%04d" % number * 1250)
    sorted((tmp_path / "n1").glob("*.log"))[1].unlink()
    found = await node.read(16, Place(b"#", "x", 0, False, {"n1": LogPlace(node.log.log_id, 2)}))
    assert [int(payload[:4]) for payload in found] == [*range(2, 12), *range(24, 30)]
    assert node.streams.reads.missed == 12


@pytest.mark.interpreted
async def test_what_is_read_ahead_is_bounded(make_node: MakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that takes nothing gives its memory to those that do, and reads again later."""
    monkeypatch.setattr(reads, "READ_AHEAD_BYTES", 400_000)
    node = await make_node()
    for number in range(40):
        await node.write(b"%04d" % number * 5000)
    slow: list[object] = []
    assert await node.read(1, feed_of=slow) == [b"0000" * 5000]
    assert len(await node.read(40)) == 40
    assert node.streams.reads.read_ahead_bytes <= 400_000
    feed = slow[0]
    rest: list[bytes] = []
    async with asyncio.timeout(DEADLINE):
        while len(rest) < 39:
            message = feed.next(0.0)  # type: ignore[attr-defined]
            if message is None:
                await asyncio.sleep(0)
            else:
                feed.taken()  # type: ignore[attr-defined]
                rest.append(message.payload[:4])
    assert rest == [b"%04d" % number for number in range(1, 40)]


async def test_the_log_of_another_member_is_read_and_followed(make_node: MakeNode) -> None:
    first, second = await make_node("n1"), await make_node("n2")
    await second.write(b"0")
    await first.write(b"1")
    await second.write(b"2")
    task = asyncio.create_task(first.read(5))
    await second.is_followed()
    await second.write(b"3")
    await first.write(b"4")
    found = await task
    assert found[:3] == [b"0", b"1", b"2"]
    assert set(found[3:]) == {b"3", b"4"}


async def test_a_member_that_comes_later_is_read_from_its_begin(make_node: MakeNode) -> None:
    first = await make_node("n1")
    task = asyncio.create_task(first.read(1))
    await first.is_followed()
    second = await make_node("n2")
    await second.write(b"0")
    assert await task == [b"0"]


@pytest.mark.interpreted
async def test_a_member_that_is_away_holds_up_nobody_and_is_read_later(
    make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "RETRY_SECONDS", 0.02)
    first, second = await make_node("n1"), await make_node("n2")
    await first.write(b"1")
    await second.write(b"2")
    first.members.away.add("n2")
    task = asyncio.create_task(first.read(2))
    await first.is_followed()
    first.members.away.clear()
    assert await task == [b"1", b"2"]


@pytest.mark.interpreted
async def test_a_block_that_is_long_on_the_way_comes_at_last(
    make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also beside reads that take no time."""
    monkeypatch.setattr(reads, "RETRY_SECONDS", 0.0)
    first, second = await make_node("n1"), await make_node("n2")
    await second.write(b"0")
    await second.write(b"1")
    call = first.members.call
    tried: list[float] = []

    async def slow(node: str, method: str, request: bytes, seconds: float) -> bytes:
        if method == READ and pb.ReadLogRequest.FromString(request).start_offset == 0:
            tried.append(seconds)
            if seconds < 100:
                raise MemberLate("node n2: Deadline Exceeded")
        return await call(node, method, request, seconds)

    monkeypatch.setattr(first.members, "call", slow)
    assert await first.read(2) == [b"0", b"1"]
    assert tried == [10, 20, 40, 80, 160]


async def test_a_member_that_is_forgotten_is_not_read_until_it_comes_again(make_node: MakeNode) -> None:
    """Nobody waits for it, and a subscription goes on where it was."""
    first, second = await make_node("n1"), await make_node("n2")
    await second.write(b"0", b"1")
    streams, all_of_them = first.streams, first.members.all
    open_feeds: list[Any] = []
    assert await first.read(1, feed_of=open_feeds) == [b"0"]
    (feed,) = open_feeds
    reader = feed.reader
    handed = feed.next(0.0)
    assert handed.payload == b"1"
    del all_of_them["n2"]
    streams._members_changed()
    feed.taken()
    assert list(streams.reads.logs) == ["n1"]
    assert [strand.node for strand in feed.strands] == ["n1"]
    assert decode_place(feed.position()).logs["n2"].offset == 2
    await first.write(b"2")
    await second.write(b"3")

    async def came() -> bytes:
        async with asyncio.timeout(DEADLINE):
            while (message := feed.next(0.0)) is None:
                reader.event.clear()
                await reader.event.wait()
        feed.taken()
        return bytes(message.payload)

    assert await came() == b"2"
    all_of_them["n2"] = second.members
    streams._members_changed()
    assert await came() == b"3"
    feed.close()
    assert streams.reads.read_ahead_bytes == 0


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        (LOCATE, b"\xff"),
        (READ, b"\xff"),
        (READ, pb.ReadLogResponse(blocks=b"no blocks", next_offset=1).SerializeToString()),
        (READ, b""),
        (FOLLOW, b"\xff"),
    ],
)
async def test_a_member_that_answers_nonsense_is_left_out(make_node: MakeNode, method: str, answer: bytes) -> None:
    first, second = await make_node("n1"), await make_node("n2")
    await second.write(b"2")
    await first.write(b"1")
    first.members.answers[method] = answer
    found = await first.read(2 if method == FOLLOW else 1)
    assert found[-1] == b"1"


@pytest.mark.parametrize("method", [LOCATE, READ, FOLLOW])
async def test_requests_of_members_are_refused_by_name(make_node: MakeNode, method: str) -> None:
    node = await make_node()
    await node.write(b"0")
    served = node.members.served[method]
    with pytest.raises(MemberFault):
        await served(b"\xff")
    if method != LOCATE:
        kind = pb.ReadLogRequest if method == READ else pb.FollowLogRequest
        with pytest.raises(MemberFault, match=node.log.log_id):
            await served(kind(log_id="other").SerializeToString())


async def test_another_log_is_read_from_its_begin_and_a_former_one_goes_on(make_node: MakeNode) -> None:
    node = await make_node()
    await node.write(b"0", b"1", b"2")
    read = node.read
    known = LogPlace(node.log.log_id, 1)
    assert await read(2, Place(b"#", "x", 0, False, {"n1": known})) == [b"1", b"2"]
    assert await read(3, Place(b"#", "x", 0, False, {"n1": LogPlace("another", 2)})) == [b"0", b"1", b"2"]
    former = node.log.log_id
    node.log.lineage = node.log.lineage.child("new", 2)
    assert await read(1, Place(b"#", "x", 0, False, {"n1": LogPlace(former, 3)})) == [b"2"]


def test_a_start_that_cannot_be_read_is_refused() -> None:
    log = SimpleNamespace(node="n1", writer=None, wall_ns=lambda: 10**18)

    async def judged() -> None:
        streams = Streams(log, Members("n1"), lambda: 0.0, lambda: None)  # type: ignore[arg-type]
        for full, start in ((b"$stream/x/a", ""), (b"$stream/a", "x"), (b"$stream/a", "")):
            with pytest.raises(MqttError) as fault:
                streams.begin(full, start, b"")
            assert fault.value.reason_code == TOPIC_FILTER_INVALID
        topic_filter, position = streams.begin(b"$stream/-1h/a", "", b"")
        assert topic_filter == b"a"
        assert streams.begin(b"$stream/-1h/a", "", position)[1] == position, "the same again goes on"
        assert streams.begin(b"$stream/-1h/a", "last", position)[1] != position

    asyncio.run(judged())


@pytest.mark.parametrize("position", [b"", b"\xff", b"{}", b'{"logs": []}'])
async def test_a_position_that_cannot_be_read_ends_no_client(make_node: MakeNode, position: bytes) -> None:
    """It comes from the store, or from another node."""
    node = await make_node()
    await node.write(b"0")
    feed = node.streams.open(Woken(), position)
    assert feed.next(0.0) is None
    feed.close()
    assert node.streams.begin(b"$stream/earliest/t", "", position)[0] == b"t"


@pytest.mark.interpreted
async def test_last_is_of_so_many_topics_at_most(make_node: MakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those whose last records are the newest; the others are counted."""
    monkeypatch.setattr(reads, "LAST_TOPICS_MAX", 3)
    node = await make_node()
    for number in range(20):
        node.log.append(b"t/%d" % (number % 10), b"%d" % number, 1)
        await node.log.flush()
    place = Place(b"#", "last", 0, True)
    assert await node.read(3, place) == [b"17", b"18", b"19"]
    assert node.streams.reads.topics_left_out == 7
    assert await node.read(1, Place(b"t/4", "last", 0, True)) == [b"14"]


async def test_last_is_searched_once(make_node: MakeNode) -> None:
    """A client that comes back when it has all last records goes on, and nothing of the search stays in memory."""
    node = await make_node()
    for number in range(20):
        node.log.append(b"t/%d" % (number % 5), b"%d" % number, 1)
        await node.log.flush()
    open_feeds: list[Any] = []
    assert await node.read(5, Place(b"#", "last", 0, True), open_feeds) == numbers(15, 20)
    (feed,) = open_feeds
    assert feed.next(0.0) is None
    await node.is_followed()
    assert node.streams.reads.last_topics == 0
    assert feed.strands[0].cursor.last == {}
    place = decode_place(feed.position())
    feed.close()
    begun: list[int] = []
    read_as = node.log.readers.read_as

    async def counted(*arguments: Any) -> Any:
        begun.append(arguments[1])
        return await read_as(*arguments)

    node.log.readers.read_as = counted  # type: ignore[method-assign, assignment]
    node.log.append(b"t/0", b"20", 1)
    await node.log.flush()
    assert await node.read(1, place) == [b"20"]
    assert begun == [20]


async def test_last_that_was_broken_off_knows_the_last_records_of_logs_that_have_come(make_node: MakeNode) -> None:
    first, second = await make_node("n1"), await make_node("n2")
    await second.write(b"old")
    await first.write(b"new")
    places = {"n1": LogPlace(first.log.log_id, 1, 1), "n2": LogPlace(second.log.log_id, 0, 1)}
    await second.write(b"then")
    assert await first.read(1, Place(b"#", "last", 0, True, places)) == [b"then"]


@pytest.mark.interpreted
async def test_last_of_all_subscriptions_has_a_bound(make_node: MakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscriptions that take nothing leave room for others, which get their newest topics, and give it back."""
    monkeypatch.setattr(reads, "LAST_TOPICS_ALL_MAX", 16)
    node = await make_node()
    for number in range(10):
        node.log.append(b"t/%d" % number, b"%d" % number, 1)
    await node.log.flush()
    place = Place(b"#", "last", 0, True)
    slow: list[Any] = []
    assert await node.read(1, place, slow) == numbers(2, 3), "8 of 10"
    assert await node.read(4, place, slow) == numbers(6, 10)
    assert node.streams.reads.last_topics == 12
    assert node.streams.reads.topics_left_out == 2 + 6
    for feed in slow:
        feed.close()
    assert node.streams.reads.last_topics == 0
    assert await node.read(8, place) == numbers(2, 10)


async def test_what_a_search_does_not_find_is_missed_by_nobody(make_node: MakeNode, tmp_path: Path) -> None:
    node = await make_node(segment_bytes=2**16)
    for number in range(30):  # 12 in each segment
        await node.write(b"%04d" % number * 1250)
    sorted((tmp_path / "n1").glob("*.log"))[1].unlink()
    assert await node.read(1, Place(b"#", "last", 0, True)) == [b"0029" * 1250]
    assert node.streams.reads.missed == 0


def numbers(begin: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(begin, end)]
