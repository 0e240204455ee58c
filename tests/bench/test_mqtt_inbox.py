"""Packets are found in a byte stream, however it is cut."""

from __future__ import annotations

import socket

import pytest
from mqtt_inbox import PUBLISH, SUBACK, Inbox, topic_and_payload
from mqtt_load import one_publish, packet

LONG = one_publish("a/b", 0, b"x" * 300)[0]
STREAM = LONG + packet(0x90, b"\0\1\0") + one_publish("c", 0, b"")[0]


@pytest.mark.parametrize("size", [1, 2, 3, 100, len(LONG), len(LONG) + 1, len(STREAM)])
def test_packets_come_whole_and_in_order(size: int) -> None:
    sender, receiver = socket.socketpair()
    with sender, receiver:
        inbox = Inbox(receiver)
        found = []
        for at in range(0, len(STREAM), size):
            sender.sendall(STREAM[at : at + size])
            found += inbox.packets(1.0)
        assert [kind for kind, _ in found] == [PUBLISH, SUBACK, PUBLISH]
        assert [topic_and_payload(found[0][1]), topic_and_payload(found[2][1])] == [("a/b", b"x" * 300), ("c", b"")]
        assert inbox.packets(0.0) == []
        sender.close()
        assert inbox.packets(1.0) == []
        assert inbox.closed
