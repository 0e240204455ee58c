"""`max_memory`: what a node takes while its process has more memory than it should.

    MEMORY_FREE   everything
    MEMORY_SHORT  from max_memory on: no new session, and no QoS 0 message into a queue
    MEMORY_FULL   from an eighth above it on: no PUBLISH of QoS 1 or 2 either

What can be sent goes out at each level, so that the queues become shorter. A level ends a sixteenth of max_memory below the one
at which it begins.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

MEMORY_FREE: Final = 0
MEMORY_SHORT: Final = 1
MEMORY_FULL: Final = 2
MEMORY_NAMES: Final = ("free", "short", "full")

FULL_SHARE: Final = 8  # this part above max_memory
SUDDEN_SHARE: Final = 4  # this part above it a level begins without waiting for what the allocator gives back
HYSTERESIS_SHARE: Final = 16


class MemoryLimit:
    """The level that follows from the process's resident bytes. `bytes_max` is max_memory, 0 for no limit."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.level = MEMORY_FREE

    def is_pressed(self, resident: int) -> bool:
        """Return whether the allocator should give back what is free before `judge` is asked."""
        return self.bytes_max > 0 and (self.level > MEMORY_FREE or resident >= self.bytes_max)

    def judge(self, resident: int, is_given_back: bool) -> int:
        """The level from now on. It rises only where the allocator has given back what is free, so that memory that nobody uses
        keeps nobody out, unless memory grows faster than that."""
        limit = self.bytes_max
        if limit == 0:
            self.level = MEMORY_FREE
            return self.level
        below = limit // HYSTERESIS_SHARE
        full = limit + limit // FULL_SHARE
        if self.level == MEMORY_FULL and resident < full - below:
            self.level = MEMORY_SHORT
        if self.level == MEMORY_SHORT and resident < limit - below:
            self.level = MEMORY_FREE
        if is_given_back or resident >= limit + limit // SUDDEN_SHARE:
            if resident >= full:
                self.level = MEMORY_FULL
            elif resident >= limit and self.level == MEMORY_FREE:
                self.level = MEMORY_SHORT
        return self.level
