"""The sink and the subscribers: what a crash takes from these, whose queues are in the store, the next process brings again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.api.long_calls import LongCalls
from broker.codec.packets import SubscribeFilter
from broker.config.settings import Settings
from broker.event_log import sink as module
from broker.event_log.faults import NotWritten
from broker.event_log.files import Files
from broker.event_log.selection import Selection
from broker.event_log.sink import Sink
from broker.event_log.staged_block import RowLimits
from broker.event_log.staging import Commit, Partition, Staging
from broker.event_log.tap import LogTap, LogTurnEnd
from broker.server.host import Host
from broker.session.durable import attach_records
from broker.session.session import Session
from broker.store.journal import Journal
from event_log_reader import AppendingLog, MakeLog
from row_blocks import a_row, block_of
from waiting import eventually

ROWS = 10
PARTITIONS = [Partition(number, 1, ROWS) for number in range(3)]


class Node:
    """One process, with a durable subscriber of QoS 1 and a store that takes what `store` says."""

    def __init__(self, log: AppendingLog, folder: Path) -> None:
        self.log = log
        self.host = Host(Settings())
        self.journal = Journal()
        broker = self.host.broker
        broker.set_journal(self.journal)
        self.session = broker.sessions["c"] = Session(broker, "c", 0.0)
        self.session.expiry_interval = 3600
        attach_records(self.session, self.journal)
        broker.subscribe("c", [SubscribeFilter(b"t", 1, False, False, 0)], 0, 0.0)
        self.store()
        tap = LogTap(broker, log.appender, Selection([b"#"]), log.wall_ns, self.host.flush_soon, waits=True)
        log.attach(tap)
        broker.add_tap(tap)
        self.host.turns.ends.append(LogTurnEnd(log.appender, log.writer.records_wait))
        self.staging = Staging(folder / "staged", Files(), 2**30, lambda: RowLimits(10_000, 128, True))
        self.sink = Sink(self.host, log, tap, self.staging, LongCalls())

    def store(self) -> None:
        """All changes are in the store."""
        commit = self.journal.commit
        self.journal.take()
        if commit:
            self.host.broker.commits.finish(commit)

    async def stage(self) -> None:
        await self.sink.open()
        for partition in PARTITIONS:
            rows = [a_row("t", b"%d" % (ROWS * partition.partition + number), 1) for number in range(ROWS)]
            await self.sink.stage("q", 1, partition.partition, 1, 0, block_of(rows))

    def commit(self) -> asyncio.Task[tuple[int, bool]]:
        return asyncio.create_task(self.sink.commit("q", 1, PARTITIONS))

    def queued(self) -> list[int]:
        return [int(one.message.payload) for one in self.session.queued() if one.message is not None]


async def test_rows_that_only_the_log_has_go_to_subscribers_at_the_next_start(
    make_log: MakeLog, tmp_path: Path
) -> None:
    log = await make_log("a")
    node = Node(log, tmp_path)
    await node.stage()
    node.commit()
    await eventually(lambda: len(node.queued()) == 30 and log.next_offset == 30, "the log has them")
    await node.sink.stop()  # and the store has not
    node = Node(log, tmp_path)
    await node.sink.open()
    commit = node.commit()
    await eventually(lambda: node.journal.commit > 0, "it waits for the store")
    assert node.queued() == list(range(30))
    node.store()
    assert await commit == (30, True)
    assert await log.flush() == 30
    await node.sink.stop()


async def test_subscribers_get_no_rows_again_that_the_commit_has_for_delivered(
    make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNSURE_ROWS_MAX", ROWS)
    log = await make_log("a")
    node = Node(log, tmp_path)
    await node.stage()
    node.commit()
    await eventually(lambda: node.journal.commit > 0, "it waits for the store after so many rows")
    assert node.queued() == list(range(10))
    node.store()
    await eventually(lambda: node.journal.commit > 0, "and again")
    await log.flush()
    await node.sink.stop()
    node = Node(log, tmp_path)
    await node.sink.open()
    commit = node.commit()
    for rows in (10, 20):
        await eventually(lambda: node.journal.commit > 0, "it waits for the store")
        assert node.queued() == list(range(10, 10 + rows))
        node.store()
    assert await commit == (30, True)
    assert await log.flush() == 30
    await node.sink.stop()


@pytest.mark.parametrize(("unsure_rows_max", "again"), [(ROWS, 0), (2 * ROWS, ROWS), (4 * ROWS, 3 * ROWS)])
async def test_who_subscribes_after_a_crash_gets_the_last_rows_only(
    make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unsure_rows_max: int, again: int
) -> None:
    """Rows that reached nobody do not wait for the store, but at the end."""
    monkeypatch.setattr(module, "UNSURE_ROWS_MAX", unsure_rows_max)
    log = await make_log("a")
    node = Node(log, tmp_path)
    node.host.broker.unsubscribe("c", [b"t"], 0.0)
    node.journal.take()
    await node.stage()
    monkeypatch.setattr(node.sink, "_delivered", asyncio.Event().wait)
    node.commit()
    await eventually(lambda: log.next_offset == 30, "the log has them")
    await log.flush()
    await node.sink.stop()
    node = Node(log, tmp_path)
    await node.sink.open()
    commit = node.commit()
    while not commit.done():
        await eventually(lambda: commit.done() or node.journal.commit > 0, "it goes on")
        node.store()
    assert await commit == (30, True)
    assert node.queued() == list(range(30 - again, 30))
    assert await log.flush() == 30
    await node.sink.stop()


async def test_a_commit_that_goes_on_in_the_same_process_brings_nothing_again(
    make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to those either who have subscribed since."""
    log = await make_log("a")
    node = Node(log, tmp_path)
    broker = node.host.broker
    broker.unsubscribe("c", [b"t"], 0.0)
    node.store()
    await node.stage()
    with monkeypatch.context() as patch:
        patch.setattr(node.staging, "finish", _fail_to_finish)
        with pytest.raises(OSError, match="no room"):
            await node.commit()
    broker.subscribe("c", [SubscribeFilter(b"t", 1, False, False, 0)], 0, 0.0)
    node.store()
    commit = node.commit()
    while not commit.done():
        await eventually(lambda: commit.done() or node.journal.commit > 0, "it goes on")
        node.store()
    assert await commit == (30, True)
    assert (node.queued(), await log.flush()) == ([], 30)
    await node.sink.stop()


def _fail_to_finish(_: Commit) -> None:
    raise OSError("no room")


async def test_a_store_that_takes_nothing_holds_rows_back_and_none_comes_twice(
    make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNSURE_ROWS_MAX", ROWS)
    log = await make_log("a")
    node = Node(log, tmp_path)
    await node.stage()
    node.journal.is_full = True
    with pytest.raises(NotWritten, match="store"):
        await node.commit()
    assert (node.queued(), await log.flush()) == ([], 0)
    node.journal.is_full = False
    commit = node.commit()
    await eventually(lambda: node.journal.commit > 0, "it waits for the store")
    node.journal.is_full = True
    node.store()
    with pytest.raises(NotWritten, match="store"):
        await commit
    node.journal.is_full = False
    commit = node.commit()
    while not commit.done():
        await eventually(lambda: commit.done() or node.journal.commit > 0, "it goes on")
        node.store()
    assert await commit == (30, True)
    assert (node.queued(), await log.flush()) == (list(range(30)), 30)
    await node.sink.stop()
