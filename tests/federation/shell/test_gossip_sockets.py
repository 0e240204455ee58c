"""The sockets of gossip: one port for UDP and TCP."""

from __future__ import annotations

import socket

import pytest

from federation.shell.gossip_sockets import bind_gossip
from node_process import free_port


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", ""])
def test_both_sockets_have_one_free_port(host: str) -> None:
    sockets = bind_gossip(host, 0)
    try:
        assert sockets.datagram.getsockname()[1] == sockets.stream.getsockname()[1] == sockets.port
        with socket.create_connection(("127.0.0.1", sockets.port), timeout=5):
            pass
    finally:
        sockets.close()
    bind_gossip(host, sockets.port).close()  # the port is free again


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_in_use_is_named(kind: socket.SocketKind) -> None:
    """The other socket of the port is closed again."""
    with socket.socket(socket.AF_INET, kind) as used:
        port = (
            free_port()
        )  # of both kinds; an outgoing connection could have the other kind of a port that the kernel chooses
        used.bind(("127.0.0.1", port))
        if kind == socket.SOCK_STREAM:
            used.listen()
        with pytest.raises(OSError, match=rf"gossip cannot listen on 127\.0\.0\.1:{port}: Address already in use"):
            bind_gossip("127.0.0.1", port)
    bind_gossip("127.0.0.1", port).close()


def test_a_host_that_is_not_of_this_machine_is_named() -> None:
    with pytest.raises(OSError, match=r"gossip cannot listen on 192\.0\.2\.1:8902: "):
        bind_gossip("192.0.2.1", 8902)
