"""`gmqttd store recover`, on files that are damaged in different ways."""

from __future__ import annotations

import os
import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from broker.broker import Broker
from broker.config.settings import Settings
from broker.config.settings_mqtt import MqttSettings
from broker.server.cli import main
from broker.server.private_file import sync_folder
from broker.store import recovery
from broker.store.identity import StoreIdentity
from broker.store.kinds import KEEPERS, OUTGOING, RETAINED, SESSION, STORE
from broker.store.restoring import Restoring
from broker.store.sqlite_store import FILE_NAME, SqliteStore
from broker.store.store import StoreFault, pack_record, unpack_record

PAGE_BYTES = 4096
CLIENTS = 300
FORMER = "0f" * 16


def session(client_id: str) -> tuple[object, ...]:
    return SESSION, client_id, "", None, 5, 60, "127.0.0.1:1", "127.0.0.1:2", 0.0, 0.0, 3600, 0.0, None, 0.0


def contents(clients: int) -> dict[int, tuple[Any, ...]]:
    """Sessions with five messages each, retained messages, and what belongs to copies."""
    found: dict[int, tuple[Any, ...]] = {1: (STORE, FORMER, 7), 2: (KEEPERS, 1, ("n2",))}
    number = 10
    for client in range(clients):
        found[number] = session(f"client {client}")
        for _ in range(5):
            found[number + 1] = 3, b"a/b", b"x" * 100, 1, False, b"", 0.0, "p"
            found[number + 2] = OUTGOING, number, number + 1, 1, False, (), 0.0, 0, 0
            number += 2
        found[number + 1] = RETAINED, b"r/%d" % client, b"y" * 50, 0, True, b"", 0.0, "p"
        number += 1_000_000 if client % 50 == 0 else 3
    owner = 0
    for at, record in found.items():  # each message belongs to the session before it
        if record[0] == SESSION:
            owner = at
        elif record[0] == OUTGOING:
            found[at] = (OUTGOING, owner, *record[2:])
    return found


class Folder:
    def __init__(self, path: Path, clients: int = CLIENTS) -> None:
        path.mkdir(exist_ok=True)
        self.data = path / "data"
        self.file = self.data / FILE_NAME
        self.config = path / "node.yml"
        self.config.write_text("data_dir: data\n")
        self.contents = contents(clients)
        store = SqliteStore(self.data)
        store.open()
        store.commit([(number, pack_record(record)) for number, record in self.contents.items()])
        store.close()

    def call(self, command: str) -> Result:
        return CliRunner().invoke(main, ["store", command, "-c", str(self.config)])

    def records(self) -> dict[int, tuple[Any, ...]]:
        store = SqliteStore(self.data)
        store.open(create=False)
        try:
            return {number: unpack_record(number, packed) for number, packed in store.records()}
        finally:
            store.close()

    def damage(self, at: int, data: bytes) -> None:
        with self.file.open("r+b") as file:
            file.seek(at)
            file.write(data)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def check_start(records: dict[int, tuple[Any, ...]]) -> StoreIdentity:
    """A node starts with these records."""
    broker = Broker(MqttSettings(), random.Random(1), 0.0)
    restoring = Restoring(broker, 0.0, 0.0)
    for number, record in sorted(records.items()):
        restoring.add(number, record)
    restoring.end()
    return broker.identity


def check_recovered(folder: Folder) -> int:
    """Number of records that were kept: as they were, in a store of another id that others know as the former one."""
    found = folder.records()
    identity = check_start(found)
    assert identity.store_id != FORMER
    assert identity.starts >= 8
    kept = {number: record for number, record in found.items() if record[0] != STORE}
    assert all(folder.contents[number] == record for number, record in kept.items())
    assert not any(record[0] == KEEPERS for record in kept.values())
    return len(kept)


def test_a_whole_file_keeps_everything(folder: Folder) -> None:
    result = folder.call("recover")
    assert result.exit_code == 0, result.output
    assert check_recovered(folder) == len(folder.contents) - 2
    assert check_start(folder.records()).is_or_was(FORMER)
    assert (folder.data / f"{FILE_NAME}.damaged-1").exists()


