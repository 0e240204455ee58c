"""The sink with a real log: each row is in the log once, however often its batch is committed and whenever it is stopped."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.api.long_calls import LongCalls
from broker.config.settings import Settings
from broker.event_log import log_writer
from broker.event_log import sink as module
from broker.event_log.faults import NotWritten, OutOfRange
from broker.event_log.files import Files
from broker.event_log.records import Record, records
from broker.event_log.segment import segment_name
from broker.event_log.selection import Selection
from broker.event_log.settings import HoldSettings, RetentionSettings
from broker.event_log.sink import Sink
from broker.event_log.staged_block import RowLimits
from broker.event_log.staged_files import StagingFault, StagingFull
from broker.event_log.staged_rows import MARKER, marker_prefix, marker_properties
from broker.event_log.staging import Commit, Partition, Staging
from broker.event_log.tap import LogTap, LogTurnEnd
from broker.hooks import Tap
from broker.message import Message
from broker.publisher import Publisher
from broker.server.host import Host
from event_log_reader import AppendingLog, Clock, MakeLog
from row_blocks import a_row, block_of
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
async def log(make_log: MakeLog, files: FullDisk) -> AppendingLog:
    return await make_log("a", files)


@pytest.fixture
async def host() -> Host:
    return Host(Settings())


@pytest.fixture
async def tap(host: Host, log: AppendingLog) -> LogTap:
    """Topics of the sink are not among those that are logged."""
    tap = LogTap(host.broker, log.appender, Selection([b"other/#"]), log.wall_ns, host.flush_soon, waits=True)
    log.attach(tap)
    host.broker.add_tap(tap)
    host.turns.ends.append(LogTurnEnd(log.appender, log.writer.records_wait))
    return tap


@pytest.fixture
async def start(log: AppendingLog, host: Host, tap: LogTap, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts sinks in one folder, as processes one after the other."""
    started: list[Sink] = []

    async def start() -> Sink:
        sink = Sink(host, log, tap, staging_in(tmp_path), LongCalls())
        started.append(sink)
        await sink.open()
        sink.start()
        return sink

    yield start
    for sink in started:
        await sink.stop()


def staging_in(folder: Path) -> Staging:
    return Staging(folder / "staged", Files(), 2**30, lambda: LIMITS)


def rows_of(first: int, end: int) -> bytes:
    return b"".join(
        block_of([a_row("t", b"%d" % number, 1, False, [("k", "v")]) for number in range(at, min(end, at + 2_000))])
        for at in range(first, end, 2_000)
    )


async def stage(sink: Sink, batch: int, *sizes: int) -> list[Partition]:
    """Stage partitions of these sizes, whose payloads are counted through."""
    partitions = []
    first = 0
    for number, size in enumerate(sizes):
        if size:
            blocks = rows_of(first, first + size)
            assert await sink.stage("q", batch, number, 7, 0, blocks) == (size, len(blocks))
        partitions.append(Partition(number, 7, size))
        first += size
    return partitions


async def logged(log: AppendingLog) -> list[Record]:
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


async def test_rows_are_published_in_order_of_partition_and_position(start: Start, log: AppendingLog) -> None:
    sink = await start()
    partitions = await stage(sink, 1, 3, 0, 2)
    assert await sink.commit("q", 1, list(reversed(partitions))) == (5, False)
    found = await logged(log)
    assert [record.payload for record in found] == [b"0", b"1", b"2", b"3", b"4"]
    assert [record.user_properties for record in found] == [[("k", "v"), (MARKER, f"q/1/{row}")] for row in range(5)]
    assert {(record.topic, record.qos, record.retain) for record in found} == {("t", 1, False)}


async def test_a_batch_is_published_once(start: Start, log: AppendingLog) -> None:
    sink = await start()
    partitions = await stage(sink, 1, 2)
    assert await sink.commit("q", 1, partitions) == (2, False)
    assert await sink.commit("q", 1, partitions) == (2, True)
    blocks = rows_of(0, 2)
    assert await sink.stage("q", 1, 0, 8, 0, blocks) == (0, len(blocks)), "staged again by a query that is replayed"
    assert await sink.commit("q", 1, [Partition(0, 8, 2)]) == (2, True)
    await sink.commit("q", 2, await stage(sink, 2, 1))
    sink = await start()
    assert await sink.commit("q", 2, []) == (1, True)
    assert len(await logged(log)) == 3


