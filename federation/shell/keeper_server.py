"""A connection that brings the store of another node: the shell around federation/replication/keeper_server.py."""

# compiled with mypyc
from __future__ import annotations

import asyncio
from typing import Final, cast

from federation.replication.keeper_server import KeeperServer
from federation.replication.replicas import Replicas
from federation.shell.stream_host import StreamHost
from federation.trust import Caller

RECORD_BYTES: Final = 2**20  # of a record beside the largest message in it
CLOSE_SECONDS_MAX: Final = 2.0  # for the other node to take why its connection ended


class KeeperServerProtocol(asyncio.Protocol):
    """One connection that began with the preface of a keeper's stream."""

    def __init__(self, host: StreamHost, replicas: Replicas, caller: Caller) -> None:
        self._host = host
        self._caller = caller
        self.core = KeeperServer(replicas, host.bytes_max + RECORD_BYTES, host.loop.time(), caller)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        now = self._host.loop.time()
        try:
            self.core.receive_data(data, now)
        except Exception as error:
            self._host.log.error("fault in the copy of a store", node=self.core.name, exc_info=error)
            self.core.end("internal error")
        self.carry_out()
        self._host.changed()

    def carry_out(self) -> None:
        """The store may have what came."""
        transport = self._transport
        core = self.core
        if transport is None or transport.is_closing():
            return
        data = core.data_to_send(self._host.loop.time())
        if data:
            transport.write(data)
        if core.awaits_store():
            self._host.acks_due[self] = None
        if core.is_over:
            self._close(transport)

    def _close(self, transport: asyncio.Transport) -> None:
        if self.core.is_distrusted:
            self._host.distrusted_caller(self._caller, self.core.refused)
        elif self.core.refused:
            self._host.refused(self.core.refused)
        transport.close()
        self._cancel()
        self._timer = self._host.loop.call_later(CLOSE_SECONDS_MAX, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._host.connections.discard(self._transport)
            self._transport = None
        self._cancel()
        self.core.close()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._timer = self._host.loop.call_at(self.core.next_timeout(), self._timer_fired)

    def _timer_fired(self) -> None:
        """It fires early, and looks again."""
        self._timer = None
        self.core.handle_timeout(self._host.loop.time())
        self.carry_out()
        if not self.core.is_over:
            self._arm()
