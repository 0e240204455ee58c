"""`log.level: debug`: which clients come, with what, and why they go. Other levels pay nothing for it."""

from __future__ import annotations

import asyncio

from broker.config.addresses import socket_name_text
from broker.server.logging import get_logger
from broker.server.protocol import ClientProtocol
from broker.session.connection import Connection


class LoggingProtocol(ClientProtocol):
    """A ClientProtocol that logs the life of its connection."""

    __slots__ = ("_is_told", "_log")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._log = get_logger("client")
        self._is_told = False
        super().connection_made(transport)
        if self.connection is None:
            self._log.debug("refused: max_connections", addr=socket_name_text(transport.get_extra_info("peername")))

    def carry_out(self, connection: Connection) -> None:
        if connection.session is not None and not self._is_told:
            self._is_told = True
            self._log.debug(
                "connected",
                client_id=connection.client_id,
                addr=connection.remote_addr,
                version=connection.version,
                username=connection.username,
                keep_alive=connection.keep_alive,
            )
        super().carry_out(connection)

    def connection_lost(self, exc: Exception | None) -> None:
        connection = self.connection
        super().connection_lost(exc)
        if connection is not None:
            self._log.debug(
                "gone", client_id=connection.client_id, addr=connection.remote_addr, reason=connection.close_text
            )
