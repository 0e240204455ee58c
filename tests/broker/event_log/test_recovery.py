"""A folder that something happened to: a start brings it into order, reads what is left, appends, and reads again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.event_log import recovery
from broker.event_log.faults import WrongLogId
from broker.event_log.files import Files
from broker.event_log.identity import LogIdentity
from broker.event_log.recovery import FolderInUse, recover, save_identity
from broker.event_log.segment import segment_name
from broker.event_log.settings import EventLogSettings
from event_log_reader import AppendingLog, MakeLog, Record, read_all

SEGMENT_BYTES = 2**16
RECORDS = 40  # of 5,000 bytes: 12 in each segment


async def filled(make_log: MakeLog, sync: str) -> AppendingLog:
    log = await make_log(segment_bytes=SEGMENT_BYTES, sync=sync)
    for number in range(RECORDS):
        log.append(b"t", b"%04d" % number * 1250)
        await log.flush()
    assert len(log.segments) == 4
    return log


def numbers(records: list[Record]) -> list[int]:
    return [int(record.payload[:4]) for record in records]


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def crashed(folder: Path) -> Path:
    """The folder as a killed process leaves it."""
    copy = folder.with_name("crashed")
    shutil.copytree(folder, copy)
    return copy


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


def cut(path: Path, size: int) -> None:
    os.truncate(path, path.stat().st_size - size)


def remove(paths: list[Path]) -> None:
    for path in paths:
        path.unlink()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def unmarked(folder: Path, damage: Callable[[Path, int], None], at: int) -> None:
    """Damage the newest segment, of which nobody knows that it was on disk."""
    damage(segments(folder)[-1], at)
    (folder / "synced").unlink()


FIRST, SECOND, NEWEST, LAST = range(12), range(12, 24), range(36, 40), range(39, 40)
# What happens to the folder; the records that are gone; whether a log with sync commit keeps its id.
DAMAGES: dict[str, tuple[Callable[[Path], object], range, bool]] = {
    "nothing": (lambda folder: None, range(0), True),
    "the last write is not finished": (
        lambda folder: append(segments(folder)[-1], b"GMLB" + bytes(90)),
        range(0),
        True,
    ),
    "zeros behind the last block": (lambda folder: append(segments(folder)[-1], bytes(4096)), range(0), True),
    "a part of the last block that is not known to be on disk": (
        lambda folder: unmarked(folder, cut, 100),
        LAST,
        True,
    ),
    "a changed byte at the end that is not known to be on disk": (
        lambda folder: unmarked(folder, flip, -1),
        LAST,
        True,
    ),
    "a part of the last block": (lambda folder: cut(segments(folder)[-1], 100), LAST, False),
    "a changed byte at the end": (lambda folder: flip(segments(folder)[-1], -1), LAST, False),
    "a changed byte in an old segment": (lambda folder: flip(segments(folder)[1], 30_000), SECOND, False),
    "an old segment is cut": (lambda folder: cut(segments(folder)[1], 1), SECOND, False),
    "a changed header": (lambda folder: flip(segments(folder)[0], 10), FIRST, False),
    "a missing segment in the middle": (lambda folder: segments(folder)[1].unlink(), SECOND, False),
    "the first segment is missing": (lambda folder: segments(folder)[0].unlink(), FIRST, True),
    "the newest segment is missing": (lambda folder: segments(folder)[-1].unlink(), NEWEST, False),
    "all segments are missing": (lambda folder: remove(segments(folder)), range(RECORDS), False),
    "log.json is missing": (lambda folder: (folder / "log.json").unlink(), range(0), False),
    "log.json is damaged": (lambda folder: cut(folder / "log.json", 5), range(0), False),
    "holds.json is damaged": (lambda folder: cut(folder / "holds.json", 5), range(0), True),
    "index files are missing": (lambda folder: remove(list(folder.glob("*.index"))), range(0), True),
    "an index file is damaged": (lambda folder: flip(min(folder.glob("*.index")), 30), range(0), True),
    "files of a write that was not finished": (
        lambda folder: (folder / "log.json.partial").write_bytes(b"x"),
        range(0),
        True,
    ),
    "files of somebody else": (lambda folder: (folder / "notes.log").write_bytes(b"x"), range(0), True),
}


@pytest.mark.parametrize("name", DAMAGES)
async def test_damage_then_read_append_and_read_again(make_log: MakeLog, tmp_path: Path, name: str) -> None:
    damage, gone, keeps_id = DAMAGES[name]
    log = await filled(make_log, "commit")
    folder = crashed(tmp_path / "log")
    for path in folder.glob("*.index"):  # the scan is to see the damage, as a machine without index files would
        if "index" not in name:
            path.unlink()
    damage(folder)
    log_id = log.log_id
    expected = [number for number in range(RECORDS) if number not in gone]
    log = await make_log(dir=str(folder), segment_bytes=SEGMENT_BYTES)
    assert (log.log_id == log_id) is keeps_id
    assert numbers(await read_all(log)) == expected
    for number in (100, 101, 102):
        log.append(b"t", b"%04d" % number * 1250)
        await log.flush()
    assert numbers(await read_all(log)) == [*expected, 100, 101, 102]
    log_id = log.log_id
    offsets = [record.offset for record in await read_all(log)]
    assert offsets == sorted(set(offsets))
    await log.stop()
    log = await make_log(dir=str(folder), segment_bytes=SEGMENT_BYTES)
    assert log.log_id == log_id, "nothing more was lost"
    assert numbers(await read_all(log)) == [*expected, 100, 101, 102]


async def test_damage_that_a_read_finds(make_log: MakeLog, tmp_path: Path) -> None:
    """The index file says that the segment is sound; its bytes are read for the first time."""
    log = await filled(make_log, "commit")
    await log.hold("g", "q", log.log_id, 5)
    log_id = log.log_id
    flip(segments(tmp_path / "log")[1], 30_000)
    with pytest.raises(
        WrongLogId, match=rf"segment {segment_name(12)} of node n1 is damaged \(the block of offset 17 does"
    ):
        await read_all(log)
    assert log.log_id != log_id
    assert [(damaged.file, damaged.first_offset) for damaged in log.damaged] == [(f"damaged/{segment_name(12)}", 12)]
    assert (tmp_path / "log" / log.damaged[0].file).exists()
    expected = [*FIRST, *range(24, 40)]
    assert numbers(await read_all(log)) == expected
    assert log.holds.all() == [], "they are of the former id"
    await log.stop()
    log = await make_log(segment_bytes=SEGMENT_BYTES)
    assert log.log_id == log.log_id
    assert numbers(await read_all(log)) == expected


async def test_damage_in_the_segment_that_is_written(make_log: MakeLog, tmp_path: Path) -> None:
    log = await make_log()
    for number in range(3):
        log.append(b"t", b"%04d" % number)
        await log.flush()
    flip(segments(tmp_path / "log")[0], 150)
    with pytest.raises(WrongLogId):
        await read_all(log)
    log.append(b"t", b"0100")
    await log.flush()
    assert [(record.offset, record.payload) for record in await read_all(log)] == [(3, b"0100")]


@pytest.mark.parametrize(
    ("sync", "is_torn", "restarted", "keeps_id"),
    [
        ("commit", True, True, True),
        ("interval", False, False, True),
        ("interval", True, False, False),
        ("interval", False, True, False),
        ("none", False, False, True),
        ("none", True, False, False),
        ("none", False, True, False),
    ],
)
async def test_the_id_after_a_crash(
    make_log: MakeLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sync: str,
    is_torn: bool,
    restarted: bool,
    keeps_id: bool,
) -> None:
    log = await filled(make_log, sync)
    folder = crashed(tmp_path / "log")
    if is_torn:
        cut(segments(folder)[-1], 10)
        (folder / "synced").unlink(missing_ok=True)
    if restarted:
        monkeypatch.setattr(recovery, "boot_id", lambda: "another boot")
    log_id = log.log_id
    log = await make_log(dir=str(folder), segment_bytes=SEGMENT_BYTES, sync=sync)
    assert (log.log_id == log_id) is keeps_id
    assert numbers(await read_all(log)) == list(range(RECORDS - is_torn))


async def test_a_clean_stop_keeps_the_id_over_a_restart_of_the_machine(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await filled(make_log, "none")
    log_id = log.log_id
    await log.stop()
    monkeypatch.setattr(recovery, "boot_id", lambda: "another boot")
    log = await make_log(segment_bytes=SEGMENT_BYTES, sync="none")
    assert log.log_id == log_id
    assert numbers(await read_all(log)) == list(range(RECORDS))


async def test_records_that_were_read_and_are_gone_change_the_id(make_log: MakeLog, tmp_path: Path) -> None:
    """With sync commit a torn tail is cut, unless a reader has named a record of it."""
    log = await filled(make_log, "commit")
    await log.hold("g", "q", log.log_id, RECORDS)
    folder = crashed(tmp_path / "log")
    cut(segments(folder)[-1], 1)
    (folder / "synced").unlink()
    again = await make_log(dir=str(folder), segment_bytes=SEGMENT_BYTES)
    assert again.log_id != log.log_id


async def test_a_folder_has_one_user(make_log: MakeLog, tmp_path: Path) -> None:
    log = await make_log()
    with pytest.raises(FolderInUse):
        await make_log()
    with pytest.raises(FileNotFoundError):
        await make_log(dir=str(tmp_path / "missing" / "log"))
    assert (await log.flush()) == 0


async def test_the_folder_itself_is_on_disk(make_log: MakeLog, tmp_path: Path) -> None:
    """Acknowledged records would go with a name that a crash of the machine takes back."""

    class SyncedFolders(Files):
        def sync_folder(self, folder: Path) -> None:
            super().sync_folder(folder)
            synced.append((folder, sorted(path.name for path in folder.iterdir())))

    synced: list[tuple[Path, list[str]]] = []
    await make_log(files=SyncedFolders())
    assert (tmp_path, ["log"]) in synced


async def test_the_files_belong_to_this_user_alone(make_log: MakeLog, tmp_path: Path) -> None:
    await filled(make_log, "commit")
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "log").iterdir()} == {0o600}


async def whole_folder(folder: Path) -> None:
    log = AppendingLog(EventLogSettings(dir=str(folder), segment_bytes=SEGMENT_BYTES), "n1")
    await log.start()
    for number in range(8):
        log.append(b"t", b"%04d" % number * (300 * number))
        await log.flush()
    await log.stop()


@pytest.fixture
async def whole(tmp_path: Path) -> Path:
    """A folder with one segment of eight blocks."""
    await whole_folder(tmp_path / "whole")
    for path in (tmp_path / "whole").glob("*.index"):
        path.unlink()
    save_identity(tmp_path / "whole", Files(), LogIdentity("00000000-0000-0000-0000-000000000001", "n1", "commit", ""))
    return tmp_path / "whole"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.data())
def test_a_start_finds_a_prefix_of_a_damaged_last_segment(whole: Path, data: st.DataObject) -> None:
    folder = whole.with_name("damaged")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    path = segments(folder)[0]
    size = path.stat().st_size
    kind = data.draw(st.sampled_from(["cut", "flip", "zeros", "append"]))
    at = data.draw(st.integers(0, size - 1))
    if kind == "cut":
        os.truncate(path, at)
    elif kind == "flip":
        flip(path, at)
    elif kind == "zeros":
        content = path.read_bytes()
        end = min(size, at + data.draw(st.integers(1, 600)))
        path.write_bytes(content[:at] + bytes(end - at) + content[end:])
    else:
        append(path, data.draw(st.binary(min_size=1, max_size=200)))
    found = recover(folder, Files(), "n1", "commit")
    end_offset = found.segments[0].end_offset if found.segments else 0
    assert end_offset <= 8
    if found.damaged:
        assert found.lost
    else:
        # A sound start afterwards sees the same, and nothing more to mend.
        again = recover(folder, Files(), "n1", "commit")
        assert (again.segments[0].end_offset, again.torn_bytes, again.damaged) == (end_offset, 0, [])
        assert not found.lost
