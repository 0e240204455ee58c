"""Short runs of scripts/chaos: processes are killed, a node is away, a clock steps back; nothing is lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos_run import ChaosRun
from clock_node import ClockNode
from other_schedules import clock_steps_back, node_away
from schedule import Plan, Victim

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
KILLED = (Victim.NODE, Victim.SINK_NODE, Victim.WORKER, Victim.ARCHIVE_DRIVER, Victim.SINK_DRIVER)


async def test_nothing_is_lost_or_doubled_when_each_process_is_killed(tmp_path: Path) -> None:
    plan = Plan(1, len(KILLED), 10_000, 500.0, nodes=2, waits=False, kill_wait_max=2.0, victims=KILLED)
    run = ChaosRun(tmp_path, plan, print)
    async with run.running():
        await run.kill()
    report = run.report
    assert report.is_clean, report.lines()
    assert {victim for victim, _ in report.killed} == set(KILLED)
    assert report.judgement.archive_rows >= report.published >= plan.messages
    assert report.judgement.sink_rows == report.judgement.source_rows


async def test_nothing_is_lost_when_a_node_is_away_and_its_clock_steps_back(tmp_path: Path) -> None:
    plan = Plan(seed=2, kills=0, messages=5_000, rate=500.0, nodes=2, has_sink=False)
    run = ChaosRun(tmp_path, plan, print, ClockNode)
    async with run.running():
        await node_away(run, 3.0)
        await clock_steps_back(run)
    assert run.report.is_clean, run.report.lines()
    assert run.report.judgement.archive_rows >= plan.messages
