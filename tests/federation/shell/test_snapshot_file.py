"""The file of the snapshot on a real disk."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from broker.server.logging import get_logger
from broker.server.start_error import StartError
from federation.serf.config import SerfConfig
from federation.serf.serf import Serf
from federation.serf.snapshot import read_snapshot
from federation.shell.snapshot_file import SnapshotFile, SnapshotWriter, check_snapshot
from gossip_node import introduce
from waiting import eventually


def new_serf(name: str = "own", host: int = 1) -> Serf:
    return Serf(SerfConfig(name, f"10.0.0.{host}", 8902), random.Random(host), 0.0)


def test_a_torn_last_line_is_cut_off_before_the_next_is_written(tmp_path: Path) -> None:
    path = tmp_path / "serf.snapshot"
    path.write_bytes(b"alive: a 10.0.0.1:1\nclock: 3\nalive: b 10.")
    file = SnapshotFile(path, False, "snapshot_path")
    assert list(file.contents.members) == ["a"]
    file.append(b"clock: 4\n")
    file.close()
    assert path.read_bytes() == b"alive: a 10.0.0.1:1\nclock: 3\nclock: 4\n"


def test_a_file_that_is_written_anew_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "serf.snapshot"
    file = SnapshotFile(path, False, "snapshot_path")
    file.append(b"clock: 1\n")
    file.replace(b"clock: 2\n")
    file.append(b"clock: 3\n")
    file.close()
    assert path.read_bytes() == b"clock: 2\nclock: 3\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["serf.snapshot"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_folder_of_a_file_that_took_its_name_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rename is lost with the power otherwise, and the old file comes back."""
    synced: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    file = SnapshotFile(tmp_path / "serf.snapshot", False, "snapshot_path")
    monkeypatch.setattr(os, "fsync", note)
    file.replace(b"clock: 2\n")
    file.close()
    assert synced == [str(tmp_path / "serf.snapshot.compact"), str(tmp_path)]


@pytest.mark.parametrize("content", [None, b"mqtt: {}\n"])
def test_a_file_that_cannot_be_used_ends_the_start(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "other" / "file"
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    with pytest.raises(StartError, match=r"the\.key: .*other/file"):
        SnapshotFile(path, False, "the.key")
    with pytest.raises(StartError, match=r"the\.key: .*other/file"):
        check_snapshot(path, "the.key")
    if content is not None:
        assert path.read_bytes() == content


@pytest.mark.parametrize("content", [None, b"", b"alive: a 10.0.0.1:1\nleave\nalive: b 10."])
def test_a_check_leaves_the_file_as_it_is(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "serf.snapshot"
    if content is not None:
        path.write_bytes(content)
    check_snapshot(path, "the.key")
    assert (path.read_bytes() if path.exists() else None) == content


async def test_what_serf_says_is_in_the_file_at_the_stop(tmp_path: Path) -> None:
    path = tmp_path / "serf.snapshot"
    serf = new_serf()
    writer = SnapshotWriter(SnapshotFile(path, False, "snapshot_path"), serf, get_logger("federation"))
    introduce(serf, new_serf("n2", 2))
    serf.user_event("deploy", b"")
    writer.note_events(serf.take_events())
    await writer.stop()
    found = read_snapshot(path.read_bytes(), False)
    assert found.members == {"n2": ("10.0.0.2", 8902)}
    assert found.clocks == [0, 1, 0]


async def test_a_leave_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "serf.snapshot"
    serf = new_serf()
    writer = SnapshotWriter(SnapshotFile(path, False, "snapshot_path"), serf, get_logger("federation"))
    introduce(serf, new_serf("n2", 2))
    writer.note_events(serf.take_events())
    await eventually(lambda: b"alive: n2" in path.read_bytes(), "the member is written")
    serf.leave(1.0)
    await writer.stop()
    assert read_snapshot(path.read_bytes(), False).members == {}
    assert read_snapshot(path.read_bytes(), True).members == {"n2": ("10.0.0.2", 8902)}


class FullOnce(SnapshotFile):
    """The disk is full for the first write, of which a part gets through."""

    writes = 0

    def append(self, data: bytes) -> None:
        self.writes += 1
        if self.writes == 1:
            super().append(data[:7])
            raise OSError(28, "No space left on device")
        super().append(data)


async def test_a_write_that_failed_is_made_good_by_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "serf.snapshot"
    serf = new_serf()
    file = FullOnce(path, False, "snapshot_path")
    writer = SnapshotWriter(file, serf, get_logger("federation"))
    introduce(serf, new_serf("n2", 2))
    writer.note_events(serf.take_events())
    await eventually(lambda: file.writes > 0, "the first write")
    await writer.stop()
    assert read_snapshot(path.read_bytes(), False).members == {"n2": ("10.0.0.2", 8902)}
    assert b"alive: alive" not in path.read_bytes()


async def test_a_stop_waits_for_a_write_under_way(tmp_path: Path) -> None:
    path = tmp_path / "serf.snapshot"
    serf = new_serf()
    writer = SnapshotWriter(SnapshotFile(path, False, "snapshot_path"), serf, get_logger("federation"))
    introduce(serf, new_serf("n2", 2))
    writer.note_events(serf.take_events())
    first = asyncio.ensure_future(writer._write())
    await asyncio.sleep(0)
    introduce(serf, new_serf("n3", 3))
    writer.note_events(serf.take_events())
    await writer.stop()
    await first
    assert list(read_snapshot(path.read_bytes(), False).members) == ["n2", "n3"]