async def test_a_batch_behind_one_that_was_published_is_refused(start: Start, log: AppendingLog) -> None:
    """Its checkpoint is that of a backup: the batches that begin again have other rows, which would be nowhere."""
    sink = await start()
    for batch in (1, 2, 3):
        assert await sink.commit("q", batch, await stage(sink, batch, 2)) == (2, False)
    for _ in range(2):
        await sink.stage("q", 2, 0, 8, 0, rows_of(0, 5))
        with pytest.raises(StagingFault, match="batch 2 of query q is behind batch 3"):
            await sink.commit("q", 2, [Partition(0, 8, 5)])
        sink = await start()
    assert len(await logged(log)) == 6
    assert await sink.commit("q", 4, await stage(sink, 4, 2)) == (2, False)


async def test_a_second_commit_joins_the_one_that_runs(start: Start, log: AppendingLog) -> None:
    sink = await start()
    partitions = await stage(sink, 1, 2_000)
    other = await stage(sink, 2, 1)
    first = asyncio.create_task(sink.commit("q", 1, partitions))
    second = asyncio.create_task(sink.commit("q", 1, partitions))
    await asyncio.sleep(0)
    with pytest.raises(StagingFault, match=r"batch 1 .*query q.*batch 2"):
        await sink.commit("q", 2, other)
    first.cancel()
    assert await second == (2_000, False)
    assert rows_of_batch(await logged(log), 1) == list(range(2_000))


@pytest.mark.parametrize("done", [0, 1, 4, 5])
async def test_a_commit_that_was_begun_goes_on_at_the_next_start(
    start: Start, log: AppendingLog, tmp_path: Path, done: int
) -> None:
    sink = await start()
    partitions = await stage(sink, 1, 3, 2)
    await sink.stop()
    log.append(b"before", b"")
    begun = staging_in(tmp_path)
    begun.open()
    begun.begin(Commit("q", 1, tuple(partitions), await log.flush(), log.log_id))
    for row in range(done):
        log.append(b"t", b"%d" % row, 1, properties=marker_properties(marker_prefix("q", 1), row))
    log.append(b"t", b"", client_id="forger", properties=marker_properties(marker_prefix("q", 1), 4))
    sink = await start()
    await eventually(lambda: begun.committed("q"), "the commit ends")
    own = [record for record in await logged(log) if record.client_id is None]
    assert rows_of_batch(own, 1) == list(range(5))
    assert [record.payload for record in own[1:]] == [b"%d" % row for row in range(5)]
    assert await sink.commit("q", 1, partitions) == (5, True)


async def test_rows_are_found_in_a_log_that_began_anew(start: Start, log: AppendingLog, tmp_path: Path) -> None:
    """The log lost its segments, but not the staged rows, and then rows of the commit were logged at lower offsets."""
    sink = await start()
    partitions = await stage(sink, 1, 4)
    await sink.stop()
    begun = staging_in(tmp_path)
    begun.open()
    begun.begin(Commit("q", 1, tuple(partitions), 1000, "the id before"))
    for row in range(2):
        log.append(b"t", b"%d" % row, 1, properties=marker_properties(marker_prefix("q", 1), row))
    await log.flush()
    await start()
    await eventually(lambda: begun.committed("q"), "the commit ends")
    assert rows_of_batch(await logged(log), 1) == [0, 1, 2, 3]


def holds(log: AppendingLog) -> list[tuple[str, str, int]]:
    return [(hold.group, hold.query, hold.offset) for hold in log.holds.all()]


