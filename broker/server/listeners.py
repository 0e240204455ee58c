"""The addresses on which clients connect."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.config.addresses import socket_name_text
from broker.config.settings import ListenerSettings
from broker.listener_facts import ListenerFacts
from broker.server.logging import dump_packet
from broker.server.protocol import ClientProtocol
from broker.server.start_error import bind_error

if TYPE_CHECKING:
    from broker.server.host import Host

BACKLOG: Final = 1024  # connections that the kernel queues until they are accepted
PROBE_IDLE_SECONDS: Final = 600  # of silence before the first TCP keep-alive probe
PROBE_INTERVAL_SECONDS: Final = 60
PROBE_COUNT: Final = 5


def _probe_silent_clients(listener: int) -> None:
    """Set TCP keep-alive on a listener, whose connections inherit it. Otherwise a client without MQTT Keep Alive whose
    machine disappears would stay connected for ever."""
    options = socket.socket(fileno=listener)
    try:
        options.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        options.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_IDLE_SECONDS)
        options.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_INTERVAL_SECONDS)
        options.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBE_COUNT)
    finally:
        options.detach()


class Listeners:
    """Sockets of all `listeners` of the configuration."""

    def __init__(self, server: Host) -> None:
        self._server = server
        self._sockets: list[asyncio.Server] = []
        self.addresses: list[str] = []  # with the port that the kernel chose for port 0

    async def start(self) -> None:
        """Open every listener that is served. Raises StartError for the first that cannot be opened."""
        for index, listener in enumerate(self._server.settings.listeners):
            if listener.is_served:  # the loader has warned of others
                await self._open(listener, f"listeners[{index}].address")

    def make_protocol(self, listener: ListenerFacts) -> ClientProtocol:
        """The shell of a new connection, with a packet dump when the log settings ask for it."""
        if dump_packet():
            from broker.server.packet_dump import DumpingProtocol

            return DumpingProtocol(self._server, listener)
        return ClientProtocol(self._server, listener)

    async def _open(self, listener: ListenerSettings, key: str) -> None:
        loop = asyncio.get_running_loop()
        address = listener.address
        facts = ListenerFacts(str(address), "unix" if address.is_unix else "tcp")
        make_protocol = partial(self.make_protocol, facts)
        try:
            if address.is_unix:
                opened = await loop.create_unix_server(make_protocol, path=address.path, backlog=BACKLOG)
            else:
                opened = await loop.create_server(
                    make_protocol, host=address.host or None, port=address.port, backlog=BACKLOG
                )
        except OSError as error:
            raise bind_error(error, str(address), key) from error
        self._sockets.append(opened)
        for sock in opened.sockets:
            if not address.is_unix:
                _probe_silent_clients(sock.fileno())
            self.addresses.append(socket_name_text(sock.getsockname()))

    def close(self) -> None:
        """Stop accepting connections. Open connections stay."""
        for opened in self._sockets:
            opened.close()
        self._sockets.clear()
