"""Groups of records, and a disk that takes none: what is counted, refused, kept, and how the log goes on."""

from __future__ import annotations

import asyncio
import errno
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.event_log import log_writer
from broker.event_log.active import ActiveSegment
from broker.event_log.block import NOBODY, BlockBuilder
from broker.event_log.faults import NotWritten
from broker.event_log.recovery import lock_folder
from broker.event_log.segment import segment_name
from broker.event_log.selection import Selection
from broker.event_log.tap import LogTap
from event_log_reader import AppendingLog, Clock, MakeLog, read_all
from failing_files import FailingFiles
from waiting import eventually

SEGMENT_BYTES = 2**16


@pytest.fixture(autouse=True)
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "RETRY_SECONDS", 0.005)


async def payloads(log: AppendingLog) -> list[bytes]:
    records = await read_all(log)
    assert [record.offset for record in records] == list(range(log.first_offset, log.next_offset))
    return [record.payload for record in records]


async def going_on(log: AppendingLog) -> None:
    await eventually(lambda: not log.writer.stopped, "the disk takes records again")


async def test_records_that_come_during_a_write_share_the_next_one(make_log: MakeLog) -> None:
    log = await make_log()
    log.append(b"t", b"1")
    log.writer.write()
    for number in (b"2", b"3", b"4"):
        log.append(b"t", number)
        log.writer.write()
    await log.flush()
    blocks, _ = await log.readers.read(log.log_id, 0, 4, 1, ())
    first, _ = await log.readers.read(log.log_id, 0, 1, 0, ())
    assert blocks == first, "the first record has a block of its own"
    assert (await log.readers.read(log.log_id, 1, 4, 1, ()))[1] == 4, "the others share one"


async def test_records_that_linger_are_written_when_somebody_follows(make_log: MakeLog) -> None:
    log = await make_log(sync="interval", sync_interval=3600.0)
    log.append(b"t", b"")
    log.writer.records_wait()
    log.writer.follow(False)
    assert log.next_offset == 0
    log.writer.follow(True)
    await eventually(lambda: log.next_offset == 1, "the record is written")


async def test_records_are_written_after_the_interval(make_log: MakeLog) -> None:
    log = await make_log(sync="interval", sync_interval=0.01)
    log.append(b"t", b"")
    log.writer.records_wait()
    assert log.next_offset == 0
    await eventually(lambda: log.next_offset == 1, "the record is written")


@pytest.mark.parametrize("sync", ["commit", "interval", "none"])
@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO])
async def test_a_stopped_log_counts_its_losses_and_goes_on(make_log: MakeLog, sync: str, fault: int) -> None:
    files = FailingFiles()
    log = await make_log(files=files, sync=sync)
    log.append(b"t", b"before")
    await log.flush()
    files.fault = fault
    log.append(b"t", b"lost 1")
    with pytest.raises(NotWritten, match="node n1 cannot log"):
        await log.flush()
    log.append(b"t", b"lost 2")
    log.append(b"t", b"lost 3")
    with pytest.raises(NotWritten, match="node n1 logs nothing at present"):
        await log.flush()
    assert log.writer.stopped
    assert (log.next_offset, log.appender.lost) == (1, 3)
    assert await payloads(log) == [b"before"], "what there is can be read meanwhile"
    await eventually(lambda: files.attempts > 3, "it is tried again")
    files.fault = 0
    await going_on(log)
    log.append(b"t", b"after")
    await log.flush()
    assert await payloads(log) == [b"before", b"after"]
    assert log.appender.lost == 3
    log_id = log.log_id
    await log.stop()
    log = await make_log(sync=sync)
    assert log.log_id == log_id
    assert await payloads(log) == [b"before", b"after"]


@pytest.mark.parametrize("room", [0, 1, 100, 300, 5000])
async def test_the_part_of_a_block_that_fit_a_full_disk_is_cut(make_log: MakeLog, room: int) -> None:
    files = FailingFiles()
    log = await make_log(files=files, segment_bytes=SEGMENT_BYTES)
    log.append(b"t", b"before")
    await log.flush()
    files.room = room
    log.append(b"t", bytes(6000))
    with pytest.raises(NotWritten):
        await log.flush()
    files.room = None
    await going_on(log)
    log.append(b"t", b"after")
    await log.flush()
    assert await payloads(log) == [b"before", b"after"]
    log_id = log.log_id
    await log.stop()
    log = await make_log(segment_bytes=SEGMENT_BYTES)
    assert (log.log_id, log.damaged) == (log_id, [])
    assert await payloads(log) == [b"before", b"after"]


async def test_a_refusing_log_keeps_its_accepted_records(make_log: MakeLog) -> None:
    files = FailingFiles()
    log = await make_log(files=files, on_full="refuse_publishes")
    files.fault, files.truncates = errno.ENOSPC, False
    log.append(b"t", b"1")
    first = asyncio.create_task(log.flush())
    await eventually(lambda: bool(log.writer.stopped), "the log is stopped")
    log.append(b"t", b"2")
    second = asyncio.create_task(log.flush())
    await eventually(lambda: files.attempts > 3, "it is tried again")
    assert not first.done()
    files.fault = 0
    assert await first >= 1
    assert await second == 2
    assert await payloads(log) == [b"1", b"2"]
    assert log.appender.lost == 0


@pytest.mark.parametrize("on_full", ["stop_logging", "refuse_publishes"])
async def test_a_stop_ends_when_its_last_records_find_no_room(make_log: MakeLog, on_full: str) -> None:
    files = FailingFiles()
    log = await make_log(files=files, on_full=on_full)
    files.fault = errno.ENOSPC
    log.append(b"t", b"1")
    await log.stop()
    assert await payloads(await make_log()) == []


