"""Packets as traces see them: topics behind aliases."""

from __future__ import annotations

import pytest

from broker.codec.packets import Packet, PubAck, Publish
from broker.server.traces import resolved_topic


@pytest.mark.parametrize(
    ("packet", "topic", "known_then"),
    [
        (Publish(b"a", b"x"), b"a", {1: b"old"}),
        (Publish(b"new", b"x", topic_alias=1), b"new", {1: b"new"}),
        (Publish(b"", b"x", topic_alias=1), b"old", {1: b"old"}),
        (Publish(b"", b"x", topic_alias=2), b"", {1: b"old"}),
        (PubAck(1), b"", {1: b"old"}),
    ],
)
def test_the_topic_of_a_packet(packet: Packet, topic: bytes, known_then: dict[int, bytes]) -> None:
    known = {1: b"old"}
    assert resolved_topic(packet, known) == topic
    assert known == known_then
    if isinstance(packet, Publish):
        assert packet.topic == topic
