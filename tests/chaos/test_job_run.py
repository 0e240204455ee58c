"""Short runs of scripts/chaos jobs: the driver is killed while it writes Delta tables; DuckDB finds each message once."""

from __future__ import annotations

from pathlib import Path

import pytest

from job_run import compare

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
MESSAGES = 6_000
KILLS = 3


@pytest.mark.parametrize("job", ["archive", "decode"])
async def test_each_message_has_one_row_when_the_driver_is_killed(tmp_path: Path, job: str) -> None:
    report = await compare(job, tmp_path, 3, MESSAGES, KILLS, print)
    assert report.faults == []
    assert report.rows == MESSAGES
    assert report.kills
