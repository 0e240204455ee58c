"""A short run of `scripts/chaos topologies`."""

from __future__ import annotations

from pathlib import Path

import pytest

from topology_run import TopologyReport, run_topologies


@pytest.mark.slow
async def test_the_pair_has_each_message_at_both_readers(tmp_path: Path) -> None:
    said: list[str] = []
    report = await run_topologies(tmp_path, ["pair"], 150, said.append)
    assert (report.is_clean, report.published, report.copies) == (True, 300, 600)
    assert said[0].startswith("pair: 2 domains, 2 nodes; 150 messages of each domain, 600 copies at 2 readers")
    assert report.claim.startswith("300 messages in 1 topology gave 600 copies")


def test_a_fault_is_told() -> None:
    report = TopologyReport(faults=["ring: the reader of a lacks 1"])
    assert not report.is_clean
    assert report.lines() == ["FAULT: ring: the reader of a lacks 1"]
