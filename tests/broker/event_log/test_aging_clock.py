"""The clock by which records age."""

from __future__ import annotations

import pytest

from broker.event_log.aging_clock import UNSURE_SECONDS, AgingClock

DAY = 86_400.0
START = 1_700_000_000.0


@pytest.mark.parametrize(
    ("looks", "found"),
    [
        # (monotonic seconds since the start, seconds that the wall clock is ahead of that): seconds that records age by
        ([(0, 0), (10, 0), (20, 3)], [0, 10, 23]),
        ([(0, DAY), (10, DAY)], [DAY, DAY + 10]),
        ([(0, 365 * DAY), (10, 365 * DAY), (20, 0)], [0, 10, 20]),
        ([(0, 365 * DAY), (UNSURE_SECONDS - 1, 365 * DAY)], [0, UNSURE_SECONDS - 1]),
        ([(0, 365 * DAY), (UNSURE_SECONDS, 365 * DAY)], [0, 365 * DAY + UNSURE_SECONDS]),
        ([(0, 0), (5000, 0), (5010, 31 * DAY), (5020, 0)], [0, 5000, 5010, 5020]),
        ([(0, 31 * DAY), (10, 0), (20, 31 * DAY), (599, 31 * DAY)], [0, 10, 20, 599]),
        ([(0, 31 * DAY), (10, 0), (20, 31 * DAY), (620, 31 * DAY)], [0, 10, 20, 31 * DAY + 620]),
        ([(0, 0), (10, -5 * DAY), (20, -5 * DAY), (30, 0)], [0, 10 - 5 * DAY, 20 - 5 * DAY, 30 - 5 * DAY]),
        ([(0, 0), (9 * DAY, 0)], [0, 9 * DAY]),  # nobody looked meanwhile
    ],
)  # fmt: skip
def test_a_clock_that_jumps_ahead_is_believed_when_it_stays_there(
    looks: list[tuple[float, float]], found: list[float]
) -> None:
    clock = AgingClock(round(START * 1e9), 100.0)
    times = [clock.look(round((START + at + ahead) * 1e9), 100.0 + at) / 1e9 - START for at, ahead in looks]
    assert times == pytest.approx(found, abs=1e-3)
