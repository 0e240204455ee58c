"""A bounded number of checks runs at once. Further logins wait for their turn, each address has one after the other."""

# not a core: asks the loop for futures, and threads
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from broker.auth.failed_logins import Start
from broker.auth.fair_queue import FairQueue

WAITING_MAX: Final = 2048  # logins that wait for one queue
Result = TypeVar("Result")


class NotChecked(Exception):
    """The check did not run: the queue was full, or its `begin` said so."""


class _Entry:
    """`start` is what `begin` answered last; LATER while the entry waits."""

    __slots__ = ("begin", "future", "start")

    def __init__(self, begin: Callable[[], Start]) -> None:
        self.begin = begin
        self.start = Start.LATER
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class CheckQueue:
    """Made and used inside a running loop. `refused` counts the logins that found the queue full."""

    def __init__(self, running_max: int, waiting_max: int = WAITING_MAX) -> None:
        self.refused = 0
        self._running_max = running_max
        self._running = 0
        self._waiting: FairQueue[_Entry] = FairQueue(waiting_max)
        self._stopped = False

    @property
    def waiting(self) -> int:
        """Number of logins that wait for their turn."""
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, address: str, begin: Callable[[], Start]) -> AsyncIterator[None]:
        """Run the body when it is its turn and `begin` answers NOW. Raises NotChecked.

        begin  is asked when the turn comes. LATER leaves the login where it is, until `advance` asks again"""
        if self._stopped:
            raise NotChecked
        entry = _Entry(begin)
        dropped = self._waiting.put(address, entry)
        if dropped is not None:
            self.refused += 1
            self._leave_out(dropped)
        self.advance()
        await entry.future
        try:
            yield
        finally:
            self._running -= 1
            self.advance()

    def advance(self) -> None:
        """Begin the checks whose turn it is."""
        while self._running < self._running_max and (entry := self._waiting.take(_is_decided)) is not None:
            if entry.start is Start.NOW:
                self._running += 1
                entry.future.set_result(None)
            else:
                self._leave_out(entry)

    def stop(self) -> None:
        """End those that wait; nothing may interrupt those that run."""
        self._stopped = True
        while (entry := self._waiting.take(_is_any)) is not None:
            self._leave_out(entry)

    def _leave_out(self, entry: _Entry) -> None:
        if not entry.future.done():
            entry.future.set_exception(NotChecked())


def _is_decided(entry: _Entry) -> bool:
    """Ask whether the check begins now, or never."""
    entry.start = Start.NEVER if entry.future.done() else entry.begin()
    return entry.start is not Start.LATER


def _is_any(_entry: _Entry) -> bool:
    return True


class CheckPool:
    """A few threads run the checks that take milliseconds of CPU. Made and used inside a running loop. Callers of `run`
    have a turn of `queue`, so that no call waits for a thread."""

    def __init__(self, threads: int) -> None:
        self.queue = CheckQueue(threads)
        self._executor = ThreadPoolExecutor(threads, "auth")

    async def run(self, call: Callable[[], Result]) -> Result:
        """Return the result of the call in a thread. Raises what the call raises."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def stop(self) -> None:
        """End the logins that wait; calls that run end by themselves."""
        self.queue.stop()
        self._executor.shutdown(wait=False)
