"""What a node finds in its folder when it opens its store."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.config.settings import Settings
from broker.server.host import Host
from broker.server.named_files import make_folder
from broker.server.start_error import StartError
from broker.store.durability import COPY_PREFIX, RECOVERING, Durability
from broker.store.sqlite_store import FILE_NAME, SqliteStore


@pytest.mark.parametrize(
    "make", [lambda folder: SqliteStore(folder).open(), lambda folder: make_folder("data_dir", folder)]
)
def test_a_folder_that_is_made_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    """What is in it would go with its name."""
    synced: list[tuple[int, list[str]]] = []
    monkeypatch.setattr(
        "os.fsync", lambda descriptor: synced.append((os.fstat(descriptor).st_ino, os.listdir(tmp_path)))
    )
    make(tmp_path / "data")
    assert (tmp_path.stat().st_ino, ["data"]) in synced


async def test_copies_that_a_kill_has_left_are_removed_by_the_one_that_has_the_store(tmp_path: Path) -> None:
    kept = tmp_path / "backup-20261127"
    left = [tmp_path / f"{COPY_PREFIX}ab12_x9z", tmp_path / RECOVERING]
    for folder in (kept, *left):
        folder.mkdir()
        (folder / FILE_NAME).write_bytes(b"messages")
    other = SqliteStore(tmp_path)
    other.open()
    host = Host(Settings(data_dir=str(tmp_path)))
    with pytest.raises(StartError, match="another process"):
        await Durability(host).open()
    assert all(folder.exists() for folder in left), "one of them may be that of a backup that runs"
    other.close()
    durability = Durability(host)
    await durability.open()
    assert [folder.exists() for folder in (kept, *left)] == [True, False, False]
    await durability.close()
    host.turns.stop()
