"""Short runs of scripts/chaos jobs: the driver is killed while it writes Delta tables; DuckDB finds each message once. And
what a run takes for a fault."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pyspark.errors import StreamingQueryException

from event_log_node import event_log_nodes
from job_messages import JobMessage
from job_run import JobRun, compare, has_content
from spark_limits import ENDS_MAX, SPARKS_LIMIT, run_again

MESSAGES = 6_000
KILLS = 3


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("job", ["archive", "decode"])
async def test_each_message_has_one_row_when_the_driver_is_killed(tmp_path: Path, job: str) -> None:
    report = await compare(job, tmp_path, 3, MESSAGES, KILLS, print)
    assert report.faults == []
    assert report.rows == MESSAGES
    assert report.kills
    assert len(report.ends) <= ENDS_MAX, report.line()


@pytest.mark.parametrize(("text", "ends"), [("out of memory", 0), (SPARKS_LIMIT[0], ENDS_MAX + 1)])
async def test_a_driver_that_fails_is_a_fault(tmp_path: Path, text: str, ends: int) -> None:
    with event_log_nodes("n1") as nodes:
        job = JobRun("archive", tmp_path / "run", nodes)
        job.driver.command = ["sh", "-c", f"echo {text}; exit 1"]
        with pytest.raises(AssertionError, match=f"ended with 1.*{text if ends == 0 else f'{ends}th time'}"):
            await job.run(0, Random(1), print)
    assert job.ends == [1] * ends


@pytest.mark.parametrize(
    ("text", "fails", "runs"),
    [
        (SPARKS_LIMIT[0], ENDS_MAX, ENDS_MAX + 1),
        (SPARKS_LIMIT[0], ENDS_MAX + 1, ENDS_MAX + 1),
        ("out of memory", 1, 1),
    ],
)
def test_queries_run_again_for_the_limit_of_spark_alone(text: str, fails: int, runs: int) -> None:
    begun: list[int] = []

    def run() -> None:
        begun.append(len(begun))
        if len(begun) <= fails:
            raise StreamingQueryException(text)

    if fails < runs:
        run_again(run)
    else:
        with pytest.raises(StreamingQueryException, match=text):
            run_again(run)
    assert len(begun) == runs


def test_values_of_the_wrong_metric_are_seen() -> None:
    message = {("n", 3): JobMessage("spBv1.0/plant/NDATA/line1", b"", "line1", 0)}
    row = {"node": "n", "offset": 3, "topic": "spBv1.0/plant/NDATA/line1", "reason": None, "outcome": "decoded"}
    assert has_content({**row, "speed": 3.0, "count": None}, message)
    assert has_content({**row, "speed": 3.0, "count": 3.5}, message)
    for speed, count in ((None, None), (None, 3.0), (3.5, 3.0), (3.0, 4.5)):
        assert not has_content({**row, "speed": speed, "count": count}, message)
