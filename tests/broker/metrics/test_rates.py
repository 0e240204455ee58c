"""The figures of the last hour."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.metrics.rates import SAMPLES_MAX, Rates


def test_totals_become_rates_and_gauges_stay() -> None:
    rates = Rates(["sent"], ["clients"])
    assert (rates.newest, rates.series()) == (0.0, {"sent": [], "clients": []})
    for now, sent, clients in ((0.0, 100, 1), (10.0, 150, 2), (30.0, 150, 3), (40.0, 1150, 0)):
        rates.sample((sent, clients), now)
    assert rates.newest == 40.0
    assert rates.series() == {"sent": [5.0, 0.0, 100.0], "clients": [2, 3, 0]}


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 10**6), st.integers(0, 100)), max_size=SAMPLES_MAX + 40))
def test_the_sum_of_the_rates_is_what_was_counted(steps: list[tuple[int, int, int]]) -> None:
    rates = Rates(["sent"], ["clients"])
    now, total, kept = 0.0, 0, []
    for seconds, sent, clients in steps:
        now, total = now + seconds, total + sent
        rates.sample((total, clients), now)
        kept.append((seconds, sent, clients))
    newest = kept[1:][-(SAMPLES_MAX - 1) :]
    found = rates.series()
    assert found["clients"] == [clients for _, _, clients in newest]
    assert [round(rate * seconds) for rate, (seconds, _, _) in zip(found["sent"], newest, strict=True)] == [
        sent for _, sent, _ in newest
    ]
