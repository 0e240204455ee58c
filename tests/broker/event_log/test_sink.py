"""The sink with a real log: each row is in the log once, however often its batch is committed and whenever it is stopped."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from broker.api.long_calls import LongCalls
from broker.config.settings import Settings
from broker.event_log import log_writer
from broker.event_log import sink as module
from broker.event_log.faults import NotWritten
from broker.event_log.files import Files
from broker.event_log.log import EventLog
from broker.event_log.records import Record, records
from broker.event_log.selection import Selection
from broker.event_log.sink import Sink
from broker.event_log.staged_rows import MARKER, RowLimits, encode_frame, encode_row, marked_properties, marker_prefix
from broker.event_log.staging import Commit, Partition, Staging, StagingFault, StagingFull
from broker.event_log.tap import LogTap, LogTurnEnd
from broker.hooks import Tap
from broker.message import Message
from broker.publisher import Publisher
from broker.server.host import Host
from event_log_reader import MakeLog
from waiting import eventually

LIMITS = RowLimits(10_000, 128, True)
Start = Callable[[], Awaitable[Sink]]


class FullDisk(Files):
    """A disk that takes `writes_left` more writes to segments."""

    writes_left = 1_000

    def write(self, descriptor: int, parts: Sequence[bytes], position: int, synced: bool) -> None:
        if not parts[0].startswith(b"GMLB"):
            super().write(descriptor, parts, position, synced)
            return
        if not self.writes_left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.writes_left -= 1
        super().write(descriptor, parts, position, synced)


@pytest.fixture
def files() -> FullDisk:
    return FullDisk()


@pytest.fixture
async def log(make_log: MakeLog, files: FullDisk) -> EventLog:
    return await make_log("a", files)


@pytest.fixture
async def host() -> Host:
    return Host(Settings())


@pytest.fixture
async def tap(host: Host, log: EventLog) -> LogTap:
    """Topics of the sink are not among those that are logged."""
    tap = LogTap(host.broker, log.appender, Selection([b"other/#"]), log.wall_ns, host.flush_soon, waits=True)
    log.attach(tap)
    host.broker.tap = tap
    host.turns.ends.append(LogTurnEnd(log.appender, log.writer.records_wait))
    return tap


@pytest.fixture
async def start(log: EventLog, host: Host, tap: LogTap, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts sinks in one folder, as processes one after the other."""
    started: list[Sink] = []

    async def start() -> Sink:
        sink = Sink(host, log, tap, Staging(tmp_path / "staged", Files()), LongCalls())
        started.append(sink)
        await sink.open()
        sink.start()
        return sink

    yield start
    for sink in started:
        await sink.stop()


def frame_of(first: int, end: int) -> bytes:
    return encode_frame(
        [encode_row("q", "t", b"%d" % number, 1, False, [("k", "v")], LIMITS) for number in range(first, end)]
    )


async def stage(sink: Sink, batch: int, *sizes: int) -> list[Partition]:
    """Stage partitions of these sizes, whose payloads are counted through."""
    partitions = []
    first = 0
    for number, size in enumerate(sizes):
        partition = Partition(number, 7, size)
        assert await sink.stage("q", batch, partition, 0, frame_of(first, first + size)) == size
        partitions.append(partition)
        first += size
    return partitions


async def logged(log: EventLog) -> list[Record]:
    end = await log.flush()
    found: list[Record] = []
    at = log.first_offset
    while at < end:
        blocks, next_offset = await log.readers.read(log.log_id, at, end, 0, ())
        found += [record for record in records(blocks) if record.offset >= at]
        at = next_offset
    return found


def rows_of_batch(found: list[Record], batch: int) -> list[int]:
    prefix = marker_prefix("q", batch)
    markers = [record.user_properties[-1] for record in found if record.user_properties]
    return [int(text.removeprefix(prefix)) for key, text in markers if key == MARKER and text.startswith(prefix)]


async def test_rows_are_published_in_order_of_partition_and_position(start: Start, log: EventLog) -> None:
    sink = await start()
    partitions = await stage(sink, 1, 3, 0, 2)
    assert await sink.commit("q", 1, list(reversed(partitions))) == (5, False)
    found = await logged(log)
    assert [record.payload for record in found] == [b"0", b"1", b"2", b"3", b"4"]
    assert [record.user_properties for record in found] == [[("k", "v"), (MARKER, f"q/1/{row}")] for row in range(5)]
    assert {(record.topic, record.qos, record.retain) for record in found} == {("t", 1, False)}


