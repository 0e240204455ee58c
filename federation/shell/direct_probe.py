"""A connection that asks whether direct streams get through to a node that is reached over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from federation.stream.direct_client import DirectProbe


class ProbeConnection(asyncio.Protocol):
    """`changed` is called when the sender may have heard something; `ended` is done when the connection is."""

    def __init__(self, core: DirectProbe, changed: Callable[[], None]) -> None:
        self._core = core
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._core.data_to_send())
        self._timer = self._loop.call_at(self._core.next_timeout(), self.close)

    def data_received(self, data: bytes) -> None:
        self._core.receive_data(data, self._loop.time())
        if self._core.is_over:
            self.close()
            self._changed()

    def connection_lost(self, exc: Exception | None) -> None:
        self.close()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        if not self.ended.done():
            self.ended.set_result(None)
