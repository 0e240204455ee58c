"""A token bucket: never more than its rate and one burst, and an overdraft is waited for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.token_bucket import TokenBucket


def test_a_burst_of_one_second_then_the_rate() -> None:
    bucket = TokenBucket(10, 100.0)
    assert [bucket.try_take(100.0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert not bucket.try_take(100.09)
    assert bucket.try_take(100.11)
    assert [bucket.try_take(200.0) for _ in range(12)] == [True] * 10 + [False] * 2


def test_an_overdraft_ends_when_its_tokens_have_come_in() -> None:
    bucket = TokenBucket(10, 0.0)
    bucket.take(10, 0.0)
    assert bucket.in_debt_until() <= 0.0
    bucket.take(25, 0.0)
    assert bucket.in_debt_until() == 2.5
    bucket.take(5, 1.0)
    assert abs(bucket.in_debt_until() - 3.0) < 1e-9


@given(
    rate=st.integers(1, 1000),
    steps=st.lists(st.tuples(st.floats(0, 10), st.integers(0, 50)), max_size=30),
)
def test_never_more_than_rate_and_burst(rate: int, steps: list[tuple[float, int]]) -> None:
    """Whoever waits for the end of each overdraft takes at most the burst and what came in, and the last chunk."""
    bucket = TokenBucket(rate, 0.0)
    now = 0.0
    taken = 0
    for wait, count in steps:
        now = max(now + wait, bucket.in_debt_until())
        assert taken <= rate + now * rate + 1e-3
        bucket.take(count, now)
        taken += count