async def test_a_batch_is_published_once(start: Start, log: EventLog) -> None:
    sink = await start()
    partitions = await stage(sink, 1, 2)
    assert await sink.commit("q", 1, partitions) == (2, False)
    assert await sink.commit("q", 1, partitions) == (2, True)
    assert await sink.stage("q", 1, Partition(0, 8, 2), 0, frame_of(0, 2)) == 2, (
        "staged again by a query that is replayed"
    )
    assert await sink.commit("q", 1, [Partition(0, 8, 2)]) == (2, True)
    await sink.commit("q", 2, await stage(sink, 2, 1))
    assert await sink.commit("q", 1, partitions) == (0, True)
    sink = await start()
    assert await sink.commit("q", 2, []) == (1, True)
    assert len(await logged(log)) == 3


async def test_a_second_commit_joins_the_one_that_runs(start: Start, log: EventLog) -> None:
    sink = await start()
    partitions = await stage(sink, 1, 2_000)
    other = await stage(sink, 2, 1)
    first = asyncio.create_task(sink.commit("q", 1, partitions))
    second = asyncio.create_task(sink.commit("q", 1, partitions))
    await asyncio.sleep(0)
    with pytest.raises(StagingFault, match="batch 1 of query q is being committed; commit batch 2 after it"):
        await sink.commit("q", 2, other)
    first.cancel()
    assert await second == (2_000, False)
    assert rows_of_batch(await logged(log), 1) == list(range(2_000))


async def test_rows_that_are_not_staged_are_not_committed(start: Start, log: EventLog) -> None:
    sink = await start()
    await stage(sink, 1, 2)
    with pytest.raises(StagingFault, match="2 rows of partition 0, attempt 7 are staged, not 3"):
        await sink.commit("q", 1, [Partition(0, 7, 3)])
    await sink.abort("q", 1)
    with pytest.raises(StagingFault, match="0 rows of partition 0"):
        await sink.commit("q", 1, [Partition(0, 7, 2)])
    assert await logged(log) == []


@pytest.mark.parametrize("done", [0, 1, 4, 5])
async def test_a_commit_that_was_begun_goes_on_at_the_next_start(
    start: Start, log: EventLog, tmp_path: Path, done: int
) -> None:
    sink = await start()
    partitions = await stage(sink, 1, 3, 2)
    await sink.stop()
    log.append(b"before", b"")
    begun = Staging(tmp_path / "staged", Files())
    begun.open()
    begun.begin(Commit("q", 1, tuple(partitions), await log.flush(), log.log_id))
    for row in range(done):
        log.append(b"t", b"%d" % row, 1, properties=marked_properties(b"", marker_prefix("q", 1), row))
    log.append(b"t", b"", client_id="forger", properties=marked_properties(b"", marker_prefix("q", 1), 4))
    sink = await start()
    await eventually(lambda: begun.committed("q"), "the commit ends")
    own = [record for record in await logged(log) if record.client_id is None]
    assert rows_of_batch(own, 1) == list(range(5))
    assert [record.payload for record in own[1:]] == [b"%d" % row for row in range(5)]
    assert await sink.commit("q", 1, partitions) == (5, True)


async def test_rows_are_found_in_a_log_that_began_anew(start: Start, log: EventLog, tmp_path: Path) -> None:
    """The log lost its segments, but not the staged rows, and then rows of the commit were logged at lower offsets."""
    sink = await start()
    partitions = await stage(sink, 1, 4)
    await sink.stop()
    begun = Staging(tmp_path / "staged", Files())
    begun.open()
    begun.begin(Commit("q", 1, tuple(partitions), 1000, "the id before"))
    for row in range(2):
        log.append(b"t", b"%d" % row, 1, properties=marked_properties(b"", marker_prefix("q", 1), row))
    await log.flush()
    await start()
    await eventually(lambda: begun.committed("q"), "the commit ends")
    assert rows_of_batch(await logged(log), 1) == [0, 1, 2, 3]


async def test_an_earlier_batch_that_was_begun_is_published_first(start: Start, log: EventLog, tmp_path: Path) -> None:
    sink = await start()
    earlier, later = await stage(sink, 1, 2), await stage(sink, 2, 2)
    begun = Staging(tmp_path / "staged", Files())
    begun.open()
    begun.begin(Commit("q", 1, tuple(earlier), 0, log.log_id))
    assert await sink.commit("q", 2, later) == (2, False)
    found = await logged(log)
    assert (rows_of_batch(found[:2], 1), rows_of_batch(found[2:], 2)) == ([0, 1], [0, 1])


