"""Addresses that workers share, where the kernel has not all families."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

import pytest

from broker.server.shared_sockets import bound, stream_addresses

NO_SIX = OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))


def without_six(monkeypatch: pytest.MonkeyPatch) -> None:
    make = socket.socket

    def made(family: int, *more: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise NO_SIX
        return make(family, *more)

    monkeypatch.setattr(socket, "socket", made)


def test_every_interface_is_that_of_ipv4_where_ipv6_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda *_, **__: [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::", 1, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("0.0.0.0", 1)),
        ],
    )
    without_six(monkeypatch)
    assert stream_addresses("", 1) == [(socket.AF_INET, ("0.0.0.0", 1))]


def test_an_address_of_ipv6_alone_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    without_six(monkeypatch)
    ((family, address),) = stream_addresses("::1", 1)
    with pytest.raises(OSError, match=os.strerror(errno.EAFNOSUPPORT)):
        bound(family, address, True)


def test_workers_share_an_address_and_others_do_not() -> None:
    with bound(socket.AF_INET, ("127.0.0.1", 0), True) as first:
        address = first.getsockname()
        bound(socket.AF_INET, address, True).close()
        first.listen()
        with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
            bound(socket.AF_INET, address, False)
