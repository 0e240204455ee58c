"""A folder that something happened to: a start brings it into order, reads what is left, appends, and reads again."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.event_log import recovery
from broker.event_log.block import BlockBuilder
from broker.event_log.faults import OutOfRange
from broker.event_log.files import Files
from broker.event_log.recovery import FolderInUse
from broker.event_log.segment import segment_name
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


def block_of(offset: int) -> bytes:
    builder = BlockBuilder()
    builder.add(b"t", b"x", 0, ("", "", ""), b"", 1)
    return builder.take(offset)


def without_identity(folder: Path) -> None:
    (folder / "log.json").unlink()
    cut(segments(folder)[-1], 1)


FIRST, SECOND, NEWEST, LAST = range(12), range(12, 24), range(36, 40), range(39, 40)
END_OF_SECOND = range(17, 24)  # with the record that stands at byte 30,000
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
        False,
    ),
    "a changed byte at the end that is not known to be on disk": (
        lambda folder: unmarked(folder, flip, -1),
        LAST,
        False,
    ),
    "a changed byte in the newest segment that is not known to be on disk": (
        lambda folder: unmarked(folder, flip, 12_000),
        range(38, 40),
        False,
    ),
    "a changed byte at the end": (lambda folder: flip(segments(folder)[-1], -1), LAST, True),
    "a changed byte in an old segment": (lambda folder: flip(segments(folder)[1], 30_000), END_OF_SECOND, True),
    "a changed byte in the first block of an old segment": (
        lambda folder: flip(segments(folder)[1], 200),
        SECOND,
        True,
    ),
    "a changed byte in the newest segment": (lambda folder: flip(segments(folder)[-1], 12_000), range(38, 40), True),
    "a changed byte in the first block of the newest segment": (
        lambda folder: flip(segments(folder)[-1], 200),
        NEWEST,
        True,
    ),
    "a payload of the last write has the form of a block": (
        lambda folder: append(segments(folder)[-1], b"GMLB" + bytes(90) + block_of(2**60)),
        range(0),
        True,
    ),
    "an old segment is cut": (lambda folder: cut(segments(folder)[1], 1), range(23, 24), True),
    "a changed header": (lambda folder: flip(segments(folder)[0], 10), FIRST, True),
    "a missing segment in the middle": (lambda folder: segments(folder)[1].unlink(), SECOND, True),
    "the first segment is missing": (lambda folder: segments(folder)[0].unlink(), FIRST, True),
    "the newest segment is missing": (lambda folder: segments(folder)[-1].unlink(), NEWEST, True),
    "all segments are missing": (lambda folder: remove(segments(folder)), range(RECORDS), True),
    "log.json is missing": (lambda folder: (folder / "log.json").unlink(), range(0), False),
    "log.json is damaged": (lambda folder: cut(folder / "log.json", 5), range(0), False),
    "log.json is missing, and the end": (
        without_identity,
        LAST,
        False,
    ),
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


async def read_on(log: AppendingLog, log_id: str, offset: int) -> list[int]:
    """What a reader gets that has read the log with this id up to an offset."""
    shared_end = log.lineage.shared_end(log_id)
    assert shared_end is not None
    return numbers(await read_all(log, max(min(offset, shared_end), log.first_offset)))


async def check_readers(log: AppendingLog, log_id: str, expected: list[int], gone: Iterable[int]) -> None:
    """Readers that were anywhere in the log get once what it has; what is gone is told to those who did not read it."""
    offsets = [record.offset for record in await read_all(log)]
    assert offsets == sorted(set(offsets))
    assert numbers(await read_all(log)) == expected
    for offset in range(RECORDS + 1):
        wanted = [number for number in expected if number >= offset]
        assert await read_on(log, log_id, offset) == wanted, f"a reader at offset {offset}"
    told = {offset for first, end in log.gaps for offset in range(first, end)}
    shared_end = log.lineage.shared_end(log_id)
    assert shared_end is not None
    assert all(offset in told or offset < log.first_offset or offset >= shared_end for offset in gone)


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
    await check_readers(log, log_id, expected, gone)
    for number in (100, 101, 102):
        log.append(b"t", b"%04d" % number * 1250)
        await log.flush()
    await check_readers(log, log_id, [*expected, 100, 101, 102], gone)
    second = log.log_id
    await log.stop()
    log = await make_log(dir=str(folder), segment_bytes=SEGMENT_BYTES)
    assert log.log_id == second, "nothing more was lost"
    await check_readers(log, log_id, [*expected, 100, 101, 102], gone)


LAST_BLOCKS = 5000 + 200  # some bytes more than one block has


@pytest.mark.parametrize("size", [1, 8, 40, 5000, LAST_BLOCKS, 2 * LAST_BLOCKS, 3 * LAST_BLOCKS, 10**6])
@pytest.mark.parametrize(
    ("sync", "is_marked"), [("commit", True), ("commit", False), ("interval", True), ("none", False)]
)
async def test_a_tail_that_is_cut(make_log: MakeLog, tmp_path: Path, size: int, sync: str, is_marked: bool) -> None:
    log = await filled(make_log, sync)
    folder = crashed(tmp_path / "log")
    path = segments(folder)[-1]
    os.truncate(path, max(0, path.stat().st_size - size))
    if not is_marked:
        (folder / "synced").unlink(missing_ok=True)
    log_id = log.log_id
    log = await make_log(dir=str(folder), segment_bytes=SEGMENT_BYTES, sync=sync)
    left = numbers(await read_all(log))
    assert left == list(range(len(left)))
    assert len(left) < RECORDS
    assert (log.log_id == log_id) is is_marked
    log.append(b"t", b"0100" * 1250)
    await log.flush()
    await check_readers(log, log_id, [*left, 100], range(len(left), RECORDS))


@pytest.mark.parametrize("sync", ["commit", "none"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 16_000)), min_size=1, max_size=5), st.integers(0, 30))
async def test_readers_go_on_over_any_number_of_crashes(
    make_log: MakeLog, tmp_path: Path, sync: str, crashes: list[tuple[int, int]], offset: int
) -> None:
    """Each time some records come, the end is cut, and half of the times the mark is lost too. One reader reads all in
    between, one has read up to an offset and comes back at the end."""
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    number = 0
    log = await make_log(dir=str(folder / "0"), segment_bytes=SEGMENT_BYTES, sync=sync)
    place = log.log_id, 0  # of the reader
    known: list[int] = []
    there: list[int] = []
    early: tuple[str, int, list[int]] | None = None
    for turn, (count, size) in enumerate([*crashes, (1, 0)]):
        for _ in range(count):
            log.append(b"t", b"%04d" % number * 1250)
            number += 1
        await log.flush()
        there = numbers(await read_all(log))
        known += await read_on(log, *place)
        place = log.log_id, log.next_offset
        if early is None and log.next_offset >= offset:
            early = (
                log.log_id,
                offset,
                [int(record.payload[:4]) for record in await read_all(log) if record.offset < offset],
            )
        shutil.copytree(folder / str(turn), folder / str(turn + 1))
        await log.stop()
        path = segments(folder / str(turn + 1))[-1]
        os.truncate(path, max(0, path.stat().st_size - size))
        if size % 2:
            (folder / str(turn + 1) / "synced").unlink(missing_ok=True)
        log = await make_log(dir=str(folder / str(turn + 1)), segment_bytes=SEGMENT_BYTES, sync=sync)
    assert known == list(range(number)), "each once, in order"
    there = numbers(await read_all(log))
    if early is not None:
        log_id, at, before = early
        after = await read_on(log, log_id, at)
        assert len(set(after)) == len(after)
        assert not set(after) & set(before)
        assert set(there) <= set(before) | set(after)
    await log.stop()


@pytest.mark.parametrize("clean", [True, False])
async def test_a_folder_of_the_version_before_goes_on(make_log: MakeLog, tmp_path: Path, clean: bool) -> None:
    """Its log.json names a gap that its readers were told of, and no former ids."""
    log = await filled(make_log, "commit")
    folder = crashed(tmp_path / "log")
    segments(folder)[1].unlink()
    content = json.loads((folder / "log.json").read_text())
    del content["parents"]
    former = {**content, "version": 1, "gaps": [[12, 24]], "clean": clean, "next_offset": RECORDS if clean else 0}
    (folder / "log.json").write_text(json.dumps(former))
    again = await make_log(dir=str(folder), segment_bytes=SEGMENT_BYTES)
    assert again.log_id == log.log_id
    await check_readers(again, log.log_id, [*FIRST, *range(24, RECORDS)], SECOND)


async def test_damage_that_a_read_finds(make_log: MakeLog, tmp_path: Path) -> None:
    """The index file says that the segment is sound; its bytes are read for the first time."""
    log = await filled(make_log, "commit")
    await log.hold("g", "q", log.log_id, 5)
    log_id = log.log_id
    flip(segments(tmp_path / "log")[1], 30_000)
    expected = [*FIRST, *range(24, 40)]
    await check_readers(log, log_id, expected, SECOND)
    assert log.log_id == log_id
    (damaged,) = log.damaged
    assert (damaged.file, damaged.first_offset) == (f"damaged/{segment_name(12)}", 12)
    assert "the block of offset 17 does" in damaged.fault
    assert (tmp_path / "log" / damaged.file).exists()
    assert log.gaps == [(12, 24)]
    assert [hold.offset for hold in log.holds.all()] == [5]
    await log.stop()
    log = await make_log(segment_bytes=SEGMENT_BYTES)
    assert (log.log_id, log.gaps) == (log_id, [(12, 24)])
    await check_readers(log, log_id, expected, SECOND)


async def test_a_search_by_time_finds_damage(make_log: MakeLog, tmp_path: Path) -> None:
    log = await filled(make_log, "commit")
    flip(segments(tmp_path / "log")[0], 200)
    assert await log.readers.find(log.log_id, 1) == 12
    assert (log.first_offset, log.damaged[0].first_offset) == (12, 0)


async def test_several_readers_find_the_same_damage(make_log: MakeLog, tmp_path: Path) -> None:
    log = await filled(make_log, "commit")
    flip(segments(tmp_path / "log")[1], 30_000)
    found = await asyncio.gather(*(read_all(log) for _ in range(5)))
    assert [numbers(each) for each in found] == [[*FIRST, *range(24, 40)]] * 5
    assert len(log.damaged) == 1


async def test_a_file_that_was_removed_is_a_gap(make_log: MakeLog, tmp_path: Path) -> None:
    log = await filled(make_log, "commit")
    segments(tmp_path / "log")[1].unlink()
    await check_readers(log, log.log_id, [*FIRST, *range(24, 40)], SECOND)
    assert [(damaged.file, damaged.fault) for damaged in log.damaged] == [("", "its file is missing")]


async def test_damage_in_the_segment_that_is_written(make_log: MakeLog, tmp_path: Path) -> None:
    log = await make_log()
    for number in range(3):
        log.append(b"t", b"%04d" % number)
        await log.flush()
    flip(segments(tmp_path / "log")[0], 150)
    with pytest.raises(OutOfRange, match=r"offsets 0 to 3 .*, which has 3 to 3"):
        await read_all(log)
    log.append(b"t", b"0100")
    await log.flush()
    assert [(record.offset, record.payload) for record in await read_all(log)] == [(3, b"0100")]


async def test_what_is_behind_sound_records_is_kept_aside(make_log: MakeLog, tmp_path: Path) -> None:
    """It is told once."""
    log = await filled(make_log, "commit")
    folder = crashed(tmp_path / "log")
    for path in folder.glob("*.index"):
        path.unlink()
    places = [(segments(folder)[1], 30_000, 17), (segments(folder)[-1], 12_000, 38)]
    for path, at, _ in places:
        flip(path, at)
    contents = [path.read_bytes() for path, *_ in places]
    log_id = log.log_id
    log = await make_log(dir=str(folder), segment_bytes=SEGMENT_BYTES)
    assert len(log.damaged) == len(places)
    for told, content, (path, _, first_offset) in zip(log.damaged, contents, places, strict=True):
        aside = folder / told.file
        assert told.first_offset == first_offset
        assert path.read_bytes() + aside.read_bytes() == content
        assert aside.stat().st_mode & 0o777 == 0o600
    await log.stop()
    log = await make_log(dir=str(folder), segment_bytes=SEGMENT_BYTES)
    assert (log.damaged, log.gaps, log.log_id) == ([], [(17, 24), (38, 40)], log_id)


async def test_the_end_of_a_segment_is_not_written_yet_when_the_next_one_begins(
    make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With sync none the machine ends before the system has written it."""
    log = await filled(make_log, "none")
    folder = crashed(tmp_path / "log")
    cut(segments(folder)[-2], 3 * LAST_BLOCKS)
    monkeypatch.setattr(recovery, "boot_id", lambda: "another boot")
    log_id = log.log_id
    log = await make_log(dir=str(folder), segment_bytes=SEGMENT_BYTES, sync="none")
    assert log.gaps == [(32, 36)]
    await check_readers(log, log_id, [*range(32), *NEWEST], range(32, 36))


