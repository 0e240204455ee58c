"""Checks that take milliseconds of CPU run in a few threads; those that wait for one are bounded."""

# not a core: threads
from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

from broker.auth.fair_queue import FairQueue

WAITING_MAX: Final = 2048  # checks without a thread

Result = TypeVar("Result")


class NotChecked(Exception):
    """The check did not run: it had no place, or nobody waits for it any more."""


class _Check(NamedTuple):
    """`is_wanted` is asked when a thread is free: False ends the check without a result."""

    call: Callable[[], Any]
    is_wanted: Callable[[], bool]
    future: asyncio.Future[Any]


class CheckPool:
    """Made and used inside a running loop. Addresses have their turns. `refused` counts checks without a place."""

    def __init__(self, threads: int, waiting_max: int = WAITING_MAX) -> None:
        self.refused = 0
        self._loop = asyncio.get_running_loop()
        self._threads = threads
        self._executor = ThreadPoolExecutor(threads, "auth")
        self._running = 0
        self._waiting: FairQueue[_Check] = FairQueue(waiting_max)
        self._stopped = False

    @property
    def waiting(self) -> int:
        """Number of checks without a thread."""
        return len(self._waiting)

    async def run(self, address: str, call: Callable[[], Result], is_wanted: Callable[[], bool]) -> Result:
        """The result of the call. Raises NotChecked, and what the call raises."""
        if self._stopped:
            raise NotChecked
        check = _Check(call, is_wanted, self._loop.create_future())
        if self._running < self._threads:
            self._begin(check)
        else:
            dropped = self._waiting.put(address, check)
            if dropped is not None:
                self.refused += 1
                self._leave_out(dropped)
        result: Result = await check.future
        return result

    def stop(self) -> None:
        """Begin no more checks. The threads end after those that run."""
        self._stopped = True
        while (check := self._waiting.take()) is not None:
            self._leave_out(check)
        self._executor.shutdown(wait=False)

    def _begin(self, check: _Check) -> None:
        self._running += 1
        running = self._loop.run_in_executor(self._executor, check.call)
        running.add_done_callback(lambda done: self._ended(check, done))

    def _ended(self, check: _Check, done: asyncio.Future[Any]) -> None:
        self._running -= 1
        if not check.future.done():
            if done.cancelled():
                check.future.set_exception(NotChecked())
            elif (error := done.exception()) is not None:
                check.future.set_exception(error)
            else:
                check.future.set_result(done.result())
        while self._running < self._threads and (following := self._waiting.take()) is not None:
            if following.is_wanted():
                self._begin(following)
            else:
                self._leave_out(following)

    def _leave_out(self, check: _Check) -> None:
        if not check.future.done():
            check.future.set_exception(NotChecked())
