"""A few threads run the checks that take milliseconds of CPU."""

# not a core: threads
from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from broker.auth.check_queue import CheckQueue

Result = TypeVar("Result")


class CheckPool:
    """Made and used inside a running loop. Callers of `run` have a turn of `queue`, so that no call waits for a thread."""

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
