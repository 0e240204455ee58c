"""A connection for a direct stream to another node: the shell around federation/stream/direct_client.py."""

# compiled with mypyc
from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from broker.server.socket_writer import SocketWriter, writer_of
from federation.stream.direct_client import DirectClient


class DirectConnection(asyncio.Protocol):
    """`changed` is called when the stream begins or ends; `acked` after each acknowledgement, which releases what leaves at the
    end of the turn; `failed` with a fault of ours."""

    def __init__(
        self,
        core: DirectClient,
        changed: Callable[[], None],
        acked: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.core = core
        self._changed = changed
        self._acked = acked
        self._failed = failed
        self._is_streaming = False
        self._loop = asyncio.get_running_loop()
        self._time: Callable[[], float] = self._loop.time  # bound once, for every acknowledgement
        self._transport: asyncio.Transport | None = None
        self._writer: SocketWriter | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._writer = writer_of(self._transport)
        now = self._time()
        self.core.connected(now)
        self.flush(now)

    def data_received(self, data: bytes) -> None:
        core = self.core
        now = self._time()
        try:
            core.receive_data(data, now)
            if not self._is_streaming:
                self.flush(now)
        except Exception as error:
            self._failed(error)
            core.connection_lost("internal error", now)
        if core.is_over:
            self.close()
            self._changed()
        elif self._is_streaming:
            self._acked()
        elif core.is_streaming():
            self._is_streaming = True
            self._arm()
            self._changed()

    def flush(self, now: float) -> None:
        """Write what the core wants written. The sender's window bounds what can wait in the transport."""
        writer = self._writer
        if writer is not None:
            data = self.core.data_to_send(now)
            if data:
                writer.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        if not self.core.is_over:
            self.core.connection_lost(str(exc) if exc else "", self._time())
            self._changed()

    def close(self) -> None:
        transport = self._transport
        self._forget()
        if transport is not None:
            transport.abort()

    def _forget(self) -> None:
        self._transport = None
        self._writer = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._timer = self._loop.call_at(self.core.next_timeout(), self._timer_fired)

    def _timer_fired(self) -> None:
        """It fires early, and looks again: that costs less than to move it."""
        now = self._time()
        self.core.handle_timeout(now)
        if self.core.is_over:
            self.close()
            self._changed()
        else:
            self.flush(now)
            self._arm()
