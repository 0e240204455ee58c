"""Files are replaced as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.durable import publish_file, replace_text


def test_a_text_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for text in ("first", "sécond"):
        replace_text(path, text)
        assert path.read_text("utf-8") == text
    assert list(tmp_path.iterdir()) == [path]


def test_the_old_file_stays_when_the_disk_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    replace_text(path, "old")

    def fail(_: int) -> None:
        raise OSError("no disk")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="no disk"):
        replace_text(path, "new")
    assert path.read_text() == "old"


def test_a_file_that_is_published_has_one_name(tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.write_text("rows")
    publish_file(part, tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