async def test_rows_that_the_log_lost_are_published_again(
    start: Start, log: EventLog, files: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full in the middle of a commit, and then has room again."""
    monkeypatch.setattr(log_writer, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(module, "WINDOW_BYTES", 1)
    sink = await start()
    partitions = await stage(sink, 1, *[10] * 20)
    files.writes_left = 5
    with pytest.raises(NotWritten):
        await sink.commit("q", 1, partitions)
    assert log.describe().stopped or log.describe().records_lost
    with pytest.raises(StagingFault, match="has begun"):
        await sink.abort("q", 1)
    files.writes_left = 1_000
    await eventually(lambda: not log.describe().stopped, "the log is written again")
    assert await sink.commit("q", 1, partitions) == (200, True)
    assert sorted(rows_of_batch(await logged(log), 1)) == list(range(200))


async def test_rows_wait_for_a_log_that_refuses_publishes(
    host: Host, make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full in the middle of a commit: it fails, or waits, and each row is logged once when there is room."""
    monkeypatch.setattr(log_writer, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(module, "WINDOW_BYTES", 1)
    files = FullDisk()
    log = await make_log("a", files, on_full="refuse_publishes")
    tap = LogTap(host.broker, log.appender, Selection([b"#"]), log.wall_ns, host.flush_soon, waits=True)
    log.attach(tap)
    host.broker.tap = tap
    host.turns.ends.append(LogTurnEnd(log.appender, log.writer.records_wait))
    sink = Sink(host, log, tap, Staging(tmp_path / "staged", Files()), LongCalls())
    await sink.open()
    partitions = await stage(sink, 1, *[10] * 20)
    files.writes_left = 5
    commit = asyncio.create_task(sink.commit("q", 1, partitions))
    await eventually(lambda: log.describe().stopped, "the disk is full")
    files.writes_left = 1_000
    await asyncio.gather(commit, return_exceptions=True)
    await eventually(lambda: not log.describe().stopped, "the log is written again")
    assert (await sink.commit("q", 1, partitions))[0] == 200
    assert rows_of_batch(await logged(log), 1) == list(range(200))
    await sink.stop()


class HoldingTap(Tap):
    """Holds the publisher at each row, as a receiver that is full."""

    def __init__(self, tap: Tap, host: Host) -> None:
        super().__init__()
        self.tap = tap
        self.host = host
        self.rows = 0
        self.row_published = asyncio.Event()

    def published(self, message: Message, publisher: Publisher | None, now: float) -> None:
        self.tap.published(message, publisher, now)
        assert publisher is not None
        self.host.broker.hold(publisher)
        self.rows += 1
        self.row_published.set()


async def test_no_row_is_published_while_receivers_are_full(start: Start, host: Host, tap: LogTap) -> None:
    sink = await start()
    partitions = await stage(sink, 1, 3)
    holding = host.broker.tap = HoldingTap(tap, host)
    committing = asyncio.create_task(sink.commit("q", 1, partitions))
    for rows in (1, 2, 3):
        await holding.row_published.wait()
        holding.row_published.clear()
        for _ in range(20):
            await asyncio.sleep(0)
        assert holding.rows == rows
        host.broker.release(sink.publisher)
        host.flush_soon()
    assert await committing == (3, False)


async def test_a_node_that_stops_publishes_no_more_rows(start: Start, host: Host, log: EventLog) -> None:
    sink = await start()
    partitions = await stage(sink, 1, 3)
    host.broker.shut_down(host.now())
    with pytest.raises(NotWritten, match="the node stops"):
        await sink.commit("q", 1, partitions)
    await sink.stop()
    with pytest.raises(NotWritten, match="the node stops"):
        await sink.abort("q", 2)
    assert await logged(log) == []


async def test_commits_at_once_are_bounded(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMMITS_MAX", 1)
    sink = await start()
    running = asyncio.create_task(sink.commit("q", 1, await stage(sink, 1, 2)))
    await asyncio.sleep(0)
    with pytest.raises(StagingFull, match="1 commits are running already"):
        await sink.commit("other", 1, [])
    assert await running == (2, False)
    assert await sink.commit("other", 1, []) == (0, False)
