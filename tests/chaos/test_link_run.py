"""A short run of `scripts/chaos links`, and the rules for the status of a link."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from failover_run import PAUSES, run_failovers
from link_run import LinkRun
from link_schedule import Incident, Trouble
from link_status_watch import Absence, Sample, untrue


@pytest.mark.slow
async def test_nothing_is_lost_when_the_upstream_and_the_node_of_a_link_are_killed(tmp_path: Path) -> None:
    incidents = [Incident(Trouble.UPSTREAM_KILL, 1.0, 0.5), Incident(Trouble.NODE_STOP, 1.0, 0.0)]
    report = await LinkRun(tmp_path, print).run(incidents)
    assert report.is_clean, report.lines()
    assert report.sent > 0
    assert report.samples > 0


@pytest.mark.slow
@pytest.mark.parametrize("pause", PAUSES)
async def test_a_link_fails_over_again_soon_after_a_second_kill(tmp_path: Path, pause: float) -> None:
    report = await run_failovers(tmp_path, 1, [pause], print)
    assert report.is_clean, report.lines()
    assert all(seconds > 0.0 for rounds in report.seconds.values() for seconds in rounds[0])


def row(
    status: str = "running", answered: float = 99.0, node: str = "a", epoch: int = 1, **more: Any
) -> dict[str, Any]:
    time = datetime.fromtimestamp(answered, UTC).isoformat()
    return {"id": "1", "status": status, "answered": time, "node": node, "epoch": str(epoch), **more}


def sample(*rows: dict[str, Any], at: float = 100.0) -> Sample:
    return Sample(at, at + 0.1, rows)


@pytest.mark.parametrize(
    ("samples", "absences", "fault"),
    [
        ([sample(row())], [Absence("", 99.5, 105.0), Absence("b", 90.0)], ""),
        ([sample(row())], [Absence("", 98.0, 105.0)], "an upstream that was away"),
        ([sample(row())], [Absence("", 98.0, 100.0)], ""),
        ([sample(row(answered=69.0))], [], "without an answer"),
        ([sample(row())], [Absence("a", 90.0)], "a node that was away"),
        ([sample(row("error", error="refused", deadline="later"))], [Absence("", 98.0)], ""),
        ([sample(row("error", error=""))], [], "do not say which"),
        ([sample(row(), row(node="b", epoch=2))], [], "on two nodes"),
        ([sample(row(epoch=2)), sample(row(epoch=1), at=101.0)], [], "a lower epoch"),
    ],
)
def test_rows_must_be_true(samples: list[Sample], absences: list[Absence], fault: str) -> None:
    faults = [str(found) for found in untrue(samples, absences)]
    assert [fault in text for text in faults] == ([True] if fault else [])
