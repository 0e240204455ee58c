"""The addresses that the supervisor keeps for its workers while processes come and go."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from broker.config.addresses import LOOPBACK_HOST
from broker.config.settings_listeners import ListenerSettings
from broker.server.listeners import bind_unix
from broker.server.shared_sockets import bound, stream_addresses
from broker.server.socket_files import remove_socket_files
from broker.server.start_error import StartError, bind_error
from broker.workers.shares import moved

ATTEMPTS: Final = 20  # to find a port that is free for UDP and TCP
FREE_SECONDS_MAX: Final = 1.0
POLL_SECONDS: Final = 0.02
BACKLOG: Final = 128  # of the gossip


class HeldAddresses:
    """unix_sockets  of listeners, by path: all workers take connections from each"""

    def __init__(self) -> None:
        self.unix_sockets: dict[str, socket.socket] = {}
        self._held: list[socket.socket] = []

    def open_listeners(self, listeners: Iterable[ListenerSettings], count: int) -> None:
        """Those of so many workers. Raises StartError for the first that cannot be had."""
        for index, listener in enumerate(listeners):
            key = f"listeners[{index}].address"
            address = listener.address
            try:
                if address.is_unix:
                    self.unix_sockets[address.path] = bind_unix(listener, key)
                else:
                    for worker in range(count if listener.each_worker else 1):
                        address = moved(listener.address, worker)
                        self._hold(address.host, address.port)
            except OSError as error:
                raise bind_error(error, str(address), key) from error

    def _hold(self, host: str, port: int) -> None:
        """Keep the port from other programs. With SO_REUSEPORT a second node of this user would share it with the first one,
        so it is tried without first."""
        for family, address in stream_addresses(host, port):
            _wait_until_free(partial(bound, family, address, False))
            self._held.append(bound(family, address, True))

    def gossip_sockets(self) -> tuple[socket.socket, socket.socket]:
        """Open a UDP and a TCP socket of one port on the loopback address. Raises StartError."""
        fault = OSError()
        for _ in range(ATTEMPTS):
            stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                stream.bind((LOOPBACK_HOST, 0))
                stream.listen(BACKLOG)
                datagram.bind(stream.getsockname())
            except OSError as error:
                fault = error
                stream.close()
                datagram.close()
                continue
            for sock in (stream, datagram):
                sock.setblocking(False)
                self._held.append(sock)
            return datagram, stream
        raise StartError(f"workers: no port of {LOOPBACK_HOST} is free for them: {fault.strerror}")

    def close(self) -> None:
        for sock in (*self._held, *self.unix_sockets.values()):
            sock.close()
        remove_socket_files(list(self.unix_sockets))


def _wait_until_free(bind: Callable[[], socket.socket]) -> None:
    """Bind once, and again while workers of a supervisor that was killed may still be ending. Raises OSError."""
    until = time.monotonic() + FREE_SECONDS_MAX
    while True:
        try:
            bind().close()
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                raise
            time.sleep(POLL_SECONDS)
        else:
            return