@pytest.mark.parametrize(
    ("sync", "is_torn", "restarted", "keeps_id"),
    [
        ("commit", False, True, True),
        ("commit", True, True, False),
        ("interval", False, False, True),
        ("interval", False, True, True),
        ("interval", True, True, False),
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
    await check_readers(log, log_id, list(range(RECORDS - is_torn)), LAST if is_torn else ())


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


async def test_holds_stay_and_tell_what_was_read(make_log: MakeLog, tmp_path: Path) -> None:
    """Without a mark: a reader has named the end, which is gone."""
    log = await filled(make_log, "commit")
    await log.hold("g", "end", log.log_id, RECORDS)
    await log.hold("g", "begin", log.log_id, 3)
    folder = crashed(tmp_path / "log")
    cut(segments(folder)[-1], 1)
    (folder / "synced").unlink()
    again = await make_log(dir=str(folder), segment_bytes=SEGMENT_BYTES)
    assert [parent[:2] for parent in again.lineage.parents] == [(log.log_id, RECORDS)]
    assert [hold.offset for hold in again.holds.all()] == [3, RECORDS]
    assert again.next_offset == RECORDS


async def test_holds_behind_the_first_record_that_may_differ_go_back(make_log: MakeLog, tmp_path: Path) -> None:
    """A clean stop is followed by a start on which the machine ends, with sync none."""
    log = await filled(make_log, "none")
    await log.hold("g", "q", log.log_id, 38)
    folder = crashed(tmp_path / "log")
    holds = json.loads((folder / "holds.json").read_text())
    holds["holds"][0]["offset"] = 36
    (folder / "holds.json").write_text(json.dumps(holds))
    cut(segments(folder)[-1], 3 * LAST_BLOCKS)
    again = await make_log(dir=str(folder), segment_bytes=SEGMENT_BYTES, sync="none")
    assert [parent[:2] for parent in again.lineage.parents] == [(log.log_id, 36)]
    assert [hold.offset for hold in again.holds.all()] == [36]
    await again.hold("g", "q", log.log_id, 36)


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
