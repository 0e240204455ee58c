"""The log beside a list: what was appended is read back, over segments, restarts and pieces of any size."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.event_log import aging_clock
from broker.event_log.faults import OutOfRange, WrongLogId
from broker.event_log.files import Files
from broker.event_log.holds import UNKNOWN_GROUP
from broker.event_log.recovery import IDENTITY_FILE
from broker.event_log.segment import index_name, segment_name
from broker.event_log.settings import EventLogSettings, HoldSettings, RetentionSettings
from event_log_reader import AppendingLog, Clock, MakeLog, decode_blocks, read_all

SEGMENT_BYTES = 2**16
DAY = 86_400.0


async def test_a_record_is_served_only_when_it_is_written(make_log: MakeLog) -> None:
    log = await make_log()
    log.append(b"t", b"")
    assert log.next_offset == 0
    await log.flush()
    assert log.next_offset == 1


async def test_the_answer_has_whole_blocks_up_to_its_bound(make_log: MakeLog) -> None:
    log = await make_log()
    for number in range(10):
        log.append(b"t", b"%d" % number * 1000)
        await log.flush()
    blocks, next_offset = await log.readers.read(log.log_id, 0, 10, 3500, ())
    assert ([record.offset for record in decode_blocks(blocks)], next_offset) == ([0, 1, 2], 3)
    blocks, next_offset = await log.readers.read(log.log_id, 3, 10, 1, ())
    assert ([record.offset for record in decode_blocks(blocks)], next_offset) == ([3], 4)
    blocks, next_offset = await log.readers.read(log.log_id, 4, 6, 0, ())
    assert ([record.offset for record in decode_blocks(blocks)], next_offset) == ([4, 5], 6)


class FullDisk(Files):
    """Has no room before a segment is removed."""

    is_full = True

    def create(self, path: Path, data: bytes) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().create(path, data)

    def remove(self, path: Path) -> None:
        super().remove(path)
        self.is_full = False


async def test_a_start_on_a_full_disk_removes_what_is_past_the_retention(make_log: MakeLog) -> None:
    log = await make_log(segment_bytes=SEGMENT_BYTES)
    for _ in range(4):
        log.append(b"t", bytes(SEGMENT_BYTES - 1000))
        await log.flush()
    await log.stop()
    with pytest.raises(OSError, match="No space left"):
        await make_log(files=FullDisk(), segment_bytes=SEGMENT_BYTES)
    lower = RetentionSettings(bytes=2 * SEGMENT_BYTES)
    again = await make_log(files=FullDisk(), segment_bytes=SEGMENT_BYTES, retention=lower)
    assert (again.log_id, again.first_offset, again.next_offset) == (log.log_id, 2, 4)
    assert [record.offset for record in await read_all(again, 2)] == [2, 3]


async def test_filters_leave_blocks_out(make_log: MakeLog) -> None:
    log = await make_log()
    for topic in (b"a/1", b"b/1", b"a/2", b"b/2", b"a/3"):
        log.append(topic, b"")
        await log.flush()
    assert [record.topic for record in await read_all(log, 0, (b"b/+",))] == [b"b/1", b"b/2"]
    assert [record.topic for record in await read_all(log, 0, (b"x", b"a/#"))] == [b"a/1", b"a/2", b"a/3"]
    assert await log.readers.read(log.log_id, 0, 5, 0, (b"x",)) == (b"", 5)


async def test_a_read_of_another_log_or_outside_its_offsets_is_refused(make_log: MakeLog) -> None:
    log = await make_log()
    log.append(b"t", b"")
    await log.flush()
    with pytest.raises(WrongLogId, match=r"the log of node n1 has the id .*, not other; its offsets are others"):
        await log.readers.read("other", 0, 1, 0, ())
    with pytest.raises(OutOfRange, match="offsets 0 to 2 are not in the log of node n1, which has 0 to 1"):
        await log.readers.read(log.log_id, 0, 2, 0, ())
    with pytest.raises(OutOfRange):
        await log.readers.read(log.log_id, 1, 0, 0, ())


async def test_time_does_not_step_back(make_log: MakeLog, clock: Clock) -> None:
    log = await make_log()
    begin = clock.now_ns
    log.append(b"t", b"")
    clock.advance(-3600)
    log.append(b"t", b"")
    await log.stop()
    log = await make_log()
    log.append(b"t", b"")
    clock.advance(3601)
    log.append(b"t", b"")
    await log.flush()
    assert [record.time_ns - begin for record in await read_all(log)] == [0, 0, 0, 10**9]


async def test_holds_move_forward_and_outlive_a_restart(make_log: MakeLog) -> None:
    log = await make_log()
    for _ in range(5):
        log.append(b"t", b"")
    await log.flush()
    await log.hold("g", "q1", log.log_id, 3)
    await log.hold("g", "q1", log.log_id, 2)
    await log.hold("g", "q2", log.log_id, 1)
    await log.stop()
    log = await make_log()
    assert [(hold.group, hold.query, hold.offset) for hold in log.holds.all()] == [("g", "q1", 3), ("g", "q2", 1)]
    assert await log.release("g", "") == 2
    assert await log.release("g", "") == 0


async def test_a_clock_that_was_ahead_is_told_at_the_next_start(
    make_log: MakeLog, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    for seconds, is_told in ((0, False), (-30, False), (-3600, True)):
        log = await make_log()
        log.append(b"t", b"")
        await log.flush()
        await log.stop()
        capsys.readouterr()
        clock.advance(seconds)
        log = await make_log()
        assert ("the clock is behind the newest record" in capsys.readouterr().out) == is_told
        await log.stop()


async def test_old_segments_are_removed_with_their_files(make_log: MakeLog, clock: Clock, tmp_path: Path) -> None:
    retention = RetentionSettings(age=100.0, bytes=0)
    log = await make_log(segment_bytes=SEGMENT_BYTES, retention=retention)
    for number in range(40):
        log.append(b"t", b"%d" % number + bytes(5000))
        await log.flush()
        clock.advance(10)
    log_id = log.log_id
    await log.stop()
    log = await make_log(segment_bytes=SEGMENT_BYTES, retention=retention)
    assert (log.log_id, log.first_offset, log.next_offset) == (log_id, 24, 40)
    assert (await read_all(log))[0].offset == 24
    with pytest.raises(OutOfRange):
        await log.readers.read(log.log_id, 23, 40, 0, ())
    await log.flush()
    await log.hold("g", "q", log.log_id, 30)  # after the removal, in the same thread
    names = {path.name for path in (tmp_path / "log").iterdir()}
    assert names & {segment_name(0), index_name(0)} == set()
    assert segment_name(24) in names


async def test_a_hold_past_its_limits_is_released_and_counted(make_log: MakeLog, clock: Clock) -> None:
    keys = {
        "segment_bytes": SEGMENT_BYTES,
        "retention": RetentionSettings(age=0.0, bytes=2 * SEGMENT_BYTES),
        "hold": HoldSettings(max_age=0.0, max_bytes=3 * SEGMENT_BYTES),
    }
    log = await make_log(**keys)
    for number in range(36):
        log.append(b"t", b"%d" % number + bytes(5000))
        await log.flush()
        if number == 5:
            await log.hold("slow", "q", log.log_id, 3)
            await log.hold("quick", "q", log.log_id, 6)
    await log.hold("quick", "q", log.log_id, 34)
    await log.stop()
    log = await make_log(**keys)
    assert log.first_offset == 0, "held, within its limits"
    for _ in range(12):
        log.append(b"t", bytes(5000))
        await log.flush()
    await log.stop()
    log = await make_log(**keys)
    assert (log.first_offset, log.holds_released) == (12, 1)
    await log.stop()
    log = await make_log(**keys)
    assert log.first_offset == 24, "the other hold does not need them"
    assert [(hold.group, hold.offset) for hold in log.holds.all()] == [("quick", 34)]


@pytest.mark.parametrize("damage", [b"", b'{"log_id": '])
async def test_a_damaged_file_of_holds_holds_everything(make_log: MakeLog, tmp_path: Path, damage: bytes) -> None:
    """A query that is stopped may need any of it, and calls no more until it is started."""
    keys = {"segment_bytes": SEGMENT_BYTES, "retention": RetentionSettings(age=0.0, bytes=2 * SEGMENT_BYTES)}
    log = await make_log(**keys)
    await log.hold("g", "q", log.log_id, 0)
    for number in range(36):
        log.append(b"t", b"%d" % number + bytes(5000))
        await log.flush()
    await log.stop()
    (tmp_path / "log" / "holds.json").write_bytes(damage)
    for _ in range(2):  # it is in the new file
        log = await make_log(**keys)
        assert log.first_offset == 0
        assert [(hold.group, hold.query, hold.offset) for hold in log.holds.all()] == [(UNKNOWN_GROUP, "", 0)]
        await log.stop()
    log = await make_log(**keys)
    assert await log.release(UNKNOWN_GROUP, "") == 1
    await log.stop()
    log = await make_log(**keys)
    assert log.first_offset == 12


async def test_holds_outlive_a_crash_right_after_the_log_got_another_id(make_log: MakeLog, tmp_path: Path) -> None:
    log = await make_log()
    for number in range(4):
        log.append(b"t", b"%d" % number)
    await log.flush()
    for offset in (1, 4):
        await log.hold("g", str(offset), log.log_id, offset)
    await log.stop()
    path = tmp_path / "log" / IDENTITY_FILE
    identity = json.loads(path.read_text())
    path.write_text(json.dumps({**identity, "log_id": str(uuid4()), "parents": [[identity["log_id"], 3, 0]]}))
    log = await make_log()
    assert [hold.offset for hold in log.holds.all()] == [1, 3]


async def test_records_past_their_age_go_when_nothing_new_comes(make_log: MakeLog, clock: Clock) -> None:
    retention = RetentionSettings(age=100.0, bytes=0)
    log = await make_log(retention=retention)
    log.append(b"t", b"")
    await log.flush()
    clock.advance(101)
    await log.stop()
    log = await make_log(retention=retention)
    await log.release("g", "")
    await log.hold("g", "q", log.log_id, 1)  # after the new segment was begun
    await log.stop()
    log = await make_log(retention=retention)
    assert (log.first_offset, log.next_offset) == (1, 1)


async def test_a_clock_that_is_far_ahead_at_the_start_removes_nothing_at_first(
    make_log: MakeLog, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without a battery for its clock, before NTP has set it."""
    settings = {
        "segment_bytes": SEGMENT_BYTES,
        "retention": RetentionSettings(age=3 * DAY, bytes=0),
        "hold": HoldSettings(max_age=30 * DAY, max_bytes=0),
    }
    log = await make_log(**settings)
    for number in range(24):
        log.append(b"t", b"%d" % number + bytes(5000))
        await log.flush()
    await log.hold("g", "q", log.log_id, 0)
    await log.stop()
    clock.advance(365 * DAY)
    log = await make_log(**settings)
    assert (log.first_offset, len(log.holds.all())) == (0, 1)
    monkeypatch.setattr(aging_clock, "UNSURE_SECONDS", 0.0)
    await log.stop()
    log = await make_log(**settings)
    assert (log.first_offset, log.holds.all()) == (12, [])


