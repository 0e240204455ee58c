"""Long calls of the API: clients and other nodes are served between their steps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import Final, TypeVar

CALL_SECONDS: Final = 0.002  # of work in one turn of the loop, for all calls of the API together

Result = TypeVar("Result")
# A call as a generator: it yields after each small step and returns the result.
Steps = Generator[None, None, Result]


class LongCalls:
    """One for a node. Its calls alternate: one of them in a turn of the loop, for CALL_SECONDS."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()  # wakes its waiters in their order

    async def run(self, steps: Steps[Result]) -> Result:
        """Take all steps and return the result; raises what a step raises. Between two turns anything may change."""
        while True:
            async with self._turn:
                ends_at = self._clock() + CALL_SECONDS
                try:
                    while self._clock() < ends_at:
                        next(steps)
                except StopIteration as end:
                    result: Result = end.value
                    return result
                await asyncio.sleep(0)