async def test_a_stop_with_a_full_disk_ends(make_log: MakeLog) -> None:
    files = FailingFiles()
    log = await make_log(files=files, on_full="refuse_publishes")
    log.append(b"t", b"1")
    await log.flush()
    files.fault = errno.ENOSPC
    log.append(b"t", b"2")
    waiting = asyncio.create_task(log.flush())
    await eventually(lambda: bool(log.writer.stopped), "the log is stopped")
    await log.stop()
    with pytest.raises(NotWritten):
        await waiting
    log = await make_log()
    assert await payloads(log) == [b"1"]


class BrokenFiles(FailingFiles):
    """One write meets a fault of the program, or all do while it `lasts`."""

    lasts = False

    def write(self, descriptor: int, parts: Sequence[bytes], position: int, synced: bool) -> None:
        if self.fault and (self.lasts or len(parts) > 1):
            self.fault = self.fault if self.lasts else 0
            raise RuntimeError("broken")
        super().write(descriptor, parts, position, synced)


@pytest.mark.parametrize(
    ("on_full", "kept", "lost"), [("stop_logging", [b"4"], 3), ("refuse_publishes", [b"1", b"2", b"3", b"4"], 0)]
)
@pytest.mark.parametrize("is_encoded", [True, False])
async def test_a_fault_of_the_program_is_as_a_fault_of_the_disk(
    make_log: MakeLog, is_encoded: bool, on_full: str, kept: list[bytes], lost: int
) -> None:
    """It is met in writing the blocks, or in encoding the second one."""
    files = BrokenFiles()
    files.lasts = True
    log = await make_log(files=files, on_full=on_full)
    block = BlockBuilder()
    block.add(b"t", b"2", 0, NOBODY, b"", 0)
    log.append(b"t", b"1")
    log.appender.append_block(block)
    log.append(b"t", b"3")
    if is_encoded:
        files.fault = 1
    else:
        block.time_ns = -1
    log.writer.write()
    # A log that gives its records up goes on at once where only they were at fault.
    await eventually(lambda: bool(log.writer.stopped) or log.appender.lost > 0, "the log is stopped")
    block.time_ns = files.fault = 0
    await going_on(log)
    log.append(b"t", b"4")
    await log.flush()
    assert (await payloads(log), log.appender.lost) == (kept, lost)


@pytest.mark.parametrize("fault", [errno.ENOSPC, 0])
async def test_nothing_is_acknowledged_that_was_not_written(
    make_log: MakeLog, world: Any, clock: Clock, fault: int
) -> None:
    files = FailingFiles()
    if fault == 0:
        files = BrokenFiles()
        files.lasts = True
    log = await make_log(files=files, on_full="refuse_publishes")
    tap = LogTap(world.broker, log.appender, Selection([b"#"]), clock, world.flush, waits=True)
    log.attach(tap)
    world.broker.add_tap(tap)
    client = world.connect("c", auto=False)
    files.fault = fault or 1
    client.publish(b"t", b"1", 1, packet_id=7)
    log.writer.records_wait()
    await eventually(lambda: bool(log.writer.stopped), "the log is stopped")
    assert client.take_packets() == []
    files.fault = 0
    await going_on(log)
    assert [packet.packet_id for packet in client.take_packets()] == [7]
    assert await payloads(log) == [b"1"]


async def test_all_that_waits_is_answered_when_the_log_stops(make_log: MakeLog, world: Any, clock: Clock) -> None:
    """One commit is being written, and another one waits, when the disk is full."""
    files = FailingFiles()
    log = await make_log(files=files)
    tap = LogTap(world.broker, log.appender, Selection([b"#"]), clock, world.flush, waits=True)
    log.attach(tap)
    world.broker.add_tap(tap)
    client = world.connect("c", auto=False)
    files.fault = errno.ENOSPC
    client.publish(b"t", b"1", 1, packet_id=1)
    log.writer.write()
    client.publish(b"t", b"2", 1, packet_id=2)
    await eventually(lambda: bool(log.writer.stopped), "the log is stopped")
    assert [packet.packet_id for packet in client.take_packets()] == [1, 2]
    assert log.appender.lost == 2


async def test_a_segment_that_cannot_be_begun_is_tried_again(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = BrokenFiles()
    log = await make_log(files=files, on_full="refuse_publishes")
    faults = [RuntimeError("broken"), OSError(errno.EIO, "broken")]
    create = files.create

    def create_later(path: Path, data: bytes) -> int:
        if faults:
            raise faults.pop()
        return create(path, data)

    files.fault = 1
    monkeypatch.setattr(files, "create", create_later)
    log.append(b"t", b"1")
    await log.flush()
    assert (await payloads(log), faults, log.appender.lost) == ([b"1"], [], 0)


def test_a_part_of_a_write_is_cut_before_the_next_segment(tmp_path: Path) -> None:
    """The age of the records may have a segment begun between a failed write and the next attempt."""
    files = FailingFiles()
    active = ActiveSegment(tmp_path, files, "n1", SEGMENT_BYTES, True)
    active.lock = lock_folder(tmp_path, files)
    log_id = str(uuid.UUID(int=1))
    active.begin(log_id, 0)
    sizes = []
    for room in (None, 100):
        files.room = room
        builder = BlockBuilder()
        builder.add(b"t", bytes(1000), 0, NOBODY, b"", 0)
        active.write(log_id, [builder])
        sizes.append(active.size)
    files.room = None
    assert (tmp_path / segment_name(0)).stat().st_size == sizes[0] + 100
    assert active.begin_next(log_id)
    assert sizes[0] == sizes[1] == (tmp_path / segment_name(0)).stat().st_size
    active.close()
    os.close(active.lock)
