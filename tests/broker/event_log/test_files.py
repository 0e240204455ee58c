"""The operations on files: whole or not at all, and bytes that arrive in parts."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from broker.event_log import files as files_module
from broker.event_log.files import Files


@pytest.fixture
def files() -> Files:
    return Files()


def test_a_file_is_replaced_as_a_whole(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.replace(path, b"old")
    files.replace(path, b"new content")
    assert path.read_bytes() == b"new content"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_leaves_the_old_one(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    files.replace(path, b"old")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        files.replace(path, b"new")
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("has_flag", [False, True])
def test_a_write_in_parts(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: bool, has_flag: bool
) -> None:
    """The system takes a few bytes of each call. Where it has no RWF_DSYNC, as under an emulator, a sync follows."""
    write = os.pwritev
    syncs: list[int] = []

    def short(descriptor: int, parts: list[bytes], position: int, flags: int) -> int:
        if flags and not has_flag:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return write(descriptor, [b"".join(parts)[:3]], position, flags)

    monkeypatch.setattr(os, "pwritev", short)
    monkeypatch.setattr(os, "fdatasync", syncs.append)
    descriptor = files.create(tmp_path / "file", b"head-")
    files.write(descriptor, [b"one", b"", b"two", b"three"], 5, synced)
    os.close(descriptor)
    assert (tmp_path / "file").read_bytes() == b"head-onetwothree"
    if synced and not has_flag:
        assert descriptor in syncs


def test_a_file_that_is_not_there_is_removed_too(files: Files, tmp_path: Path) -> None:
    files.remove(tmp_path / "missing")
    files.replace(tmp_path / "file", b"x")
    assert files.move(tmp_path / "file", tmp_path / "folder") == tmp_path / "folder" / "file"
    files.replace(tmp_path / "file", b"y")
    assert files.move(tmp_path / "file", tmp_path / "folder").name == "file.2", "nothing is overwritten"
    files.uncache(tmp_path / "folder" / "file")
    assert (tmp_path / "folder" / "file").read_bytes() == b"x"
    assert not (tmp_path / "file").exists()


def test_more_parts_than_the_system_takes_in_one_call(files: Files, tmp_path: Path) -> None:
    descriptor = files.create(tmp_path / "file", b"head-")
    parts = [b"%d," % number for number in range(files_module.PARTS_MAX + 1)]
    files.write(descriptor, parts, 5, True)
    assert (tmp_path / "file").read_bytes() == b"head-" + b"".join(parts)
    os.close(descriptor)
