"""What is logged of a copy of this node's store: whether it is whole. One line of each for an episode.

That it is not whole any more is said at once. That it is so again is said at once, too, unless it falls short again and again:
then when it has been whole for a while, with how often it fell short.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.message import NEVER

HOLD_SECONDS_MIN: Final = (
    1.0  # that it has to be whole the second time that it falls short; twice as long the next time
)
HOLD_SECONDS_MAX: Final = 60.0  # at most; and one that was whole for so long begins anew


class CopyNews:
    """is_whole     as it was said last
    times_short  how often it fell short since it was said to be whole
    due_at       when it is said to be whole; NEVER for not at all
    """

    def __init__(self) -> None:
        self.is_whole = False
        self.times_short = 0
        self.due_at = NEVER
        self._was_whole = False  # at the last look
        self._said_at = -HOLD_SECONDS_MAX
        self._hold = 0.0

    def look(self, is_whole: bool, now: float) -> bool:
        """Return whether something is to be said: the value of `is_whole`."""
        fell_short = self._was_whole and not is_whole
        self._was_whole = is_whole
        if not is_whole:
            self.due_at = NEVER
            if fell_short:
                self.times_short += 1
            if not self.is_whole:
                return False
            self.is_whole = False
            calm = now - self._said_at >= HOLD_SECONDS_MAX
            self._hold = 0.0 if calm else min(HOLD_SECONDS_MAX, max(HOLD_SECONDS_MIN, 2.0 * self._hold))
            return True
        if self.is_whole:
            return False
        if self.due_at == NEVER:
            self.due_at = now + self._hold
        if now < self.due_at:
            return False
        self.is_whole = True
        self.due_at = NEVER
        self._said_at = now
        return True

    def take_times_short(self) -> int:
        times, self.times_short = self.times_short, 0
        return times
