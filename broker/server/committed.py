"""Waiting for the disk outside of the core: of answers of the API."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from broker.errors import NotCommitted
from broker.hooks import Waiter

if TYPE_CHECKING:
    from broker.server.host import Host

COMMIT_SECONDS_MAX: Final = 5.0


class FutureWaiter(Waiter):
    def __init__(self, future: asyncio.Future[None]) -> None:
        self._future = future

    def committed(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


async def committed(host: Host, promises: bool = False) -> None:
    """Wait until what has changed so far is on disk; with `promises`, other nodes have what was forwarded to them, or the store
    here, as for a PUBACK. Raises NotCommitted after COMMIT_SECONDS_MAX, and at once while the store takes nothing, so that the
    number of callers that wait is bounded."""
    commits = host.broker.commits
    if commits.takes_nothing():
        raise NotCommitted("not stored: the store takes no changes now")
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiter = FutureWaiter(future)
    if not (commits.wait_promises(waiter) if promises else commits.wait(waiter)):
        return
    host.flush_soon()
    try:
        async with asyncio.timeout(COMMIT_SECONDS_MAX):
            await future
    except TimeoutError:
        raise NotCommitted(f"not stored within {COMMIT_SECONDS_MAX:g} s: the store takes no changes now") from None
