"""Tells the signal that asks for a stop from the signal that forces the end of the process."""

from __future__ import annotations

from enum import Enum
from typing import Final

# `timeout -s INT` and a shell signal the process and its group: two signals, one request.
SAME_REQUEST_SECONDS: Final = 0.5


class Wish(Enum):
    """The effect of a signal."""

    STOP = "stop"
    NOTHING = "nothing"
    END_NOW = "end now"


class StopSignals:
    """Signals within SAME_REQUEST_SECONDS of the first one are part of its request; a later one forces the end."""

    def __init__(self) -> None:
        self._asked_at: float | None = None

    def receive(self, now: float) -> Wish:
        """A signal arrived at `now` (monotonic seconds)."""
        if self._asked_at is None:
            self._asked_at = now
            return Wish.STOP
        return Wish.NOTHING if now - self._asked_at < SAME_REQUEST_SECONDS else Wish.END_NOW
