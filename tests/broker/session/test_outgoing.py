"""The PUBLISH for one receiver, and the encodings that receivers share."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec import writer
from broker.codec.packets import Publish
from broker.codec.reader import PacketReader
from broker.message import NEVER, Message
from broker.session.outgoing import EXPIRY_MAX, encode_for

BLOCK = b"\x26\0\x01k\0\x01v"


def decoded(data: bytes, version: int) -> Publish:
    (packet,) = PacketReader(version).receive_data(data)
    assert isinstance(packet, Publish)
    return packet


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("dup", [False, True])
@pytest.mark.parametrize("as_received", [False, True])
def test_each_shape(version: int, qos: int, retain: bool, dup: bool, as_received: bool) -> None:
    """Whether the message has its packet as it was received (QoS 1 without flags), or nothing."""
    dup = dup and qos > 0
    message = Message(b"a/b", b"payload", 1, False, b"" if as_received else BLOCK)
    if as_received:
        message.head = b"\x32\x10\0\x03a/b"
        message.tail = b"\0payload"
        message.head_version = 5
        if version < 5:
            message.head = b"\x32\x0e\0\x03a/b"
            message.tail = b"payload"
            message.head_version = 4
        message.head = message.head[:1] + bytes([5 + 2 + len(message.tail)]) + message.head[2:]
    for packet_id in (1, 65535):
        packet = decoded(encode_for(message, version, qos, retain, dup, packet_id, (), 0.0), version)
        assert (packet.topic, packet.payload) == (b"a/b", b"payload")
        assert (packet.qos, packet.retain, packet.dup) == (qos, retain, dup)
        assert packet.packet_id == (packet_id if qos else 0)
        assert packet.properties == (BLOCK if version == 5 and not as_received else b"")


def test_receivers_share_encodings_and_nothing_of_their_own() -> None:
    message = Message(b"t", b"x", 2, False)
    first = encode_for(message, 5, 0, False, False, 0, (), 0.0)
    assert encode_for(message, 5, 0, False, False, 0, (), 0.0) is first
    one = decoded(encode_for(message, 5, 2, False, False, 7, (300,), 0.0), 5)
    other = decoded(encode_for(message, 5, 2, False, False, 8, (), 0.0), 5)
    assert (one.packet_id, one.subscription_identifiers) == (7, (300,))
    assert (other.packet_id, other.subscription_identifiers) == (8, ())


@pytest.mark.parametrize(
    ("left", "sent"), [(10.0, 10), (9.1, 10), (9.0, 9), (0.5, 1), (-5.0, 0), (2.0**33, EXPIRY_MAX), (NEVER, -1)]
)
def test_message_expiry_is_the_rest_of_its_time(left: float, sent: int) -> None:
    """[MQTT-3.3.2-6], in whole seconds, rounded up; MQTT 3 has no such property."""
    now = 1000.0
    message = Message(b"t", b"x", 1, False, b"", now + left)
    assert decoded(encode_for(message, 5, 1, False, False, 1, (), now), 5).message_expiry_interval == sent
    assert encode_for(message, 4, 1, False, False, 1, (), now) == b"\x32\x06\0\x01t\0\x01x"


@pytest.mark.interpreted
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_too_large_for_one_receiver_is_its_own_loss(
    world: Any, monkeypatch: pytest.MonkeyPatch, qos: int
) -> None:
    """[MQTT-3.1.2-25]: a packet near the largest Remaining Length grows by the identifiers of a receiver, and by the empty
    properties of MQTT 5."""
    monkeypatch.setattr(writer, "VARINT_MAX", 200)
    first = world.connect("first")
    first.subscribe(b"t", qos=2, identifier=300)
    second = world.connect("second")
    second.subscribe(b"t", qos=2)
    third = world.connect("third", 4)
    third.subscribe(b"t", qos=2)
    publisher = world.connect("p", 4)
    for size in (200, 199, 195):
        publisher.publish(b"t", bytes(size - 3 - (2 if qos else 0)), qos)
    assert not publisher.closed
    counts = [len(client.take_publishes()) for client in (first, second, third)]
    assert counts == [1, 2, 3]
    assert world.broker.counters.messages_dropped["packet_too_large"] == 3
