"""One half of a connection that is passed on byte by byte. Each half stops reading while the other one is full."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, cast

from broker.places import Places

PASS_BYTES_MAX: Final = 1 << 20  # of one connection, waiting on either side
CLOSE_SECONDS_MAX: Final = 2.0  # for one half of a connection to take what the other one left
STOP_TURNS_MAX: Final = 10


async def end_connections(connections: Places[asyncio.BaseTransport]) -> None:
    """Abort all, and let their protocols be told, which take them out of it."""
    for transport in list(connections):
        cast(asyncio.Transport, transport).abort()
    for _ in range(STOP_TURNS_MAX):  # they are told in one of the next turns
        if not connections:
            break
        await asyncio.sleep(0)


def _nothing() -> None:
    pass


class Passing(asyncio.Protocol):
    """`connections` are those of the owner; `failed` is called with the reason where there is no other half, `ended` behind the
    end."""

    def __init__(self, connections: Places[asyncio.BaseTransport], failed: Callable[[str], None]) -> None:
        self._connections = connections
        self._failed = failed
        self.ended: Callable[[], object] = _nothing
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._other: Passing | None = None
        self._early = b""  # came before the other half was there
        self._task: asyncio.Task[None] | None = None
        self._closing_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=PASS_BYTES_MAX)
        self._connections.hold(transport)

    def begin(self, data: bytes, connect: Callable[[Passing], Awaitable[None]]) -> None:
        """Find the other half with `connect`, which raises OSError; until it is there nothing more is read."""
        assert self._transport is not None
        self._early = data
        self._transport.pause_reading()
        self._task = self._loop.create_task(self._connect(connect))

    async def _connect(self, connect: Callable[[Passing], Awaitable[None]]) -> None:
        other = self._other = Passing(self._connections, self._failed)
        other._other = self  # before it is connected: the server speaks first
        try:
            await connect(other)
        except OSError as error:
            self._failed(str(error))
            self._close()
            return
        if other._transport is not None and self._transport is not None:
            early, self._early = self._early, b""
            if early:
                other._transport.write(early)
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._other is not None and self._other._transport is not None and not self._early:
            self._other._transport.write(data)
        elif self._task is not None and not self._task.done() and self._transport is not None:
            # uvloop reads once, in spite of a pause within connection_made.
            self._early += data
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        if self._other is not None and self._other._transport is not None:
            self._other._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._other is not None and self._other._transport is not None:
            self._other._transport.resume_reading()

    def _close(self) -> None:
        """Return what was written may still be taken, but not for ever."""
        if self._transport is not None and self._closing_timer is None:
            self._transport.close()
            self._closing_timer = self._loop.call_later(CLOSE_SECONDS_MAX, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._connections.discard(self._transport)
            self._transport = None
        if self._closing_timer is not None:
            self._closing_timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self.ended()
        other = self._other
        if other is not None:
            self._other = None  # they know each other: nothing else keeps them
            other._close()
