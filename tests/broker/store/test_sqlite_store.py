"""The SQLite file: who may read it, which files are refused, and how an older one is migrated."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import stat
from collections import deque
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.store import sqlite_store
from broker.store.sqlite_store import FILE_NAME, SqliteStore
from broker.store.store import VERSION, StoreFault, pack_record, unpack_record

OLD = VERSION  # a version, and the next one
NEW = VERSION + 1


def written(folder: Path, count: int = 3, version: int = OLD) -> Path:
    """A store with some records, closed."""
    store = SqliteStore(folder, version)
    store.open()
    store.commit([(number, b"%d" % number) for number in range(1, count + 1)])
    store.close()
    return folder / FILE_NAME


def records(folder: Path, version: int = OLD) -> list[tuple[int, bytes]]:
    store = SqliteStore(folder, version)
    try:
        store.open()
        return list(store.records())
    finally:
        store.close()


def test_the_files_are_for_their_owner(tmp_path: Path) -> None:
    old_mask = os.umask(0)
    try:
        store = SqliteStore(tmp_path / "data")
        store.open()
        store.commit([(1, b"a")])
    finally:
        os.umask(old_mask)
    files = list((tmp_path / "data").iterdir())
    assert {path.name for path in files} >= {FILE_NAME, f"{FILE_NAME}-wal"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    store.close()


@pytest.mark.interpreted
@given(st.lists(st.dictionaries(st.integers(1, 40), st.none() | st.binary(max_size=9000)), min_size=1, max_size=30))
@settings(max_examples=30, deadline=None)
def test_a_copy_has_what_is_committed_meanwhile(batches: list[dict[int, bytes | None]]) -> None:
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_store, "COPY_PAGES", 1)
        folder, copy = Path(name, "store"), Path(name, "copy")
        copy.mkdir()
        store = SqliteStore(folder)
        store.open()
        store.commit([(number, bytes(3000)) for number in range(1, 20)])
        waiting = list(batches)

        def pause() -> bool:
            if waiting:
                store.commit(list(waiting.pop(0).items()))
            return True

        store.copy_to(str(copy), pause)
        expected = list(store.records())
        store.commit([(1, b"later")])
        store.close()
        assert len(waiting) < len(batches), "the copy had no pause"
        assert records(copy) == expected


@pytest.mark.interpreted
@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.integers(1, 30))
@settings(max_examples=30, deadline=None)
def test_a_copy_that_waits_for_its_moment_goes_on(grown: list[int], first: int) -> None:
    """No more than a step is left at the moment, whatever was committed while others were waited for."""
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_store, "COPY_PAGES", 2)
        folder, copy = Path(name, "store"), Path(name, "copy")
        copy.mkdir()
        store = SqliteStore(folder)
        store.open()
        numbers = iter(range(1, 1000))
        store.commit([(next(numbers), bytes(3000)) for _ in range(first)])
        waiting = list(grown)
        pauses = 0

        def page_count() -> int:
            assert store._database is not None
            return int(store._database.execute("PRAGMA page_count").fetchone()[0])

        def pause() -> bool:
            nonlocal pauses
            pauses += 1
            if waiting:
                store.commit([(next(numbers), bytes(3000)) for _ in range(waiting.pop(0))])
            return True

        def is_moment() -> bool:
            # A step copies two pages, and a pause follows it.
            assert page_count() <= 2 * (pauses + 1)
            return not waiting

        store.copy_to(str(copy), pause, is_moment)
        expected = list(store.records())
        store.close()
        assert records(copy) == expected


def test_a_copy_that_is_ended_is_a_fault(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store")
    store.open()
    store.commit([(number, bytes(100_000)) for number in range(1, 50)])
    (tmp_path / "copy").mkdir()
    with pytest.raises(StoreFault, match="stops"):
        store.copy_to(str(tmp_path / "copy"), lambda: False)
    store.commit([(1, b"a")])  # the store goes on
    assert next(store.records()) == (1, b"a")
    store.close()


def test_the_mode_of_a_file_is_put_right(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.chmod(0o644)
    assert records(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda data: b"#!/bin/sh\n" + data, "not a SQLite file"),
        (lambda data: data[:50], "not a SQLite file"),
        (lambda data: data[: len(data) // 2], "damaged"),
        (lambda data: data[:68] + b"\0\0\0\0" + data[72:], "another program"),
        (lambda data: data[:60] + b"\0\0\0\7" + data[64:], "version 7"),
        (lambda data: data[:4200] + os.urandom(4000) + data[8200:], "damaged"),
        (lambda data: data[:100] + bytes(4000) + data[4100:], "damaged"),
    ],
    ids=["other file", "header cut", "cut", "other program", "newer", "overwritten", "first page"],
)
def test_a_file_that_cannot_be_used_is_refused_and_left_as_it_is(
    tmp_path: Path, damage: Callable[[bytes], bytes], expected: str
) -> None:
    path = written(tmp_path, 5000)
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    with pytest.raises(StoreFault, match=expected) as caught:
        records(tmp_path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == damaged


@pytest.mark.parametrize("with_wal", [False, True])
def test_a_file_that_is_cut_anywhere_is_refused(tmp_path: Path, with_wal: bool) -> None:
    """Also one with a WAL, which may be shorter than its header says."""
    store = SqliteStore(tmp_path / "whole")
    store.open()
    store.commit([(number, pack_record((1, number))) for number in range(1, 3001)])
    store.close()
    whole = store.path.read_bytes()
    for size in (*range(100, len(whole), 4999), 4096, 4097, 5000, len(whole) - 1):
        folder = tmp_path / f"cut at {size}"
        folder.mkdir()
        (folder / FILE_NAME).write_bytes(whole[:size])
        if with_wal:
            (folder / f"{FILE_NAME}-wal").write_bytes(b"nothing")
        with pytest.raises(StoreFault, match="is damaged"):
            deque(unpack_record(number, value) for number, value in records(folder))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(StoreFault, match="make the folder above it"):
        SqliteStore(tmp_path / "a" / "b").open()
    (tmp_path / "file").touch()
    with pytest.raises(StoreFault, match="file"):
        SqliteStore(tmp_path / "file").open()


def upper(database: sqlite3.Connection) -> None:
    database.execute("UPDATE record SET value = CAST('new ' || value AS BLOB)")


def test_an_older_store_is_migrated_once(tmp_path: Path) -> None:
    written(tmp_path)
    for _ in range(2):
        store = SqliteStore(tmp_path, NEW, {OLD: upper})
        store.open()
        assert list(store.records()) == [(1, b"new 1"), (2, b"new 2"), (3, b"new 3")]
        store.close()
    with pytest.raises(StoreFault, match=f"version {NEW}"):
        records(tmp_path, OLD)


@pytest.mark.parametrize("way", ["error", "kill"])
def test_a_migration_that_does_not_end_leaves_the_old_store(tmp_path: Path, way: str) -> None:
    def fail(database: sqlite3.Connection) -> None:
        upper(database)
        if way == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise sqlite3.OperationalError("no")

    written(tmp_path)
    child = os.fork()
    if child == 0:
        try:
            SqliteStore(tmp_path, NEW, {OLD: fail}).open()
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    assert records(tmp_path) == [(1, b"1"), (2, b"2"), (3, b"3")]


def test_a_disk_without_room_takes_nothing_of_a_batch(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands for the end of the space. The next batch is written when there is room again."""
    store = SqliteStore(tmp_path)
    store.open()
    store.commit([(1, b"a")])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        batches = [[(number, bytes(10_000)), (number + 1000, b"")] for number in range(2, 100)]
        with pytest.raises(StoreFault):
            deque(map(store.commit, batches))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    found = dict(store.records())
    assert {number + 1000 for number in found if 1 < number < 1000} == {number for number in found if number > 1000}
    store.commit([(1, None), (2000, b"z")])
    store.close()
    assert dict(records(tmp_path)) == {**{n: v for n, v in found.items() if n != 1}, 2000: b"z"}
