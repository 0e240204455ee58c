"""A rate as a token bucket: `rate` tokens come in each second, and at most those of one second are kept."""

# compiled with mypyc
from __future__ import annotations


class TokenBucket:
    """Full at the start. `take` may overdraw it: who takes many tokens at once waits for as long as they take to come in, so
    that the average over a longer time is the rate."""

    __slots__ = ("_at", "_burst", "_tokens", "rate")

    def __init__(self, rate: int, now: float) -> None:
        """rate  tokens a second, above 0"""
        self.rate = rate
        self._burst = float(rate)
        self._tokens = self._burst
        self._at = now

    def take(self, count: int, now: float) -> None:
        """Take `count` tokens, whether they are there or not."""
        self._fill(now)
        self._tokens -= count

    def try_take(self, now: float) -> bool:
        """Take one token if it is there."""
        self._fill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def in_debt_until(self) -> float:
        """Return when the overdraft of the last `take` is over; an instant of the past without one."""
        return self._at - self._tokens / self.rate

    def _fill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self.rate)
        self._at = now
