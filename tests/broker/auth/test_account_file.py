"""The file of accounts on disk: whole before and after each change, and only for its owner."""

from __future__ import annotations

import fcntl
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.auth.accounts import Account
from broker.auth.files import AccountFile, Accounts
from broker.auth.password_hash import PLAIN
from broker.config.yaml_entries import EntriesFault
from broker.server import private_file


def add(name: str, accounts: Accounts) -> None:
    accounts[name] = Account(name, "p")


def test_a_new_file_is_for_its_owner_only(tmp_path: Path) -> None:
    file = AccountFile(str(tmp_path / "accounts.yml"), PLAIN)
    assert file.read() == {}
    assert list(file.change(lambda accounts: add("a", accounts))) == ["a"]
    assert stat.S_IMODE(os.stat(file.path).st_mode) == 0o600
    assert not file.is_readable_by_others()
    assert os.listdir(tmp_path) == ["accounts.yml"]


def test_a_change_makes_an_open_file_private(tmp_path: Path) -> None:
    path = tmp_path / "accounts.yml"
    path.write_text("- {username: a, password: p}\n")
    path.chmod(0o644)
    file = AccountFile(str(path), PLAIN)
    assert file.is_readable_by_others()
    file.change(lambda accounts: add("b", accounts))
    assert not file.is_readable_by_others()
    assert sorted(file.read()) == ["a", "b"]


@pytest.mark.parametrize("content", ["- {username: a", "not a list", "- {username: a, password: ''}"])
def test_a_damaged_file_stays_untouched(tmp_path: Path, content: str) -> None:
    path = tmp_path / "accounts.yml"
    path.write_text(content)
    with pytest.raises(EntriesFault):
        AccountFile(str(path), PLAIN).change(lambda accounts: add("b", accounts))
    assert path.read_text() == content
    assert os.listdir(tmp_path) == ["accounts.yml"]


def test_a_change_that_fails_leaves_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "accounts.yml"
    file = AccountFile(str(path), PLAIN)
    file.change(lambda accounts: add("a", accounts))
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        file.change(lambda accounts: add("b", accounts))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["accounts.yml"]


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    file = AccountFile(str(tmp_path / "accounts.yml"), PLAIN)
    names = [f"user{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: file.change(lambda accounts: add(name, accounts)), names))
    assert sorted(file.read()) == sorted(names)


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    folder = tmp_path / "real"
    folder.mkdir()
    link = tmp_path / "accounts.yml"
    link.symlink_to(folder / "accounts.yml")
    AccountFile(str(link), PLAIN).change(lambda accounts: add("a", accounts))
    assert link.is_symlink()
    assert os.listdir(folder) == ["accounts.yml"]


def test_a_lock_that_another_process_keeps_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_file, "LOCK_SECONDS_MAX", 0.05)
    file = AccountFile(str(tmp_path / "accounts.yml"), "plain")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(TimeoutError, match=str(tmp_path)):
        file.change(lambda accounts: accounts.clear())
    os.close(descriptor)
    file.change(lambda accounts: accounts.clear())
    assert file.read(may_be_missing=False) == {}
