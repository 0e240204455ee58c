"""Reads of a log at the same time: so many at most, and of the clients that wait each has one in its turn."""

# not a core: waits
from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ClientTurns:
    """free  turns that nobody has"""

    def __init__(self, count: int) -> None:
        self.free = count
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()  # by client

    @asynccontextmanager
    async def turn(self, client_id: str) -> AsyncIterator[None]:
        """Wait for a turn of this client, behind one of each other client that waits already, and have it until the end."""
        if self.free:
            self.free -= 1
        else:
            came = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(client_id, deque()).append(came)
            try:
                await came
            except asyncio.CancelledError:
                if not came.cancelled():  # it has got its turn at the same time
                    self._end()
                raise
        try:
            yield
        finally:
            self._end()

    def _end(self) -> None:
        """Somebody's turn is over: the next client that waits has it."""
        waiting = self._waiting
        while waiting:
            client_id, futures = waiting.popitem(last=False)
            came = futures.popleft()
            if futures:
                waiting[client_id] = futures
            if not came.done():
                came.set_result(None)
                return
        self.free += 1
