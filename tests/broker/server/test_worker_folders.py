"""The number of workers, beside the cores of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker.server.cli import main


@pytest.mark.parametrize(("workers", "is_warned"), [("3", True), ("2", False), ("auto", False)])
def test_more_workers_than_cores_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: str, is_warned: bool
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    file = tmp_path / "node.yml"
    file.write_text(f"workers: {workers}\n")
    result = CliRunner().invoke(main, ["check", "-c", str(file)])
    assert result.exit_code == 0, result.output
    assert any("workers: 3" in line and "2 cores" in line for line in result.output.splitlines()) is is_warned
