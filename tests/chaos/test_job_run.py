"""What `scripts/chaos jobs` reads and compares; the runs themselves are not part of the tests."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from job_messages import BEGIN_NS, SECONDS, job_logs
from job_run import differences, episode_faults, exact


def test_the_logs_are_fixed_by_the_seed() -> None:
    assert job_logs(1, 300) == job_logs(1, 300)
    assert job_logs(1, 300) != job_logs(2, 300)


def test_a_device_is_at_one_node_and_times_never_step_back() -> None:
    first, second = job_logs(3, 3000)
    assert len(first) + len(second) == 3000
    assert not {message.client_id for message in first} & {message.client_id for message in second}
    for log in (first, second):
        times = [message.time_ns for message in log]
        assert times == sorted(times)


def test_the_second_node_falls_behind_for_a_while() -> None:
    """It has half of the middle third at the end of that, and jumps forward then."""
    log = job_logs(3, 3000)[1]
    gaps = [after.time_ns - before.time_ns for before, after in pairwise(log)]
    assert SECONDS / 7 < max(gaps) / 1e9 < SECONDS / 5
    assert log[-1].time_ns > BEGIN_NS + (SECONDS - 5) * 1e9


def test_some_payloads_are_no_json() -> None:
    broken = 0
    for message in job_logs(4, 2000)[0]:
        try:
            json.loads(message.payload)
        except ValueError:
            broken += 1
    assert 5 < broken < 60


def alert(state: str, episode: int, device: str = "d") -> dict[str, Any]:
    return {"device": device, "state": state, "episode": episode}


@pytest.mark.parametrize(
    ("alerts", "count"),
    [
        ([alert("began", 1), alert("began", 1, "e"), alert("ended", 1), alert("began", 2)], 0),
        ([alert("began", 1), alert("began", 1)], 1),
        ([alert("began", 1), alert("ended", 1), alert("ended", 1)], 1),
        ([alert("began", 1), alert("ended", 1), alert("began", 1)], 1),
        ([alert("ended", 1)], 1),
    ],
)
def test_an_episode_is_told_once_at_each_end(alerts: list[dict[str, Any]], count: int) -> None:
    assert len(episode_faults(alerts)) == count


def test_rows_that_differ_are_named() -> None:
    assert differences(Counter("ab"), Counter("ba")) == []
    assert differences(Counter("aab"), Counter("abb")) == [
        "1 rows missing, such as a",
        "1 rows more than in the undisturbed run, such as b",
    ]
    assert exact({"mean": 0.1 + 0.2, "n": 1}) == exact({"mean": 0.3, "n": 1})
