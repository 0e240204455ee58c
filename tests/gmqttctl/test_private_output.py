"""Files that a command makes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gmqttctl.errors import CommandError
from gmqttctl.private_output import private_output


@pytest.mark.parametrize("mode", [None, 0o644, 0o400])
def test_the_file_is_its_owner_s_whatever_was_there(tmp_path: Path, mode: int | None) -> None:
    file = tmp_path / "report"
    if mode is not None:
        file.write_text("former")
        file.chmod(mode)
    with private_output(file) as opened:
        opened.write(b"new")
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"new", 0o600)
    assert list(tmp_path.iterdir()) == [file]


def test_the_name_is_on_disk_when_the_command_tells_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, list[str]]] = []
    monkeypatch.setattr(
        "os.fsync", lambda descriptor: synced.append((os.fstat(descriptor).st_ino, os.listdir(tmp_path)))
    )
    with private_output(tmp_path / "report") as opened:
        opened.write(b"new")
    assert synced[-1] == (tmp_path.stat().st_ino, ["report"])


def test_a_fault_leaves_the_former_file(tmp_path: Path) -> None:
    file = tmp_path / "report"
    file.write_text("former")
    output = private_output(file)
    output.__enter__().write(b"new")
    fault = ZeroDivisionError()
    assert not output.__exit__(ZeroDivisionError, fault, None)
    assert file.read_text() == "former"
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="absent/report"), private_output(tmp_path / "absent" / "report"):
        pass
