"""A damaged segment is set aside: a crash in between, writes meanwhile, a disk that does not do its part."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.event_log.faults import LogFault, NotWritten, OutOfRange
from broker.event_log.files import FREE_BYTES_MIN, Files
from broker.event_log.recovery import recover
from event_log_reader import AppendingLog, MakeLog, read_all
from failing_files import FailingFiles
from waiting import eventually

SEGMENT_BYTES = 2**16
RECORDS = 30  # of 5,000 bytes: 12 in each segment


async def filled(make_log: MakeLog, files: Files | None = None) -> AppendingLog:
    log = await make_log(segment_bytes=SEGMENT_BYTES, files=files)
    for number in range(RECORDS):
        log.append(b"t", b"%04d" % number * 1250)
        await log.flush()
    return log


def damage(folder: Path, which: int) -> None:
    damage_byte(sorted(folder.glob("*.log"))[which], 200)


def damage_byte(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    path.with_suffix(".index").unlink(missing_ok=True)


def make_unreadable(folder: Path, which: int) -> None:
    """Each read of the segment is an error of input, as of a disk with a bad sector."""
    path = sorted(folder.glob("*.log"))[which]
    path.unlink()
    path.symlink_to("/proc/self/mem")


class EndingFiles(Files):
    """The process ends before step number `steps` that changes names of files."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def _step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise OSError("the process ends")

    def create(self, path: Path, data: bytes) -> int:
        self._step()
        return super().create(path, data)

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)

    def move(self, path: Path, folder: Path) -> Path:
        self._step()
        return super().move(path, folder)


async def check(log: AppendingLog, log_id: str, which: int) -> None:
    """The log goes on: what readers had is not given out again, and what is left can be read."""
    assert (log.log_id, log.next_offset) == (log_id, RECORDS)
    log.append(b"t", b"next")
    await log.flush()
    with contextlib.suppress(OutOfRange):  # the damage is found by this read, at the begin of the log
        await read_all(log)
    records = await read_all(log)
    gone = (range(12), range(12, 24), range(24, RECORDS))[which]
    assert [record.offset for record in records] == [each for each in range(RECORDS + 1) if each not in gone]


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("steps", range(6))
async def test_a_crash_in_a_start_forgets_nothing(make_log: MakeLog, tmp_path: Path, which: int, steps: int) -> None:
    log = await filled(make_log)
    folder = tmp_path / "crashed"
    shutil.copytree(tmp_path / "log", folder)
    damage(folder, which)
    with contextlib.suppress(OSError):  # the last number of steps is enough
        recover(folder, EndingFiles(steps), "n1", "commit", 0)
    await check(await make_log(dir=str(folder), segment_bytes=SEGMENT_BYTES), log.log_id, which)


@pytest.mark.parametrize("steps", range(8))
async def test_a_crash_in_a_start_that_gives_another_id_forgets_nothing(
    make_log: MakeLog, tmp_path: Path, steps: int
) -> None:
    """The newest segment is damaged in its middle, and the mark is missing."""
    log = await filled(make_log)
    folder = tmp_path / "crashed"
    shutil.copytree(tmp_path / "log", folder)
    damage(folder, 2)
    (folder / "synced").unlink()
    with contextlib.suppress(OSError, NotWritten):
        started = await make_log(files=EndingFiles(steps), dir=str(folder), segment_bytes=SEGMENT_BYTES)
        await started.stop()
    again = await make_log(dir=str(folder), segment_bytes=SEGMENT_BYTES)
    shared_end = again.lineage.shared_end(log.log_id)
    assert again.log_id != log.log_id
    assert shared_end == again.next_offset == 24


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("steps", range(6))
async def test_a_crash_after_a_read_forgets_nothing(make_log: MakeLog, tmp_path: Path, which: int, steps: int) -> None:
    files = EndingFiles(1000)
    log = await filled(make_log, files)
    log_id = log.log_id
    damage(tmp_path / "log", which)
    files.steps = steps
    with contextlib.suppress(LogFault):
        await read_all(log)
    folder = tmp_path / "crashed"
    shutil.copytree(tmp_path / "log", folder)
    await check(await make_log(dir=str(folder), segment_bytes=SEGMENT_BYTES), log_id, which)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="the system has no /proc/self/mem")
@pytest.mark.parametrize("which", [0, 1])
async def test_a_segment_that_the_disk_does_not_give_is_a_gap(make_log: MakeLog, tmp_path: Path, which: int) -> None:
    log = await filled(make_log)
    make_unreadable(tmp_path / "log", which)
    await check(log, log.log_id, which)
    assert "cannot be read" in log.damaged[0].fault


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="the system has no /proc/self/mem")
@pytest.mark.parametrize("which", [0, 1, 2])
async def test_a_start_sets_aside_what_the_disk_does_not_give(make_log: MakeLog, tmp_path: Path, which: int) -> None:
    log = await filled(make_log)
    folder = tmp_path / "crashed"
    shutil.copytree(tmp_path / "log", folder)
    make_unreadable(folder, which)
    again = await make_log(dir=str(folder), segment_bytes=SEGMENT_BYTES)
    await check(again, log.log_id, which)
    assert "cannot be read" in again.damaged[0].fault


BAD_SECTOR = 20_000  # byte of a segment of 30,000


