"""Writes to the socket with one system call, without the transport's list of buffers.

That list costs uvloop 0.7 of 3.1 µs a write (docs/decisions/0007).
"""

# compiled with mypyc
from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

WRITER: Final = "writer"  # extra info of a transport with a SocketWriter of its own, for bytes inside TLS


def writer_of(transport: asyncio.Transport) -> SocketWriter:
    """Return what writes to a transport."""
    found: object = transport.get_extra_info(WRITER)
    return found if isinstance(found, SocketWriter) else SocketWriter(transport)


class SocketWriter:
    """The only writer of its transport, so it knows when the transport's buffer is empty.

    The transport owns the socket and reports its errors. Nothing may be written after connection_lost: the file descriptor
    may belong to another socket by then.
    """

    __slots__ = ("_fileno", "_is_behind", "_os_write", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        if transport.get_extra_info("ssl_object") is not None:
            raise ValueError("a transport with TLS cannot have a SocketWriter, which would write plain text")
        self._is_behind = False  # the transport's buffer may not be empty
        self._os_write: Callable[..., int] = os.write  # bound once, which saves two look-ups a write
        self._fileno: object = transport.get_extra_info("socket").fileno()
        self._transport = transport

    def write(self, data: bytes) -> None:
        """Write as much as the socket takes; the transport writes the rest, in order."""
        if not self._is_behind or self._transport.get_write_buffer_size() == 0:
            sent = 0
            try:
                sent = self._os_write(self._fileno, data)
            except OSError:  # the socket is full or broken
                pass
            if sent == len(data):
                self._is_behind = False
                return
            self._is_behind = True
            data = data[sent:]
        self._transport.write(data)
