"""Clients that do not read."""

from __future__ import annotations

import socket

from broker.codec.packets import Connect, Subscribe, SubscribeFilter
from broker.codec.writer import encode_packet


def connect_packet(client_id: str) -> bytes:
    return encode_packet(Connect(client_id, 5, True), 5)


def stuck_socket(port: int, data: bytes) -> socket.socket:
    """A client that sends this and then never reads; its kernel buffer is small."""
    stuck = socket.socket()
    stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stuck.connect(("127.0.0.1", port))
    stuck.sendall(data)
    return stuck


def subscriber(client_id: str, topic_filter: bytes, qos: int) -> bytes:
    return connect_packet(client_id) + encode_packet(Subscribe(1, [SubscribeFilter(topic_filter, qos)]), 5)
