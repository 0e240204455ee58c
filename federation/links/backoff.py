"""How long a link waits before its next try: jittered, capped, and longer where somebody has to change something."""

from __future__ import annotations

import random
from typing import Final

from federation.links.client import End

DELAY_SECONDS_MAX: Final = 60.0  # unless reconnect-delay itself is longer
REFUSED_FACTOR: Final = 6.0  # a refused login or a fault of the protocol is the same a moment later
REFUSED_SECONDS_MAX: Final = 300.0
STABLE_SECONDS: Final = 10.0  # after a connection that ran for so long the delay begins at its base
DOUBLINGS_MAX: Final = 10


class Backoff:
    """`base` is reconnect-delay in seconds."""

    def __init__(self, base: float, rng: random.Random) -> None:
        self._base = base
        self._rng = rng
        self._tries = 0

    def delay(self, end: End, ran_for: float) -> float:
        """Seconds until the next try, after a connection that ran for `ran_for` seconds, 0.0 for one that never did."""
        if ran_for >= STABLE_SECONDS:
            self._tries = 0
        ceiling = min(max(DELAY_SECONDS_MAX, self._base), self._base * float(1 << min(self._tries, DOUBLINGS_MAX)))
        self._tries += 1
        if end in (End.REFUSED, End.VERSION, End.TAKEN, End.FAULT):
            ceiling = min(max(REFUSED_SECONDS_MAX, self._base), ceiling * REFUSED_FACTOR)
        return ceiling * (0.5 + self._rng.random() / 2)

    def reset(self) -> None:
        """The next delay is the first one again."""
        self._tries = 0
