"""The sockets of gossip: UDP and TCP bound to one port."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Final

DATAGRAM_BUFFER_BYTES: Final = 1 << 20
"""Kernel buffer asked for in each direction, so that a burst of gossip is not lost while the loop is busy."""
FREE_PORT_ATTEMPTS: Final = 20
"""Attempts to find a port that is free for UDP and TCP."""
TCP_BACKLOG: Final = 128


@dataclass(frozen=True, slots=True)
class GossipSockets:
    """Bound sockets of one port; GossipShell takes them over."""

    datagram: socket.socket
    stream: socket.socket
    port: int

    def close(self) -> None:
        self.datagram.close()
        self.stream.close()


def bind_gossip(host: str, port: int) -> GossipSockets:
    """UDP and TCP on the same port; port 0 finds a free one. OSError names the address and what is wrong."""
    attempts = FREE_PORT_ATTEMPTS if port == 0 else 1
    while True:
        attempts -= 1
        try:
            return _bind_both(host, port)
        except OSError as error:
            if attempts == 0:
                text = error.strerror or str(error)
                raise OSError(error.errno, f"gossip cannot listen on {host or '*'}:{port}: {text}") from error


def _bind_both(host: str, port: int) -> GossipSockets:
    infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    infos.sort(key=lambda info: info[0] != socket.AF_INET)
    family, _, _, _, address = infos[0]
    stream = socket.socket(family, socket.SOCK_STREAM)
    try:
        stream.setblocking(False)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stream.bind(address)
        # Listen at once: with SO_REUSEADDR two sockets may bind one port as long as neither listens.
        stream.listen(TCP_BACKLOG)
        bound: int = stream.getsockname()[1]
        datagram = socket.socket(family, socket.SOCK_DGRAM)
        try:
            datagram.setblocking(False)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                datagram.setsockopt(socket.SOL_SOCKET, option, DATAGRAM_BUFFER_BYTES)
            datagram.bind((address[0], bound, *address[2:]))
        except OSError:
            datagram.close()
            raise
    except OSError:
        stream.close()
        raise
    return GossipSockets(datagram, stream, bound)