class BadDisk(io.FileIO):
    """It gives nothing from BAD_SECTOR on."""

    def read(self, size: int | None = -1, /) -> bytes:
        left = BAD_SECTOR - self.tell()
        if left <= 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(left if size is None or size < 0 else min(size, left))


class SmallDisk(FailingFiles):
    """It has `room` bytes; removed files give theirs back. It says that `free` are left."""

    free = 2**40

    def free_bytes(self, folder: Path) -> int:
        return self.free

    def remove(self, path: Path) -> None:
        if self.room is not None and path.exists():
            self.room += path.stat().st_size
        super().remove(path)


def crashed(tmp_path: Path) -> Path:
    """A folder of a log that did not stop; its newest segment has no index file."""
    folder = tmp_path / "crashed"
    shutil.copytree(tmp_path / "log", folder)
    return folder


async def test_a_start_keeps_what_stands_before_a_bad_sector(
    make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(make_log)
    folder = crashed(tmp_path)
    newest = sorted(folder.glob("*.log"))[-1]
    opened = Path.open

    def opened_bad(path: Path, *args: Any, **options: Any) -> Any:
        return BadDisk(path) if path == newest else opened(path, *args, **options)

    monkeypatch.setattr(Path, "open", opened_bad)
    found = recover(folder, Files(), "n1", "commit", 0)
    size = found.segments[-1].size
    assert [segment.end_offset for segment in found.segments] == [12, 24, 27]
    assert found.identity.next_offset == RECORDS
    assert newest.stat().st_size == size
    assert "cannot be read" in found.damaged[0].fault
    assert [(path.name, path.stat().st_size) for path in (folder / "damaged").iterdir()] == [
        (f"{newest.name}.from-{size}", BAD_SECTOR - size)
    ]


@pytest.mark.parametrize("missing", [0, 1])  # bytes, to what a copy has to leave for the start
async def test_a_full_disk_takes_no_copy_of_a_damaged_end(make_log: MakeLog, tmp_path: Path, missing: int) -> None:
    """Without a missing byte it is told while the copy is written, as by a quota."""
    await filled(make_log)
    folder = crashed(tmp_path)
    newest = sorted(folder.glob("*.log"))[-1]
    damage_byte(newest, BAD_SECTOR)
    shutil.copytree(folder, tmp_path / "other")
    copied = recover(tmp_path / "other", Files(), "n1", "commit", 0).damaged[0].file
    disk = SmallDisk()
    disk.room = 2000  # for log.json
    disk.free = (tmp_path / "other" / copied).stat().st_size + FREE_BYTES_MIN - missing
    found = recover(folder, disk, "n1", "commit", 0)
    assert disk.attempts == 1 - missing
    assert [segment.end_offset for segment in found.segments] == [12, 24, 27]
    assert newest.stat().st_size == found.segments[-1].size
    assert (found.damaged[0].file, found.damaged[0].first_offset) == ("", 27)
    assert "no room" in found.damaged[0].fault
    assert not list(folder.glob("damaged/*"))


async def test_starts_that_end_in_a_copy_leave_one(make_log: MakeLog, tmp_path: Path) -> None:
    class EndingCopies(Files):
        def write(self, descriptor: int, parts: Sequence[bytes], position: int, synced: bool) -> None:
            super().write(descriptor, parts, position, synced)
            if not synced:
                raise OSError("the process ends")

    await filled(make_log)
    folder = crashed(tmp_path)
    newest = sorted(folder.glob("*.log"))[-1]
    damage_byte(newest, BAD_SECTOR)
    content = newest.read_bytes()
    for _ in range(2):
        with pytest.raises(OSError, match="the process ends"):
            recover(folder, EndingCopies(), "n1", "commit", 0)
    found = recover(folder, Files(), "n1", "commit", 0)
    assert [f"damaged/{path.name}" for path in (folder / "damaged").iterdir()] == [found.damaged[0].file]
    assert (folder / found.damaged[0].file).read_bytes() == content[found.segments[-1].size :]


class SlowFiles(Files):
    """`create` waits for `go`; `created` counts its calls."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.created = 0

    def create(self, path: Path, data: bytes) -> int:
        self.created += 1
        self.go.wait(10)
        return super().create(path, data)


async def test_writes_go_on_in_the_next_segment_meanwhile(make_log: MakeLog, tmp_path: Path) -> None:
    files = SlowFiles()
    log = await filled(make_log, files)
    damage(tmp_path / "log", -1)
    files.go.clear()
    created = files.created
    reading = asyncio.create_task(read_all(log))
    await eventually(lambda: files.created > created, "the next segment is being begun")
    log.append(b"t", b"meanwhile")
    log.writer.write()
    holding = asyncio.create_task(log.hold("g", "q", log.log_id, log.first_offset))
    await asyncio.sleep(0)
    files.go.set()
    assert len(await reading) == 24
    await holding
    await log.flush()
    assert (await read_all(log))[-1].payload == b"meanwhile"


async def test_a_disk_that_takes_nothing_is_named_to_the_reader(make_log: MakeLog, tmp_path: Path) -> None:
    files = FailingFiles()
    log = await filled(make_log, files)
    damage(tmp_path / "log", 1)
    files.fault = 28
    with pytest.raises(LogFault, match=r"is damaged \(.*\) and cannot be set aside: .*No space left"):
        await read_all(log)
    files.fault = 0
    assert len(await read_all(log)) == RECORDS - 12
