"""Rules of MQTT over real sockets, with raw bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

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
