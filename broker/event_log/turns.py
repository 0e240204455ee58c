"""The turns of those who read the log, beside publishers: the work for readers is done in short pieces, and each of them waits
while publishers' records are being written.
"""

# not a core: waits
from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

REST: Final = 6
"""While records are being written, a piece waits until they are, at most so many times as long as the piece before took: so all
readers together have that share beside publishers who write without a pause. Where load generator, node and reader share two
cores, a byte read costs some 3.6 ns of CPU: 100 MB/s cost publishers a fifth."""

T = TypeVar("T")


class ReaderTurns:
    """rested  seconds that pieces have waited so far"""

    def __init__(self, is_writing: Callable[[], bool], when_written: Callable[[], asyncio.Future[None]]) -> None:
        """`is_writing` tells whether publishers' records are being written. `when_written`: done when the next ones are; it is
        shared."""
        self.rested = 0.0
        self._is_writing = is_writing
        self._when_written = when_written
        self._line = asyncio.Lock()
        self._free_at = 0.0  # monotonic seconds: the pieces before have had their rest

    async def come(self) -> None:
        """Wait for the turn of a piece of work, behind those who wait already; others have theirs in any case."""
        async with self._line:
            await asyncio.sleep(0)
            began_at = now = time.perf_counter()
            while self._is_writing() and now < self._free_at:
                await asyncio.wait([self._when_written()], timeout=self._free_at - now)
                now = time.perf_counter()
            self.rested += now - began_at

    def worked(self, seconds: float) -> None:
        """A piece of work has ended, which took so long."""
        now = time.perf_counter()
        since = max(self._free_at, now) if self._is_writing() else now  # beside publishers the rests follow each other
        self._free_at = since + REST * seconds

    async def do(self, work: Callable[[], T]) -> T:
        """Do a piece of work in its turn."""
        await self.come()
        began_at = time.perf_counter()
        try:
            return work()
        finally:
            self.worked(time.perf_counter() - began_at)


class Party:
    """Readers who have turns like one: one of them waits among the other parties, the others behind it. That holds for what is
    done by `do`; who asks ReaderTurns itself, as the reading of the log does, has turns of its own."""

    def __init__(self, turns: ReaderTurns) -> None:
        self._turns = turns
        self._line = asyncio.Lock()

    async def do(self, work: Callable[[], T]) -> T:
        """As ReaderTurns.do."""
        async with self._line:
            return await self._turns.do(work)
