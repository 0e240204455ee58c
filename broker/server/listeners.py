"""The addresses on which clients connect."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import TYPE_CHECKING, Final

from broker.config.addresses import Address
from broker.plugins import StartError
from broker.server.protocol import ClientProtocol

if TYPE_CHECKING:
    from broker.server.lifecycle import Server

BACKLOG: Final = 1024  # connections that the kernel keeps until we accept them


def bind_error(error: OSError, address: str, key: str) -> StartError:
    """What an operator reads when an address cannot be opened: which one, by which key, why, what would help."""
    code = error.errno
    if isinstance(error, socket.gaierror):
        return StartError(f"{key}: the host of {address} cannot be resolved ({error.strerror}); give an IP address")
    if code == errno.EADDRINUSE:
        return StartError(f"{key}: {address} is in use by another process; stop it or give another port")
    if code == errno.EADDRNOTAVAIL:
        return StartError(f"{key}: {address} is no address of this machine; use one of its own, or 0.0.0.0 for all")
    if code == errno.EACCES:
        return StartError(f"{key}: no permission to open {address}; ports below 1024 need root")
    reason = os.strerror(code) if code is not None and code > 0 else str(error)
    return StartError(f"{key}: cannot open {address}: {reason}")


class Listeners:
    """Sockets of all `listeners` of the configuration."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.protocol_class: type[ClientProtocol] = ClientProtocol
        self._sockets: list[asyncio.Server] = []
        self.addresses: list[str] = []  # as bound: with the port that the kernel chose for port 0

    async def start(self) -> None:
        """Open every listener that is served; raises StartError for the first that cannot be opened."""
        for index, listener in enumerate(self._server.settings.listeners):
            if not listener.is_served:
                self._server.log.warning(
                    "listener not opened: its feature is not there yet", address=str(listener.address)
                )
                continue
            await self._open(listener.address, f"listeners[{index}].address")

    async def _open(self, address: Address, key: str) -> None:
        server = self._server
        protocol_class = self.protocol_class
        loop = asyncio.get_running_loop()
        try:
            if address.is_unix:
                opened = await loop.create_unix_server(
                    lambda: protocol_class(server), path=address.path, backlog=BACKLOG
                )
            else:
                opened = await loop.create_server(
                    lambda: protocol_class(server), host=address.host or None, port=address.port, backlog=BACKLOG
                )
        except OSError as error:
            raise bind_error(error, str(address), key) from error
        self._sockets.append(opened)
        for sock in opened.sockets:
            name = sock.getsockname()
            self.addresses.append(f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name))

    def close(self) -> None:
        """No new connections; those that are open stay."""
        for opened in self._sockets:
            opened.close()
        self._sockets.clear()
