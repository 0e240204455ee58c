"""The kernel acknowledges a lone message behind what is done with it, not before.

Linux acknowledges to a client that only sends as soon as its bytes are read: a segment is built, routed and taken in at the
other end while those whom the message is for wait, some 8 of 240 µs over two nodes on one machine at 1,000 messages a second
(docs/decisions/0007). A client with Nagle's algorithm waits for that acknowledgement before it sends a second small packet,
so it must not come by the kernel's timer (40 ms) either: it is asked for as soon as the message has left.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

CAN_DELAY: Final = hasattr(socket, "TCP_QUICKACK")  # Linux

# Values of TCP_QUICKACK (tcp(7)): what is due leaves now and all else as soon as it is read; or further ones wait. There is
# one value that does both, 2, but only where something is due: else it is as 1, and nothing waits from then on.
NOW: Final = 1
LATER: Final = 0


class LateAcks:
    """Of one client's socket, from now on. Call nothing after the protocol's connection_lost."""

    __slots__ = ("_fileno",)

    def __init__(self, transport: asyncio.Transport) -> None:
        self._fileno: int = transport.get_extra_info("socket").fileno()
        self.ask()

    def ask(self) -> None:
        """Acknowledge what was read, and what will be read when asked again."""
        self._set(NOW, LATER)

    def end(self) -> None:
        """Acknowledge what was read, and what will be read as the kernel likes."""
        self._set(NOW)

    def _set(self, *values: int) -> None:
        # An object for the moment: one that lived longer would close the transport's file descriptor. With family, type and
        # protocol given it asks the kernel nothing.
        borrowed = socket.SocketType(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, self._fileno)
        try:
            for value in values:
                borrowed.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, value)
        except OSError:  # it is broken: the transport will find out
            pass
        finally:
            borrowed.detach()
