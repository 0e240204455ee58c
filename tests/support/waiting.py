"""Deadlines of tests, and polling of other processes, which send no event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

DEADLINE: Final = 30.0  # seconds; long, because the machine may be busy
STOP_SECONDS: Final = 5.0
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