async def test_a_commit_holds_the_log_until_it_has_ended(
    start: Start, log: AppendingLog, host: Host, tap: LogTap
) -> None:
    for number in range(3):
        log.append(b"before", b"%d" % number)
    await log.flush()
    sink = await start()
    partitions = await stage(sink, 1, 3)
    holding = HoldingTap(tap, host)
    host.broker.remove_tap(tap)
    host.broker.add_tap(holding)
    committing = asyncio.create_task(sink.commit("q", 1, partitions))
    await holding.row_published.wait()
    assert holds(log) == [(MARKER, "q", 3)]
    host.broker.remove_tap(holding)
    host.broker.add_tap(tap)
    host.broker.release(sink.publisher)
    host.flush_soon()
    assert await committing == (3, False)
    assert holds(log) == []
    with pytest.raises(StagingFault, match="0 rows of partition 5"):
        await sink.commit("q", 2, [Partition(5, 5, 1)])
    assert holds(log) == []


async def test_a_commit_that_waits_longer_than_its_hold_is_refused(
    make_log: MakeLog, clock: Clock, host: Host, tmp_path: Path
) -> None:
    """Which of its rows were published cannot be known any more: they are not published twice."""
    settings: dict[str, Any] = {
        "retention": RetentionSettings(age=100.0, bytes=0),
        "hold": HoldSettings(max_age=200.0, max_bytes=0),
    }
    log = await make_log(**settings)
    log.append(b"before", b"")
    await log.flush()
    staging = staging_in(tmp_path)
    staging.open()
    blocks = rows_of(0, 2)
    staging.stage("q", 1, 0, 7, 0, blocks)
    commit = Commit("q", 1, (Partition(0, 7, 2),), log.next_offset, log.log_id)
    await log.hold(MARKER, "q", log.log_id, log.next_offset)
    staging.begin(commit)
    log.append(b"t", b"0", 1, properties=marker_properties(marker_prefix("q", 1), 0))
    await log.stop()
    clock.advance(150)
    log = await make_log(**settings)
    assert log.first_offset == 0, "the hold keeps what the retention would remove"
    await log.stop()
    for _ in range(2):  # the newest segment is closed, and then removed
        clock.advance(100)
        log = await make_log(**settings)
        await log.release("g", "")
        await log.hold("g", "q", log.log_id, log.next_offset)  # after a new segment was begun
        await log.stop()
    log = await make_log(**settings)
    tap = LogTap(host.broker, log.appender, Selection([b"#"]), log.wall_ns, host.flush_soon, waits=True)
    log.attach(tap)
    host.broker.add_tap(tap)
    sink = Sink(host, log, tap, staging_in(tmp_path), LongCalls())
    await sink.open()
    for batch in (1, 2):
        with pytest.raises(StagingFault, match=r"batch 1 .*query q.*offset 1.* 2 now"):
            await sink.commit("q", batch, commit.partitions)
    assert await logged(log) == []
    await sink.stop()
    (tmp_path / "staged" / "q" / "committed.json").write_text('{"batch": 1, "rows": 0}')  # as the error says
    sink = Sink(host, log, tap, staging_in(tmp_path), LongCalls())
    await sink.open()
    assert await sink.commit("q", 1, commit.partitions) == (0, True)
    await sink.stop()


async def test_holds_that_a_crash_has_left_end_at_the_next_start(start: Start, log: AppendingLog) -> None:
    log.append(b"before", b"")
    await log.flush()
    await log.hold(MARKER, "crashed", log.log_id, 0)
    await log.hold("other", "crashed", log.log_id, 0)
    await start()
    await eventually(lambda: holds(log) == [("other", "crashed", 0)], "the hold ends")


async def test_rows_in_a_segment_that_was_damaged_are_published_again(
    start: Start, log: AppendingLog, tmp_path: Path
) -> None:
    """The segment that a commit began in is the first one, and is set aside: not the retention removed it."""
    sink = await start()
    partitions = await stage(sink, 1, 3, 2)
    await sink.stop()
    begun = staging_in(tmp_path)
    begun.open()
    begun.begin(Commit("q", 1, tuple(partitions), 0, log.log_id))
    await log.hold(MARKER, "q", log.log_id, 0)
    for row in range(3):
        log.append(b"t", b"%d" % row, 1, properties=marker_properties(marker_prefix("q", 1), row))
    await log.flush()
    path = tmp_path / "log" / segment_name(0)
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    log_id = log.log_id
    with pytest.raises(OutOfRange):
        await log.readers.read(log.log_id, 0, 3, 0, ())
    again = await start()
    await eventually(lambda: begun.committed("q"), "the commit ends")
    assert (log.log_id, log.first_offset) == (log_id, 3)
    assert rows_of_batch(await logged(log), 1) == list(range(5))
    assert await again.commit("q", 1, partitions) == (5, True)