async def test_a_block_larger_than_a_segment(make_log: MakeLog) -> None:
    log = await make_log(segment_bytes=SEGMENT_BYTES)
    sizes = [10, 5 * SEGMENT_BYTES, 10, SEGMENT_BYTES, SEGMENT_BYTES, 3 * 2**20, 1]
    for size in sizes:
        log.append(b"t", bytes(size))
    await log.flush()
    for size in sizes:
        log.append(b"t", bytes(size))
        await log.flush()
    assert [len(record.payload) for record in await read_all(log)] == sizes * 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "flush", "restart", "hold"]),
            st.integers(0, 30_000),
            st.sampled_from([b"a", b"b/c", b"$x"]),
        ),
        max_size=25,
    )
)
def test_any_use_reads_like_a_list(tmp_path: Path, steps: list[tuple[str, int, bytes]]) -> None:
    """Differential: the log beside a list, over appends, writes, restarts and holds."""
    folder = tmp_path / "any"
    shutil.rmtree(folder, ignore_errors=True)
    clock = Clock()

    async def opened() -> AppendingLog:
        log = AppendingLog(EventLogSettings(dir=str(folder), segment_bytes=SEGMENT_BYTES), "n1", None, clock)
        await log.start()
        return log

    async def run() -> None:
        log = await opened()
        log_id = log.log_id
        model: list[tuple[bytes, int, int]] = []
        for what, number, topic in steps:
            clock.advance(number / 1000)
            if what == "append":
                log.append(topic, bytes(number), number % 3)
                model.append((topic, number, clock.now_ns))
            elif what == "flush":
                assert await log.flush() == len(model)
            elif what == "hold":
                await log.hold("g", "q", log.log_id, log.next_offset)
            else:
                await log.stop()
                log = await opened()
        await log.flush()
        assert log.log_id == log_id
        found = await read_all(log)
        assert [(record.topic, len(record.payload), record.time_ns) for record in found] == model
        for offset, (_, _, time_ns) in enumerate(model):
            first = next(at for at, other in enumerate(model) if other[2] >= time_ns)
            assert await log.readers.find(log_id, time_ns) == first <= offset
        await log.stop()

    asyncio.run(run())
