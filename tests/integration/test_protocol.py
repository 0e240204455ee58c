"""Rules of MQTT over real sockets, with raw bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from broker.codec.packets import ConnAck, PubAck
from broker.codec.properties import TOPIC_ALIAS_MAXIMUM
from broker.session.aliases import resolve_alias

if TYPE_CHECKING:
    from broker.server.lifecycle import Server
    from mqtt_client import Clients

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]

PROTOCOL_ERROR = 0x82


def port_of(server: Server) -> int:
    return int(server.listeners.addresses[0].rpartition(":")[2])


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(("qos", "first"), [(1, b"\x50"), (1, b"\x70"), (2, b"\x40"), (2, b"\x70"), (0, b"\x40")])
async def test_an_acknowledgement_of_the_wrong_kind_ends_the_connection(
    start_server: StartServer, clients: Clients, version: int, qos: int, first: bytes
) -> None:
    """QoS 0 stands for packet identifier 0. Other clients are served."""
    port = port_of(await start_server({}))
    client = await clients.connect(port, "c", version)
    client.acknowledges = False
    await client.subscribe("a", qos=2)
    publisher = await clients.connect(port, "p", version)
    await publisher.publish("a", b"1", qos)
    message = await client.message()
    client.send_bytes(first + b"\2" + message.packet_id.to_bytes(2, "big"))
    await client.wait_closed()
    assert (client.disconnect.reason_code if client.disconnect is not None else None) == (
        PROTOCOL_ERROR if version == 5 else None
    )
    await publisher.ping()


async def test_clients_of_mqtt_31_may_set_reserved_bits(start_server: StartServer, clients: Clients) -> None:
    """DUP, QoS and RETAIN of CONNECT, and the lowest Connect Flag. A client of 3.1.1 that does so is not let in."""
    port = port_of(await start_server({}))
    old = await clients.open(port, 3)
    old.send_bytes(b"\x1b\x0f\0\x06MQIsdp\x03\x03\0\0\0\1c")
    assert (await old.answer(ConnAck)).reason_code == 0
    await old.publish("a", b"1", 1)
    for data in (b"\x1b\x0d\0\x04MQTT\x04\x02\0\0\0\1d", b"\x10\x0d\0\x04MQTT\x04\x03\0\0\0\1d"):
        new = await clients.open(port, 4)
        new.send_bytes(data)
        await new.wait_closed()


async def test_topic_aliases_towards_a_client(start_server: StartServer, clients: Clients) -> None:
    """The client resolves them; the topic is sent once for each alias."""
    port = port_of(await start_server({}))
    client = await clients.connect(port, "c", properties={TOPIC_ALIAS_MAXIMUM: 2})
    await client.subscribe("#", qos=1)
    publisher = await clients.connect(port, "p")
    topics = ["one/topic", "two/topic", "one/topic", "two/topic", "three/topic", "two/topic", "one/topic"]
    for topic in topics:
        await publisher.publish(topic, b"x", 1)
    known: dict[int, bytes] = {}
    messages = await client.take(len(topics))
    assert [resolve_alias(known, m.topic_alias, m.topic, 2).decode() for m in messages] == topics
    assert [m.topic for m in messages] == [b"one/topic", b"two/topic", b"", b"", b"three/topic", b"", b"one/topic"]


async def test_old_in_flight_messages_make_room(start_server: StartServer, clients: Clients) -> None:
    """A client that acknowledges nothing loses them first."""
    server = await start_server({"mqtt": {"inflight_expiry": "1ms", "max_queued_messages": 3, "max_inflight": 1}})
    port = port_of(server)
    client = await clients.connect(port, "c")
    client.acknowledges = False
    await client.subscribe("a", qos=1)
    publisher = await clients.connect(port, "p")
    counters = server.broker.counters
    while not counters.messages_dropped["inflight_expired"]:
        await publisher.publish("a", b"x", 1)
    assert counters.messages_dropped["inflight_expired"] == 1
    first = await client.message()
    client.send(PubAck(first.packet_id))
    assert (await client.message()).packet_id != first.packet_id
