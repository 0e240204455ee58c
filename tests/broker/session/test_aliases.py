"""Topic aliases of one connection, in both directions [MQTT5 3.3.2.3.4]."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.codec import properties as props
from broker.codec.packets import Publish
from broker.codec.reason_codes import TOPIC_ALIAS_INVALID
from broker.codec.writer import encode_publish
from broker.errors import MqttError
from broker.session.aliases import ALIAS_TOPIC_MAX, ALIASES_MAX, SentAliases, resolve_alias


def test_topic_alias(world: Any) -> None:
    """An alias is of this connection and direction only; receivers get the topic [MQTT-3.3.2-7..10]."""
    receiver = world.connect("c", 4)
    receiver.subscribe(b"#")
    publisher = world.connect("p", expiry=100)
    for topic, alias in ((b"a", 1), (b"", 1), (b"b", 1), (b"", 1), (b"c", 10), (b"", 1), (b"", 10)):
        publisher.publish(topic, b"x", topic_alias=alias)
    assert [p.topic for p in receiver.take_publishes()] == [b"a", b"a", b"b", b"b", b"c", b"b", b"c"]
    publisher.cut()
    again = world.connect("p", clean_start=False)
    again.publish(b"", b"x", topic_alias=1)
    assert [p.reason_code for p in again.packets] == [0x94]


@pytest.mark.parametrize(("alias", "topic"), [(11, b"a"), (11, b""), (3, b"")])
def test_an_alias_that_is_too_large_or_unknown(alias: int, topic: bytes) -> None:
    """[MQTT-3.3.2-9]; nothing is kept of it."""
    aliases = {1: b"one"}
    with pytest.raises(MqttError) as error:
        resolve_alias(aliases, alias, topic, 10)
    assert error.value.reason_code == TOPIC_ALIAS_INVALID
    assert aliases == {1: b"one"}


# --- towards the client


def given(aliases: SentAliases, *topics: bytes) -> list[int]:
    """The alias of each topic in turn; those that have none get one. A known one is negative."""
    found = []
    for topic in topics:
        alias = -aliases.find(topic)
        if not alias:
            alias = aliases.next_alias(topic)
            if alias:
                aliases.give(topic)
        found.append(alias)
    return found


def test_the_oldest_alias_is_given_to_the_next_topic() -> None:
    aliases = SentAliases(2)
    assert given(aliases, b"one/", b"two/", b"one/", b"three", b"one/", b"two/") == [1, 2, -1, 1, 2, 1]


@pytest.mark.parametrize(("size", "alias"), [(1, 0), (3, 0), (4, 1), (ALIAS_TOPIC_MAX, 1), (ALIAS_TOPIC_MAX + 1, 0)])
def test_topics_for_which_an_alias_does_not_pay(size: int, alias: int) -> None:
    assert given(SentAliases(10), b"t" * size, b"t" * size) == [alias, -alias]


def test_aliases_are_bounded() -> None:
    """Whatever the client would take."""
    aliases = SentAliases(65535)
    topics = [b"topic/%d" % number for number in range(ALIASES_MAX + 1)]
    assert given(aliases, *topics) == [*range(1, ALIASES_MAX + 1), 1]


def resolved(packets: list[Publish], known: dict[int, bytes], maximum: int) -> list[bytes]:
    """The topics as a client reads them."""
    return [
        resolve_alias(known, packet.topic_alias, packet.topic, maximum) if packet.topic_alias else packet.topic
        for packet in packets
    ]


@pytest.mark.parametrize("seed", range(10))
def test_a_client_reads_every_topic(world: Any, seed: int) -> None:
    """Lone messages and runs, at each QoS [MQTT-3.1.2-26]."""
    rng = random.Random(seed)
    maximum = rng.choice([1, 2, 5])
    client = world.connect("c", properties={props.TOPIC_ALIAS_MAXIMUM: maximum})
    plain = world.connect("plain")
    for receiver in (client, plain):
        receiver.subscribe(b"#", identifier=rng.choice([0, 7]))
    publisher = world.connect("p")
    topics = [b"t" * rng.randrange(1, 20) + b"/%d" % number for number in range(6)]
    for _ in range(100):
        topic = rng.choice(topics)
        if rng.random() < 0.3:
            packet = encode_publish(5, topic, b"x", 0, False, False, 0, rng.choice([b"", b"\x26\0\1k\0\1v"]))
            publisher.send_bytes(packet * rng.randrange(1, 4))
        else:
            publisher.publish(topic, bytes(rng.randrange(12)), rng.randrange(3), retain=rng.random() < 0.2)
    received = client.take_publishes()
    expected = plain.take_publishes()
    assert [(p.payload, p.qos, p.properties) for p in received] == [(p.payload, p.qos, p.properties) for p in expected]
    assert resolved(received, {}, maximum) == [p.topic for p in expected]
    assert any(not packet.topic for packet in received)


@pytest.mark.parametrize(
    ("size", "received"),
    [(29, []), (30, [(b"topic", 0)] * 2), (32, [(b"topic", 0)] * 2), (33, [(b"topic", 1), (b"", 1)])],
)
def test_maximum_packet_size_of_the_client(world: Any, size: int, received: list[tuple[bytes, int]]) -> None:
    """A PUBLISH that only its alias makes too large has none; the client does not know the alias then [MQTT-3.1.2-24]."""
    client = world.connect("c", properties={props.TOPIC_ALIAS_MAXIMUM: 5, props.MAXIMUM_PACKET_SIZE: size})
    client.subscribe(b"#")
    for _ in range(2):
        world.publish(b"topic", bytes(20))
    assert [(p.topic, p.topic_alias) for p in client.take_publishes()] == received


def test_a_run_has_the_topic_at_most_once(world: Any) -> None:
    client = world.connect("c", properties={props.TOPIC_ALIAS_MAXIMUM: 1})
    client.subscribe(b"#")
    for _ in range(2):
        world.connect("p").send_bytes(b"\x30\x0a\0\x06abcdef\0x" * 3)
    assert [p.topic for p in client.take_publishes()] == [b"abcdef"] + [b""] * 5


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_without_topic_alias_maximum_gets_none(world: Any, version: int) -> None:
    """It must not [MQTT-3.1.2-27]."""
    client = world.connect("c", version)
    client.subscribe(b"#")
    for qos in (0, 1, 2):
        world.publish(b"topic", b"x", qos=qos)
    assert [(p.topic, p.topic_alias) for p in client.take_publishes()] == [(b"topic", 0)] * 3


def test_aliases_end_with_the_connection(world: Any) -> None:
    """[MQTT-3.3.2-7]: what is sent again has its topic."""
    properties = {props.TOPIC_ALIAS_MAXIMUM: 5}
    client = world.connect("c", expiry=100, properties=properties, auto=False)
    client.subscribe(b"#")
    for _ in range(2):
        world.publish(b"topic", b"x", qos=1)
    assert [(p.topic, p.topic_alias) for p in client.take_publishes()] == [(b"topic", 1), (b"", 1)]
    client.cut()
    again = world.connect("c", clean_start=False, properties=properties)
    assert [(p.topic, p.topic_alias, p.dup) for p in again.take_publishes()] == [(b"topic", 1, True), (b"", 1, True)]
