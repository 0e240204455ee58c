"""One system call from our bytes to the socket, past the transport's own list of them.

uvloop's transport puts each piece into a list, takes it out again and tells its protocol, which costs 0.7 of 3.1 µs a write
(docs/decisions/0007).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


class SocketWriter:
    """The only way to write to its transport: so it knows when the transport has nothing left to write.

    The socket stays the transport's. Nothing is written after the protocol's connection_lost, when the file descriptor may
    belong to another socket. The transport finds and reports errors of the socket.
    """

    __slots__ = ("_fileno", "_is_behind", "_os_write", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        if transport.get_extra_info("ssl_object") is not None:
            raise ValueError("a transport with TLS writes by itself: bytes on its socket would go past TLS")
        self._is_behind = False  # the transport may have something to write
        self._os_write: Callable[..., int] = os.write  # bound once: a module's function is two look-ups away
        self._fileno: object = transport.get_extra_info("socket").fileno()
        self._transport = transport

    def write(self, data: bytes) -> None:
        """At once as far as the socket takes it, the rest by the transport; in order."""
        if not self._is_behind or self._transport.get_write_buffer_size() == 0:
            sent = 0
            try:
                sent = self._os_write(self._fileno, data)
            except OSError:  # it takes nothing now, or is broken
                pass
            if sent == len(data):
                self._is_behind = False
                return
            self._is_behind = True
            data = data[sent:]
        self._transport.write(data)
