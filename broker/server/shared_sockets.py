"""TCP sockets that all workers of a node bind to the same address."""

from __future__ import annotations

import errno
import socket
from typing import Any


def stream_addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, Any]]:
    """Return (family, address) for each address of a listener; host "" means every interface. A family that the kernel does
    not have (IPv6 is off) is left out where there is another one. Raises OSError."""
    infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    found: list[tuple[socket.AddressFamily, Any]] = list(dict.fromkeys((info[0], info[4]) for info in infos))
    return [one for one in found if _has(one[0])] or found


def _has(family: socket.AddressFamily) -> bool:
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT:
            return False
        raise
    return True


def bound(family: socket.AddressFamily, address: Any, is_shared: bool) -> socket.socket:
    """Return a socket that is bound as those of the workers are. Raises OSError."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock
