"""paho-mqtt, aiomqtt, amqtt and MQTT.js with a node, over real sockets. Each client has a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from certificates import Authority
from client_library import Libraries, LibraryClient, Received
from node_process import SOON, free_port
from waiting import DEADLINE, eventually

if TYPE_CHECKING:
    from node_process import Node, Nodes

VERSIONS: Final = {"paho": (3, 4, 5), "aiomqtt": (4, 5), "amqtt": (4,), "mqttjs": (3, 4, 5)}
KINDS: Final = [(library, version) for library, versions in VERSIONS.items() for version in versions]
MEGABYTE: Final = 2**20

# The compiled form has the newest version of each; mosquitto's clients meet it with all versions.
each_kind = pytest.mark.parametrize(
    ("library", "version"),
    [
        pytest.param(library, version, marks=[] if version == VERSIONS[library][-1] else pytest.mark.slow)
        for library, version in KINDS
    ],
)


@pytest.fixture
async def libraries() -> AsyncIterator[Libraries]:
    made = Libraries(pytest.skip)
    yield made
    await made.close()


def persistent(client: LibraryClient) -> dict[str, Any]:
    """The arguments of `connect` for a session that outlives the connection."""
    return {"clean": False, **({"session_expiry": 600} if client.version == 5 else {})}


@pytest.mark.one_process(SOON)
@each_kind
async def test_messages(nodes: Nodes, libraries: Libraries, library: str, version: int) -> None:
    """Each QoS, an unsubscription, a megabyte, retained messages; in MQTT 5 properties and topic aliases."""
    node = await nodes.start({"log": {"level": "debug", "dump_packet": True}})
    subscriber = await libraries.connected(library, version, node.port, "subscriber")
    publisher = await libraries.connected(library, version, node.port, "publisher")
    await each_qos_arrives(publisher, subscriber)
    await unsubscribed_topics_stay_away(publisher, subscriber)
    await a_large_payload_arrives(publisher, subscriber)
    await retained_messages_arrive(publisher, subscriber)
    if version == 5:
        await properties_arrive(publisher, subscriber)
        await topic_aliases_arrive(node, publisher, subscriber)


async def each_qos_arrives(publisher: LibraryClient, subscriber: LibraryClient) -> None:
    for granted in (0, 1, 2):
        await subscriber.subscribe(f"to/{granted}", qos=granted)
        for qos in (0, 1, 2):
            await publisher.publish(f"to/{granted}", b"%d" % qos, qos)
            expected = Received(f"to/{granted}", b"%d" % qos, min(qos, granted), False, {})
            assert await subscriber.message() == expected


async def unsubscribed_topics_stay_away(publisher: LibraryClient, subscriber: LibraryClient) -> None:
    await subscriber.subscribe("a", "b", qos=1)
    await subscriber.unsubscribe("a")
    await publisher.publish("a", b"not received", 1)
    await publisher.publish("b", b"received", 1)
    assert (await subscriber.message()).payload == b"received"


async def a_large_payload_arrives(publisher: LibraryClient, subscriber: LibraryClient) -> None:
    await subscriber.subscribe("large", qos=2)
    payload = bytes(range(256)) * (MEGABYTE // 256)
    for qos in (0, 1, 2):
        await publisher.publish("large", payload, qos)
        assert await subscriber.message() == Received("large", payload, qos, False, {})


async def retained_messages_arrive(publisher: LibraryClient, subscriber: LibraryClient) -> None:
    await publisher.publish("r/1", b"first", 1, retain=True)
    await publisher.publish("r/1", b"kept", 1, retain=True)
    await publisher.publish("r/2", b"deleted", 1, retain=True)
    await publisher.publish("r/2", b"", 1, retain=True)
    await subscriber.subscribe("r/#", qos=1)
    assert await subscriber.message() == Received("r/1", b"kept", 1, True, {})
    await publisher.publish("r/2", b"live", 1, retain=True)
    assert await subscriber.message() == Received("r/2", b"live", 1, False, {})


async def properties_arrive(publisher: LibraryClient, subscriber: LibraryClient) -> None:
    await subscriber.subscribe("q/+", qos=1, identifier=42)
    properties: dict[str, Any] = {
        "content_type": "text/plain",
        "response_topic": "reply/here",
        "correlation_data": "c-17",
        "user_properties": [["first", "1"], ["second", "2"]],
    }
    await publisher.publish("q/1", b"body", 1, **properties, message_expiry=1000)
    received = await subscriber.message()
    assert 0 < received.properties.pop("message_expiry") <= 1000
    assert received.properties == {**properties, "subscription_identifiers": [42]}


async def topic_aliases_arrive(node: Node, publisher: LibraryClient, subscriber: LibraryClient) -> None:
    """MQTT.js gives and resolves them by itself, both ways; with QoS 2 it hands such messages over without a topic.
    The others send what the test says, and take none."""
    is_automatic = publisher.library == "mqttjs"
    await subscriber.disconnect()
    limit: dict[str, Any] = {"topic_alias_maximum": 10} if is_automatic else {}
    await subscriber.connect(node.port, "subscriber", **limit)
    await subscriber.subscribe("aliased/#", qos=1)
    before = len(node.log())
    aliases: dict[str, Any] = {} if is_automatic else {"topic_alias": 3}
    for number in range(5):
        topic = "aliased/topic" if number == 0 or is_automatic else ""
        await publisher.publish(topic, b"%d" % number, 1, **aliases)
    found = [await subscriber.message() for _ in range(5)]
    assert [(message.topic, message.payload) for message in found] == [
        ("aliased/topic", b"%d" % number) for number in range(5)
    ]
    lines = [line for line in node.log()[before:].splitlines() if "topic_alias=" in line]
    assert sum("received" in line for line in lines) == 5
    assert sum("sent" in line for line in lines) == (5 if is_automatic else 0)


@each_kind
async def test_sessions_and_wills(nodes: Nodes, libraries: Libraries, library: str, version: int) -> None:
    """A session is resumed, also while a message is on its way: the first client stands still and cannot acknowledge it. A
    library hands a QoS 2 message over when its PUBREL has come, so there is one order for each QoS. A client that is killed
    has a will, one that says goodbye has none, and a second one of its name takes over."""
    node = await nodes.start()
    publisher = await libraries.connected(library, version, node.port, "publisher")
    await publisher.subscribe("wills/#", qos=1)
    will = {"payload": "died", "qos": 1, "retain": False, "delay": 0}
    first = await libraries.start(library, version)
    killed = {"topic": "wills/killed", **will}
    assert await first.connect(node.port, "keeper", will=killed, **persistent(first)) in (False, None)
    await first.subscribe("p/#", qos=2)
    await first.stand_still()
    await publisher.publish("p/1", b"on its way", 1)
    await first.stop()
    assert await publisher.message() == Received("wills/killed", b"died", 1, False, {})
    payloads = [b"%d" % number for number in range(50)]
    for number, payload in enumerate(payloads):
        await publisher.publish("p/1", payload, 1 + number % 2)
    again = await libraries.start(library, version)
    polite = {"topic": "wills/polite", **will}
    assert await again.connect(node.port, "keeper", will=polite, **persistent(again)) in (True, None)
    received = [await again.message() for _ in range(51)]
    assert [message.payload for message in received if message.qos == 1] == [b"on its way", *payloads[::2]]
    assert [message.payload for message in received if message.qos == 2] == payloads[1::2]
    await again.disconnect()
    second = await libraries.start(library, version)
    assert await second.connect(node.port, "keeper") in (False, None)
    await second.subscribe("t", qos=1)
    await publisher.publish("t", b"mine", 1)
    assert (await second.message()).payload == b"mine"
    assert publisher.messages.empty()
    third = await libraries.connected(library, version, node.port, "keeper")
    if library == "amqtt":  # it tells its log only
        await node.logged("disconnected client_id=keeper")
    else:
        async with asyncio.timeout(DEADLINE):
            await second.ended.get()
    await third.subscribe("t", qos=1)
    await publisher.publish("t", b"of the other one", 1)
    assert (await third.message()).payload == b"of the other one"


@pytest.mark.parametrize(("library", "version"), [(library, versions[-1]) for library, versions in VERSIONS.items()])
async def test_other_transports(nodes: Nodes, libraries: Libraries, tmp_path: Path, library: str, version: int) -> None:
    authority = Authority(tmp_path / "certificates")
    pair = authority.pair("localhost")
    keys = {"tls": {"tls": {"cert": pair.cert, "key": pair.key}}, "ws": {"websocket": {"path": "/mqtt"}}}
    listeners: dict[str, dict[str, Any]] = {"tls": keys["tls"], "ws": keys["ws"], "wss": keys["tls"] | keys["ws"]}
    ports = {transport: free_port() for transport in listeners}
    for transport, port in ports.items():
        listeners[transport] = {"address": f"127.0.0.1:{port}", **listeners[transport]}
    await nodes.start({"listeners": list(listeners.values())})
    payload = bytes(range(256)) * (MEGABYTE // 512)  # amqtt takes frames of a megabyte, with the packet's header
    client = await libraries.start(library, version)
    for transport, port in ports.items():
        cafile = "" if transport == "ws" else authority.cacert
        await client.connect(port, "client", transport=transport, cafile=cafile)
        await client.subscribe("large", qos=2)
        for qos in (0, 1, 2):
            await client.publish("large", payload, qos)
            assert await client.message() == Received("large", payload, qos, False, {}), transport
        await client.disconnect()


async def test_every_library_reaches_every_other_and_pings(nodes: Nodes, libraries: Libraries) -> None:
    """With a Keep Alive of a second, all libraries at the same time. A process that stands still is disconnected, and its will
    published."""
    node = await nodes.start({"log": {"level": "debug", "dump_packet": True}})
    watcher = await libraries.connected("paho", 5, node.port, "watcher")
    await watcher.subscribe("wills", qos=1)
    clients: dict[str, LibraryClient] = {}
    for library, version in KINDS:
        name = f"idle-{library}-{version}"
        will = {"topic": "wills", "payload": name, "qos": 1, "retain": False, "delay": 0}
        clients[name] = await libraries.connected(library, version, node.port, name, keep_alive=1, will=will)
        await clients[name].subscribe("all/#", qos=2)
    for name, publisher in clients.items():
        for qos in (0, 1, 2):
            await publisher.publish(f"all/{name}", b"%d" % qos, qos)
            for client in clients.values():
                assert await client.message() == Received(f"all/{name}", b"%d" % qos, qos, False, {})

    def has_pinged(name: str) -> bool:
        return sum("packet=PINGREQ" in line and f"client_id={name}" in line for line in node.log().splitlines()) >= 3

    for name in clients:
        await eventually(lambda name=name: has_pinged(name), f"three PINGREQ of {name}")
    await watcher.publish("all/t", b"still there")
    for client in clients.values():
        assert (await client.message()).payload == b"still there"
        assert client.ended.empty()
    for client in clients.values():
        await client.stand_still()
    assert {(await watcher.message()).payload.decode() for _ in clients} == set(clients)
