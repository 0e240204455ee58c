"""paho-mqtt, aiomqtt, amqtt and MQTT.js with a node, over real sockets. Each client has a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from certificates import Authority
from client_library import Libraries, LibraryClient, Received
from node_process import free_port
from waiting import DEADLINE, eventually

if TYPE_CHECKING:
    from node_process import Nodes

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
each_kind_of_5 = pytest.mark.parametrize("library", [library for library, version in KINDS if version == 5])


@pytest.fixture
async def libraries() -> AsyncIterator[Libraries]:
    made = Libraries(pytest.skip)
    yield made
    await made.close()


def persistent(client: LibraryClient) -> dict[str, Any]:
    """The arguments of `connect` for a session that outlives the connection."""
    return {"clean": False, **({"session_expiry": 600} if client.version == 5 else {})}


@each_kind
async def test_each_qos_arrives(nodes: Nodes, libraries: Libraries, library: str, version: int) -> None:
    node = await nodes.start()
    subscriber = await libraries.connected(library, version, node.port, "subscriber")
    publisher = await libraries.connected(library, version, node.port, "publisher")
    for granted in (0, 1, 2):
        await subscriber.subscribe(f"to/{granted}", qos=granted)
        for qos in (0, 1, 2):
            await publisher.publish(f"to/{granted}", b"%d" % qos, qos)
            expected = Received(f"to/{granted}", b"%d" % qos, min(qos, granted), False, {})
            assert await subscriber.message() == expected


@each_kind
async def test_unsubscribe(nodes: Nodes, libraries: Libraries, library: str, version: int) -> None:
    node = await nodes.start()
    client = await libraries.connected(library, version, node.port, "client")
    await client.subscribe("a", "b", qos=1)
    await client.unsubscribe("a")
    await client.publish("a", b"not received", 1)
    await client.publish("b", b"received", 1)
    assert (await client.message()).payload == b"received"


@each_kind
async def test_retained(nodes: Nodes, libraries: Libraries, library: str, version: int) -> None:
    node = await nodes.start()
    publisher = await libraries.connected(library, version, node.port, "publisher")
    await publisher.publish("r/1", b"first", 1, retain=True)
    await publisher.publish("r/1", b"kept", 1, retain=True)
    await publisher.publish("r/2", b"deleted", 1, retain=True)
    await publisher.publish("r/2", b"", 1, retain=True)
    subscriber = await libraries.connected(library, version, node.port, "subscriber")
    await subscriber.subscribe("r/#", qos=1)
    assert await subscriber.message() == Received("r/1", b"kept", 1, True, {})
    await publisher.publish("r/2", b"live", 1, retain=True)
    assert await subscriber.message() == Received("r/2", b"live", 1, False, {})


@each_kind
async def test_the_will_of_a_killed_client(nodes: Nodes, libraries: Libraries, library: str, version: int) -> None:
    node = await nodes.start()
    watcher = await libraries.connected(library, version, node.port, "watcher")
    await watcher.subscribe("wills/#", qos=1)
    will = {"payload": "died", "qos": 1, "retain": False, "delay": 0}
    polite = await libraries.connected(library, version, node.port, "polite", will={"topic": "wills/polite", **will})
    await polite.disconnect()
    killed = await libraries.connected(library, version, node.port, "killed", will={"topic": "wills/killed", **will})
    await killed.stop()
    assert await watcher.message() == Received("wills/killed", b"died", 1, False, {})
    assert watcher.messages.empty()


@each_kind
async def test_a_session_is_resumed(nodes: Nodes, libraries: Libraries, library: str, version: int) -> None:
    """Also while a message is on its way: the first client stands still and cannot acknowledge it. A library hands a QoS 2
    message over when its PUBREL has come, so there is one order for each QoS."""
    node = await nodes.start()
    publisher = await libraries.connected(library, version, node.port, "publisher")
    first = await libraries.start(library, version)
    assert await first.connect(node.port, "keeper", **persistent(first)) in (False, None)
    await first.subscribe("p/#", qos=2)
    await first.stand_still()
    await publisher.publish("p/1", b"on its way", 1)
    await first.stop()
    payloads = [b"%d" % number for number in range(50)]
    for number, payload in enumerate(payloads):
        await publisher.publish("p/1", payload, 1 + number % 2)
    again = await libraries.start(library, version)
    assert await again.connect(node.port, "keeper", **persistent(again)) in (True, None)
    received = [await again.message() for _ in range(51)]
    assert [message.payload for message in received if message.qos == 1] == [b"on its way", *payloads[::2]]
    assert [message.payload for message in received if message.qos == 2] == payloads[1::2]
    await again.disconnect()
    clean = await libraries.start(library, version)
    assert await clean.connect(node.port, "keeper") in (False, None)


@each_kind
async def test_a_large_payload(nodes: Nodes, libraries: Libraries, library: str, version: int) -> None:
    node = await nodes.start()
    client = await libraries.connected(library, version, node.port, "client")
    await client.subscribe("large", qos=2)
    payload = bytes(range(256)) * (MEGABYTE // 256)
    for qos in (0, 1, 2):
        await client.publish("large", payload, qos)
        assert await client.message() == Received("large", payload, qos, False, {})


async def test_pings_keep_idle_clients(nodes: Nodes, libraries: Libraries) -> None:
    """With a Keep Alive of a second, all libraries at the same time. A process that stands still is disconnected, and its will
    published."""
    node = await nodes.start({"log": {"level": "debug", "dump_packet": True}})
    watcher = await libraries.connected("paho", 5, node.port, "watcher")
    await watcher.subscribe("wills", qos=1)
    idle: dict[str, LibraryClient] = {}
    for library, version in KINDS:
        name = f"idle-{library}-{version}"
        will = {"topic": "wills", "payload": name, "qos": 1, "retain": False, "delay": 0}
        idle[name] = await libraries.connected(library, version, node.port, name, keep_alive=1, will=will)
        await idle[name].subscribe("t")

    def has_pinged(name: str) -> bool:
        return sum("packet=PINGREQ" in line and f"client_id={name}" in line for line in node.log().splitlines()) >= 3

    for name in idle:
        await eventually(lambda name=name: has_pinged(name), f"three PINGREQ of {name}")
    await watcher.publish("t", b"still there")
    for client in idle.values():
        assert (await client.message()).payload == b"still there"
        assert client.ended.empty()
    for client in idle.values():
        await client.stand_still()
    assert {(await watcher.message()).payload.decode() for _ in idle} == set(idle)


@each_kind
async def test_a_second_client_takes_over(nodes: Nodes, libraries: Libraries, library: str, version: int) -> None:
    node = await nodes.start()
    first = await libraries.connected(library, version, node.port, "twin")
    second = await libraries.connected(library, version, node.port, "twin")
    if library == "amqtt":  # it tells its log only
        await node.logged("disconnected client_id=twin")
    else:
        async with asyncio.timeout(DEADLINE):
            await first.ended.get()
    await second.subscribe("t", qos=1)
    await second.publish("t", b"mine", 1)
    assert (await second.message()).payload == b"mine"


@pytest.mark.parametrize("transport", ["tls", "ws", "wss"])
@pytest.mark.parametrize(("library", "version"), [(library, versions[-1]) for library, versions in VERSIONS.items()])
async def test_other_transports(
    nodes: Nodes, libraries: Libraries, tmp_path: Path, library: str, version: int, transport: str
) -> None:
    authority = Authority(tmp_path / "certificates")
    listener: dict[str, Any] = {"address": f"127.0.0.1:{free_port()}"}
    cafile = ""
    if transport != "ws":
        pair = authority.pair("localhost")
        listener["tls"] = {"cert": pair.cert, "key": pair.key}
        cafile = authority.cacert
    if transport != "tls":
        listener["websocket"] = {"path": "/mqtt"}
    node = await nodes.start({"listeners": [listener]})
    client = await libraries.connected(library, version, node.port, "client", transport=transport, cafile=cafile)
    await client.subscribe("large", qos=2)
    payload = bytes(range(256)) * (MEGABYTE // 512)  # amqtt takes frames of a megabyte, with the packet's header
    for qos in (0, 1, 2):
        await client.publish("large", payload, qos)
        assert await client.message() == Received("large", payload, qos, False, {})


async def test_every_library_reaches_every_other(nodes: Nodes, libraries: Libraries) -> None:
    node = await nodes.start()
    clients = [
        await libraries.connected(library, version, node.port, f"{library} {version}") for library, version in KINDS
    ]
    for client in clients:
        await client.subscribe("all/#", qos=2)
    for publisher in clients:
        for qos in (0, 1, 2):
            topic = f"all/{publisher.library}/{publisher.version}"
            await publisher.publish(topic, b"%d" % qos, qos)
            for client in clients:
                assert await client.message() == Received(topic, b"%d" % qos, qos, False, {})


# --- MQTT 5


@each_kind_of_5
async def test_properties_arrive(nodes: Nodes, libraries: Libraries, library: str) -> None:
    node = await nodes.start()
    client = await libraries.connected(library, 5, node.port, "client")
    await client.subscribe("q/+", qos=1, identifier=42)
    properties: dict[str, Any] = {
        "content_type": "text/plain",
        "response_topic": "reply/here",
        "correlation_data": "c-17",
        "user_properties": [["first", "1"], ["second", "2"]],
    }
    await client.publish("q/1", b"body", 1, **properties, message_expiry=1000)
    received = await client.message()
    assert 0 < received.properties.pop("message_expiry") <= 1000
    assert received.properties == {**properties, "subscription_identifiers": [42]}


@each_kind_of_5
async def test_topic_aliases(nodes: Nodes, libraries: Libraries, library: str) -> None:
    """MQTT.js gives and resolves them by itself, both ways; with QoS 2 it hands such messages over without a topic.
    The others send what the test says, and take none."""
    node = await nodes.start({"log": {"level": "debug", "dump_packet": True}})
    limit = {"topic_alias_maximum": 10} if library == "mqttjs" else {}
    client = await libraries.connected(library, 5, node.port, "client", **limit)
    await client.subscribe("aliased/#", qos=1)
    aliases: dict[str, Any] = {} if library == "mqttjs" else {"topic_alias": 3}
    for number in range(5):
        topic = "aliased/topic" if number == 0 or library == "mqttjs" else ""
        await client.publish(topic, b"%d" % number, 1, **aliases)
    found = [await client.message() for _ in range(5)]
    assert [(message.topic, message.payload) for message in found] == [
        ("aliased/topic", b"%d" % number) for number in range(5)
    ]
    lines = [line for line in node.log().splitlines() if "topic_alias=" in line]
    assert sum("received" in line for line in lines) == 5
    assert sum("sent" in line for line in lines) == (5 if library == "mqttjs" else 0)