async def test_an_earlier_batch_that_was_begun_is_published_first(
    start: Start, log: AppendingLog, tmp_path: Path
) -> None:
    sink = await start()
    earlier, later = await stage(sink, 1, 2), await stage(sink, 2, 2)
    begun = staging_in(tmp_path)
    begun.open()
    begun.begin(Commit("q", 1, tuple(earlier), 0, log.log_id))
    assert await sink.commit("q", 2, later) == (2, False)
    found = await logged(log)
    assert (rows_of_batch(found[:2], 1), rows_of_batch(found[2:], 2)) == ([0, 1], [0, 1])


async def test_rows_that_the_log_lost_are_published_again(
    start: Start, log: AppendingLog, files: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full in the middle of a commit, and then has room again."""
    monkeypatch.setattr(log_writer, "RETRY_SECONDS", 0.01)
    sink = await start()
    partitions = await stage(sink, 1, *[10] * 20)
    files.writes_left = 1
    with pytest.raises(NotWritten):
        await sink.commit("q", 1, partitions)
    assert log.writer.stopped or log.appender.lost
    with pytest.raises(StagingFault, match="has begun"):
        await sink.abort("q", 1)
    files.writes_left = 1_000
    await eventually(lambda: not log.writer.stopped, "the log is written again")
    assert await sink.commit("q", 1, partitions) == (200, True)
    assert sorted(rows_of_batch(await logged(log), 1)) == list(range(200))


async def test_rows_wait_for_a_log_that_refuses_publishes(
    host: Host, make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full in the middle of a commit: it fails, or waits, and each row is logged once when there is room."""
    monkeypatch.setattr(log_writer, "RETRY_SECONDS", 0.01)
    files = FullDisk()
    log = await make_log("a", files, on_full="refuse_publishes")
    tap = LogTap(host.broker, log.appender, Selection([b"#"]), log.wall_ns, host.flush_soon, waits=True)
    log.attach(tap)
    host.broker.add_tap(tap)
    host.turns.ends.append(LogTurnEnd(log.appender, log.writer.records_wait))
    sink = Sink(host, log, tap, staging_in(tmp_path), LongCalls())
    await sink.open()
    partitions = await stage(sink, 1, *[10] * 20)
    files.writes_left = 1
    commit = asyncio.create_task(sink.commit("q", 1, partitions))
    await eventually(lambda: log.writer.stopped, "the disk is full")
    files.writes_left = 1_000
    await asyncio.gather(commit, return_exceptions=True)
    await eventually(lambda: not log.writer.stopped, "the log is written again")
    assert (await sink.commit("q", 1, partitions))[0] == 200
    assert rows_of_batch(await logged(log), 1) == list(range(200))
    await sink.stop()


async def test_a_fault_in_looking_for_commits_does_not_end_the_looking(
    log: AppendingLog, host: Host, tap: LogTap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    staging = staging_in(tmp_path)
    faults = [RuntimeError("broken"), OSError("broken")]
    looks = 0

    def unfinished() -> list[Commit]:
        nonlocal looks
        looks += 1
        if faults:
            raise faults.pop()
        return []

    sink = Sink(host, log, tap, staging, LongCalls())
    await sink.open()
    monkeypatch.setattr(staging, "unfinished", unfinished)
    sink.start()
    await eventually(lambda: looks > 3, "it goes on")
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
    holding = HoldingTap(tap, host)
    host.broker.remove_tap(tap)
    host.broker.add_tap(holding)
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


async def test_a_node_that_stops_publishes_no_more_rows(start: Start, host: Host, log: AppendingLog) -> None:
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
    with pytest.raises(StagingFull, match="1 commits"):
        await sink.commit("other", 1, [])
    assert await running == (2, False)
    assert await sink.commit("other", 1, []) == (0, False)
