"""Deadlines of tests, the end of other processes, and polling of those, which send no other event."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

DEADLINE: Final = 60.0  # seconds; long, because the machine may be busy
STOP_SECONDS: Final = 15.0  # a node ends itself after 5 s, with a status that is not 0
POLL_SECONDS: Final = 0.03


async def eventually(
    condition: Callable[[], Any] | Callable[[], Awaitable[Any]], what: str, seconds: float = DEADLINE
) -> Any:
    """The first true value of the condition, a function or coroutine function. Fails after `seconds`."""
    until = time.monotonic() + seconds
    value: Any = None
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds:.0f} s: {what} (last: {value!r})")
        await asyncio.sleep(POLL_SECONDS)


async def process_ends(process: int, what: str, seconds: float = DEADLINE) -> None:
    """Wait until a child of this process that was not waited for has ended."""
    file = os.pidfd_open(process)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(file, ended.set)
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
    except TimeoutError:
        raise AssertionError(f"not within {seconds:.0f} s: {what}") from None
    finally:
        loop.remove_reader(file)
        os.close(file)


async def stand_still(process: int) -> None:
    """Stop a process. Returns when all its threads have stopped: a thread that has input may run once more before it does."""
    os.kill(process, signal.SIGSTOP)
    tasks = Path(f"/proc/{process}/task")

    def has_stopped() -> bool:
        return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks.iterdir())

    await eventually(has_stopped, "all threads of the process have stopped")
