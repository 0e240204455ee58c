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
"""While records are being written, a piece waits until they are, at most so many times as long as pieces take: so all readers
together have that share beside publishers who write without a pause. Where load generator, node and reader share two cores, a
byte read costs some 3.6 ns of CPU: 100 MB/s cost publishers a fifth."""
PIECE_SECONDS: Final = 5e-5  # that a piece takes at least, with what its task does before it waits again
PIECE_SECONDS_MAX: Final = 1e-2  # that a piece counts at most: what it waits for a disk costs publishers nothing
REST_SECONDS_MIN: Final = 6e-4  # of a wait, as timers end half a millisecond late; shorter rests are had together
MEAN_PIECES: Final = 8  # over which their mean length is taken

T = TypeVar("T")


class ReaderTurns:
    """rested  seconds that pieces have waited so far
    rest    seconds that each piece waits at most
    """

    def __init__(self, is_writing: Callable[[], bool], when_written: Callable[[], asyncio.Future[None]]) -> None:
        """`is_writing` tells whether publishers' records are being written. `when_written`: done when the next ones are; it is
        shared."""
        self.rested = 0.0
        self.rest = REST * PIECE_SECONDS
        self._owed = REST_SECONDS_MIN  # rest that no piece has had yet: the first one beside publishers waits
        self._is_writing = is_writing
        self._when_written = when_written
        self._line = asyncio.Lock()

    async def come(self) -> None:
        """Wait for the turn of a piece of work, behind those who wait already; others have theirs in any case. Its rest comes
        before it: of pieces that come at once each one has its own, and the first one lets the records pass. Of short pieces
        some go at once, and the next one waits for them all."""
        async with self._line:
            await asyncio.sleep(0)
            if not self._is_writing():
                self._owed = REST_SECONDS_MIN
                return
            self._owed += self.rest
            if self._owed < REST_SECONDS_MIN:
                return
            began_at = now = time.perf_counter()
            free_at = began_at + self._owed
            self._owed = 0.0
            while self._is_writing() and now < free_at:
                await asyncio.wait([self._when_written()], timeout=free_at - now)
                now = time.perf_counter()
            self.rested += now - began_at

    def worked(self, seconds: float) -> None:
        """A piece of work has ended, which took so long."""
        counted = min(max(seconds, PIECE_SECONDS), PIECE_SECONDS_MAX)
        self.rest += (REST * counted - self.rest) / MEAN_PIECES

    async def do(self, work: Callable[[], T]) -> T:
        """Do a piece of work in its turn."""
        await self.come()
        began_at = time.perf_counter()
        try:
            return work()
        finally:
            self.worked(time.perf_counter() - began_at)


class Party:
    """Readers who have turns like one: one of them waits among the other parties, the others behind it.

    reading  held while a piece of the log is read for one of them: what was read before goes on beside it
    """

    def __init__(self, turns: ReaderTurns | Party) -> None:
        """A party of a party has its turns among the others of that."""
        self.reading = asyncio.Lock()
        self._turns = turns
        self._line = asyncio.Lock()

    async def do(self, work: Callable[[], T]) -> T:
        """As ReaderTurns.do."""
        async with self._line:
            return await self._turns.do(work)
