"""Somebody removes or replaces the files under a running log: it says so, and does what it does with a full disk."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.event_log import log_writer
from broker.event_log.appender import State
from broker.event_log.faults import LogFault, NotWritten, OutOfRange
from event_log_reader import AppendingLog, MakeLog, read_all
from waiting import eventually

Take = Callable[[Path], object]


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "RETRY_SECONDS", 0.005)
    monkeypatch.setattr(log_writer, "LOOK_SECONDS", 0.005)


def segment(folder: Path) -> Path:
    return sorted(folder.glob("*.log"))[-1]


def replaced(folder: Path) -> None:
    shutil.copy(segment(folder), folder / "copy")
    os.replace(folder / "copy", segment(folder))


def other_folder(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    shutil.copytree(folder.with_name("moved"), folder)


def file_there(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_bytes(b"")


FOLDER: dict[str, Take] = {
    "removed": shutil.rmtree,
    "moved": lambda folder: folder.rename(folder.with_name("moved")),
    "another in its place": other_folder,
    "a file in its place": file_there,
    "the lock alone": lambda folder: (folder / "lock").unlink(),
}
SEGMENT: dict[str, Take] = {
    "removed": lambda folder: segment(folder).unlink(),
    "replaced": replaced,
    "cut": lambda folder: os.truncate(segment(folder), 10),
}


async def with_records(make_log: MakeLog, **settings: str) -> AppendingLog:
    log = await make_log(**settings)
    for number in range(3):
        log.append(b"t", b"%d" % number)
        await log.flush()
    return log


async def noticed(log: AppendingLog) -> None:
    await eventually(lambda: bool(log.writer.stopped), "the log says so")


@pytest.mark.parametrize("name", FOLDER)
async def test_a_folder_that_is_taken_away_stops_the_log(make_log: MakeLog, tmp_path: Path, name: str) -> None:
    log = await with_records(make_log)
    FOLDER[name](tmp_path / "log")
    await noticed(log)
    assert str(tmp_path / "log") in log.writer.stopped
    assert "restart" in log.writer.stopped
    log.append(b"t", b"lost")
    with pytest.raises(NotWritten):
        await log.flush()
    assert (log.appender.state, log.appender.lost, log.next_offset) == (State.DROPPING, 1, 3)


async def test_a_refusing_log_keeps_what_was_not_acknowledged(make_log: MakeLog, tmp_path: Path) -> None:
    log = await with_records(make_log, on_full="refuse_publishes")
    shutil.rmtree(tmp_path / "log")
    await noticed(log)
    log.append(b"t", b"waits")
    waiting = asyncio.create_task(log.flush())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert (log.appender.state, log.appender.lost) == (State.REFUSING, 0)
    with pytest.raises(LogFault):
        await read_all(log)
    with pytest.raises(NotWritten):
        await log.hold("g", "q", log.log_id, 1)
    await log.stop()
    with pytest.raises(NotWritten):
        await waiting
    again = await make_log()
    assert (again.log_id != log.log_id, again.next_offset) == (True, 0)


@pytest.mark.parametrize("name", SEGMENT)
@pytest.mark.parametrize("on_full", ["stop_logging", "refuse_publishes"])
async def test_a_segment_that_is_taken_away_is_a_gap(
    make_log: MakeLog, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, on_full: str
) -> None:
    log = await with_records(make_log, on_full=on_full)
    log_id = log.log_id
    path = segment(tmp_path / "log")
    SEGMENT[name](tmp_path / "log")
    await eventually(lambda: len(log.segments) == 2 and not log.writer.stopped, "the log goes on in another segment")
    assert path.name in capsys.readouterr().out
    log.append(b"t", b"next")
    await log.flush()
    records = await read_all(log, 3)
    assert [(record.offset, record.payload) for record in records] == [(3, b"next")]
    left = await left_of(log)
    assert left == ([b"0", b"1", b"2"] if name == "replaced" else [])
    await log.stop()
    again = await make_log()
    assert (again.log_id, again.next_offset) == (log_id, 4)


async def left_of(log: AppendingLog) -> list[bytes]:
    """What can be read of the first three records."""
    try:
        return [record.payload for record in await read_all(log) if record.offset < 3]
    except OutOfRange:
        return []


async def test_a_mark_that_is_taken_away_is_made_again(make_log: MakeLog, tmp_path: Path) -> None:
    log = await with_records(make_log)
    mark = tmp_path / "log" / "synced"
    mark.unlink()

    def is_there() -> bool:
        log.append(b"t", b"more")
        log.writer.write()
        return mark.exists()

    await eventually(is_there, "the mark is made again")
    end = await log.flush()
    shutil.copytree(tmp_path / "log", tmp_path / "crashed")
    again = await make_log(dir=str(tmp_path / "crashed"))
    assert (again.log_id, again.next_offset) == (log.log_id, end)


@pytest.mark.parametrize("state", [State.IDLE, State.LINGERING])
async def test_looks_find_nothing_wrong(make_log: MakeLog, state: State) -> None:
    log = await with_records(make_log)
    looks = 0
    look = log.writer.look

    def counted() -> None:
        nonlocal looks
        looks += 1
        look()

    log.writer.look = counted  # type: ignore[method-assign]
    if state is State.LINGERING:
        log.append(b"t", b"lingers")
        log.writer.records_wait()
    await eventually(lambda: looks > 3, "some looks")
    assert not log.writer.stopped
    log.append(b"t", b"next")
    await log.flush()
    assert (await read_all(log))[-1].payload == b"next"