@pytest.mark.parametrize("seed", range(12))
def test_damaged_pages_cost_their_records_and_those_that_refer_to_them(folder: Folder, seed: int) -> None:
    rng = random.Random(seed)
    pages = folder.file.stat().st_size // PAGE_BYTES
    for page in rng.sample(range(2, pages), 1 + seed % 3):
        folder.damage(page * PAGE_BYTES, rng.choice((b"\0" * PAGE_BYTES, rng.randbytes(PAGE_BYTES), rng.randbytes(8))))
    assert folder.call("check").exit_code != 0
    result = folder.call("recover")
    assert result.exit_code == 0, result.output
    kept = check_recovered(folder)
    assert kept > 0.8 * len(folder.contents)
    assert f"{kept} records kept" in result.output
    assert folder.call("check").exit_code == 0


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_file_whose_end_is_missing(folder: Folder, share: float) -> None:
    size = folder.file.stat().st_size
    with folder.file.open("r+b") as file:
        file.truncate(int(size * share) // PAGE_BYTES * PAGE_BYTES)
    assert folder.call("recover").exit_code == 0
    assert check_recovered(folder) > (share - 0.2) * len(folder.contents)


class Killed(BaseException):
    pass


class Killing:
    """Kills instead of the step behind `left` others."""

    def __init__(self, left: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = left
        monkeypatch.setattr(recovery, "sync_folder", self._step(sync_folder))
        monkeypatch.setattr(os, "link", self._step(os.link))
        for name in ("unlink", "replace"):
            monkeypatch.setattr(Path, name, self._step(getattr(Path, name)))

    def _step(self, call: Any) -> Any:
        def step(*arguments: Any, **named: Any) -> Any:
            if self.left == 0:
                raise Killed
            self.left -= 1
            return call(*arguments, **named)

        return step


@pytest.mark.parametrize("steps", range(9))
def test_a_kill_between_two_steps_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Some records are in the WAL alone, as after a kill of the node."""
    folder = Folder(tmp_path / "node", 5)
    store = SqliteStore(folder.data)
    store.open()
    for number in (10**9, 10**9 + 1):
        folder.contents[number] = session(f"late {number}")
        store.commit([(number, pack_record(folder.contents[number]))])
    shutil.copytree(folder.data, tmp_path / "left")
    store.close()
    shutil.rmtree(folder.data)
    (tmp_path / "left").rename(folder.data)
    with monkeypatch.context() as patch:
        Killing(steps, patch)
        with pytest.raises(Killed):
            recovery.recover(Settings(data_dir="data"), str(folder.config.parent))
    with suppress(StoreFault):
        folder.records()
        steps = 0  # as before, or recovered
    if steps:
        assert "store recover" in folder.call("check").output
        assert folder.call("recover").exit_code == 0
    found = folder.records()
    assert all(found[number] == record for number, record in folder.contents.items() if number > 2)


def test_one_flipped_bit_costs_one_record(folder: Folder) -> None:
    data = folder.file.read_bytes()
    at = data.index(b"x" * 100) + 50
    folder.damage(at, bytes([data[at] ^ 1]))
    result = folder.call("recover")
    assert "2 damaged" in result.output  # the message, and its place in a queue
    assert check_recovered(folder) == len(folder.contents) - 4


def test_a_store_in_use_and_none_at_all(folder: Folder, tmp_path: Path) -> None:
    store = SqliteStore(folder.data)
    store.open()
    before = folder.file.read_bytes()
    result = folder.call("recover")
    store.close()
    assert (result.exit_code != 0, "another process" in result.output) == (True, True)
    assert folder.file.read_bytes() == before
    folder.file.unlink()
    result = folder.call("recover")
    assert (result.exit_code != 0, "there is no store" in result.output) == (True, True)


def test_a_file_without_its_first_page_is_left_as_it_is(folder: Folder) -> None:
    folder.damage(0, b"\0" * PAGE_BYTES)
    before = folder.file.read_bytes()
    result = folder.call("recover")
    assert (result.exit_code != 0, "cannot be recovered" in result.output) == (True, True)
    assert folder.file.read_bytes() == before
    assert [path.name for path in folder.data.iterdir()] == [FILE_NAME]
    with pytest.raises(StoreFault):
        SqliteStore(folder.data).open(create=False)


def test_a_store_is_recovered_again(folder: Folder) -> None:
    folder.call("recover")
    first = check_start(folder.records()).store_id
    folder.call("recover")
    identity = check_start(folder.records())
    assert identity.is_or_was(first)
    assert identity.is_or_was(FORMER)
    assert (folder.data / f"{FILE_NAME}.damaged-2").exists()
