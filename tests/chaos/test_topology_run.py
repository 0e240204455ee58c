"""A short run of `scripts/chaos topologies`."""

from __future__ import annotations

from pathlib import Path

import pytest

from topology_run import run_topologies


@pytest.mark.slow
async def test_the_pair_has_each_message_at_both_readers(tmp_path: Path) -> None:
    said: list[str] = []
    report = await run_topologies(tmp_path, ["pair"], 150, said.append)
    assert (report.is_clean, report.published, report.copies) == (True, 300, 600)
