"""Topics below $SYS of a broker in virtual time."""

from __future__ import annotations

import math
from typing import Any

import pytest

from broker.hooks import Forwarder, Peer
from broker.message import Message
from broker.metrics.broker_metrics import broker_numbers
from broker.metrics.sys_topics import Loads, SysTopics


def texts(topics: SysTopics, world: Any) -> dict[str, str]:
    """The topics that changed, without the prefix."""
    return {
        message.topic.decode().removeprefix("$SYS/broker/"): message.payload.decode()
        for message in changed(topics, world, world.now)
    }


def changed(topics: SysTopics, world: Any, now: float) -> list[Message]:
    return topics.changed(*broker_numbers(world.broker), len(world.broker.retained), now)


def test_totals_follow_the_clients_and_unchanged_topics_are_left_out(make_world: Any) -> None:
    world = make_world()
    topics = SysTopics("gmqttd version 1.2", world.now)
    first = texts(topics, world)
    assert (first["version"], first["uptime"], first["clients/total"]) == ("gmqttd version 1.2", "0 seconds", "0")
    assert texts(topics, world) == {}
    away = world.connect("away", expiry=100)
    away.subscribe(b"t")
    away.cut()
    publisher = world.connect("publisher")
    publisher.publish(b"t", b"x", qos=1)
    publisher.publish(b"kept", b"x", retain=True)
    world.advance(10.0)
    second = texts(topics, world)
    assert second["uptime"] == "10 seconds"
    assert (second["clients/total"], second["clients/connected"], second["clients/inactive"]) == ("2", "1", "1")
    assert (second["clients/maximum"], second["subscriptions/count"]) == ("1", "1")
    assert (second["retained messages/count"], second["store/messages/count"]) == ("1", "2")
    assert (second["messages/received"], second["publish/messages/received"]) == ("5", "2")
    assert "version" not in second
    assert float(second["load/publish/received/1min"]) == pytest.approx(12 * (1 - math.exp(-1 / 6)), abs=0.01)


def test_loads_approach_a_steady_rate_and_forget_it() -> None:
    loads = Loads(100)
    total = 100
    for _ in range(90):
        total += 50
        averages = loads.update(total, 10.0)
    assert averages[0] == pytest.approx(300.0, abs=0.01)
    assert averages[2] == pytest.approx(300.0 * (1 - math.exp(-1)), abs=0.01)
    for _ in range(30):
        averages = loads.update(total, 10.0)
    assert averages[0] == pytest.approx(300.0 * math.exp(-5), abs=0.5)


def test_subscribers_of_this_node_get_them_and_no_tap_or_other_node(make_world: Any) -> None:
    world = make_world()
    forwarded: list[bytes] = []

    class Nodes(Forwarder):
        def peers(self) -> list[Peer]:
            forwarded.append(b"a retained message")
            return []

    world.broker.forwarder = Nodes()
    everything = world.connect("everything")
    everything.subscribe(b"#")
    topics = SysTopics("v", world.now)
    for message in changed(topics, world, world.now):
        world.broker.router.publish_here(message, world.now)
    world.flush()
    assert everything.take_publishes() == []
    operator = world.connect("operator")
    operator.subscribe(b"$SYS/broker/clients/#")
    (connected,) = [found for found in operator.take_publishes() if found.topic == b"$SYS/broker/clients/connected"]
    assert (connected.payload, connected.retain) == (b"1", True)
    for message in changed(topics, world, world.now + 1):
        world.broker.router.publish_here(message, world.now)
    world.flush()
    assert {found.topic: found.payload for found in operator.take_publishes()}[b"$SYS/broker/clients/connected"] == b"2"
    assert forwarded == []
    assert world.broker.counters.messages_to_peers == 0
