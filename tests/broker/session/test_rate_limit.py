"""A client above its rates is not read for a while, and nothing of it is lost."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.codec.packets import PingReq, PingResp, PubAck, Publish
from broker.codec.writer import encode_packet
from broker.config.settings_mqtt import MqttSettings
from broker.context import Context
from broker.publisher import Publisher
from broker.session.rate_limit import RateLimit
from broker.timers import SLOT_SECONDS


def make(messages_rate: int, bytes_rate: int) -> tuple[Context, Publisher, RateLimit]:
    context = Context(MqttSettings(), random.Random(1), 0.0)
    publisher = Publisher(None)
    return context, publisher, RateLimit(context, publisher, messages_rate, bytes_rate, 0.0)


@pytest.mark.parametrize(
    ("messages_rate", "bytes_rate", "messages", "size", "until"),
    [
        (10, 0, 10, 10_000, 0.0),
        (10, 0, 30, 10_000, 2.0),
        (0, 1000, 30, 1000, 0.0),
        (0, 1000, 30, 2500, 1.5),
        (10, 1000, 20, 4000, 3.0),
        (10, 1000, 50, 2000, 4.0),
    ],
)
def test_the_pause_is_as_long_as_the_overdraft(
    messages_rate: int, bytes_rate: int, messages: int, size: int, until: float
) -> None:
    context, publisher, limit = make(messages_rate, bytes_rate)
    limit.charge(messages, size, 0.0)
    assert (publisher.held, context.counters.publishers_slowed) == ((1, 1) if until else (0, 0))
    if until:
        assert limit.deadline() == pytest.approx(until)
        context.timers.handle_timeout(until - 0.01)
        assert publisher.held == 1
        context.timers.handle_timeout(until + SLOT_SECONDS)
        assert publisher.held == 0
        assert len(context.timers) == 0


def test_input_in_the_pause_makes_it_longer() -> None:
    context, publisher, limit = make(0, 100)
    limit.charge(0, 200, 0.0)
    limit.charge(0, 300, 0.5)
    assert (publisher.held, context.counters.publishers_slowed) == (1, 1)
    assert limit.deadline() == pytest.approx(2.0)
    context.timers.handle_timeout(1.5)
    assert publisher.held == 1
    context.timers.handle_timeout(2.5)
    assert publisher.held == 0


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_client_is_slowed_and_all_of_its_messages_arrive(world: Any, version: int, qos: int) -> None:
    """Only PUBLISH counts as a message: PINGREQ does not."""
    receiver = world.connect("receiver", version=version)
    receiver.subscribe(b"t", qos=2)
    receiver.take_packets()
    client = world.connect("client", version=version)
    client.connection.rate_limit = RateLimit(world.broker, client.connection, 10, 0, world.now)
    for _ in range(30):
        client.send(PingReq())
    assert client.connection.held == 0
    client.take_packets()
    client.auto = True
    count = 25
    publishes = [Publish(b"t", b"%d" % number, qos, packet_id=number + 1 if qos else 0) for number in range(count)]
    client.send_bytes(b"".join(encode_packet(publish, version) for publish in publishes))
    client.send(PingReq())
    assert client.connection.held == 1
    assert world.broker.counters.publishers_slowed == 1
    assert PingResp() not in client.packets, "it waits behind the pause"
    world.advance(1.4)
    assert client.connection.held == 1
    world.advance(1.0)
    assert client.connection.held == 0
    assert PingResp() in client.packets
    payloads = [packet.payload for packet in receiver.packets if isinstance(packet, Publish)]
    assert payloads == [b"%d" % number for number in range(count)]
    if qos == 1:
        assert len([packet for packet in client.packets if isinstance(packet, PubAck)]) == count


def test_a_connection_that_ends_in_its_pause_leaves_no_timer(world: Any) -> None:
    client = world.connect("client", version=4)
    client.connection.rate_limit = RateLimit(world.broker, client.connection, 0, 10, world.now)
    client.send_bytes(encode_packet(Publish(b"t", b"x" * 1000), 4))
    assert client.connection.held == 1
    world.broker.connection_lost(client.connection, world.now)
    world.advance(200.0)
    assert len(world.broker.timers) == 0
