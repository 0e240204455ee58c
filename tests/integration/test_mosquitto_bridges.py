"""A mosquitto bridge to a cluster of ours: the cluster is the upstream of another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker.codec.packets import MQTT_5, MQTT_311, Publish
from mosquitto_broker import StartMosquitto
from mqtt_client import Clients, reached
from node_process import Node, Nodes
from session_clients import SessionPublisher, SessionSubscriber
from waiting import DEADLINE, eventually

LARGE_QUEUE = {"max_queued_messages": 1_000_000, "session_expiry": "1h"}
RATE = 500.0  # messages a second
VERSIONS = {MQTT_5: "mqttv50", MQTT_311: "mqttv311"}


def bridge(node: Node, *topics: str, version: int = MQTT_5) -> str:
    """Lines of mosquitto.conf for a bridge to the node. There is no bound of messages in flight: those that wait for room lose
    their order in mosquitto 2.0 now and then."""
    return (
        "connection north\n"
        f"address 127.0.0.1:{node.port}\n"
        f"bridge_protocol_version {VERSIONS[version]}\n"
        "remote_clientid bridge\n"
        "cleansession false\n"
        "restart_timeout 1\n"
        "notifications false\n"
        "max_queued_messages 100000\n"
        + (
            "" if version == MQTT_5 else "max_inflight_messages 0\n"
        )  # in MQTT 5 a Receive Maximum of 0, which is an error
    ) + "".join(f"topic {topic}\n" for topic in topics)


def seen(message: Publish) -> tuple[bytes, bytes, int]:
    return message.topic, message.payload, message.qos


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_qos_and_retained_messages_cross_both_ways(
    nodes: Nodes, clients: Clients, start_mosquitto: StartMosquitto, version: int
) -> None:
    upstream, other = await nodes.federation(2)
    writer = await clients.connect(other.port, "writer")
    await writer.publish("down/kept", b"old", qos=1, retain=True)
    mosquitto = await start_mosquitto(bridge(upstream, "down/# in 2", "up/# out 2", version=version))
    here = await clients.connect(mosquitto.port, "here")
    await here.subscribe("down/#", qos=2)
    assert (await here.message()).payload == b"old"
    await reached(writer, "down/probe", here)
    for qos in (0, 1, 2):
        await writer.publish("down/a", b"%d" % qos, qos=qos)
        assert seen(await here.message()) == (b"down/a", b"%d" % qos, qos)
    there = await clients.connect(other.port, "there")
    await there.subscribe("up/#", qos=2)
    await reached(here, "up/probe", there)
    for qos in (0, 1, 2):
        await here.publish("up/a", b"%d" % qos, qos=qos)
        assert seen(await there.message()) == (b"up/a", b"%d" % qos, qos)
    await writer.publish("down/kept", b"", qos=1, retain=True)
    assert (await here.message()).payload == b""
    await writer.publish("down/last", b"last", qos=1)
    assert (await here.message()).payload == b"last"
    late = await clients.connect(mosquitto.port, "late")
    await late.subscribe("down/kept", qos=1)
    await writer.publish("down/kept", b"live", qos=1)
    assert (await late.message()).payload == b"live"


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_bridge_of_both_directions_gets_nothing_back_and_connects_at_once(
    nodes: Nodes, clients: Clients, start_mosquitto: StartMosquitto, version: int
) -> None:
    upstream = await nodes.start()
    mosquitto = await start_mosquitto(bridge(upstream, "both/# both 1", version=version))
    here = await clients.connect(mosquitto.port, "here")
    there = await clients.connect(upstream.port, "there")
    await here.subscribe("both/#", qos=1)
    await there.subscribe("both/#", qos=1)
    await reached(here, "both/probe", here, there)
    await reached(there, "both/probe", there, here)
    await here.publish("both/a", b"of mosquitto", qos=1)
    assert [(await client.message()).payload for client in (here, there)] == [b"of mosquitto"] * 2
    await there.publish("both/a", b"of the node", qos=1)
    # What comes back of the first message comes before the second one, which follows it on the bridge.
    assert [(await client.message()).payload for client in (here, there)] == [b"of the node"] * 2
    await here.publish("both/a", b"last", qos=1)
    assert [(await client.message()).payload for client in (here, there)] == [b"last"] * 2
    assert "unacceptable protocol version" not in mosquitto.log()


async def carried(
    publisher: SessionPublisher, subscriber: SessionSubscriber, break_it: Callable[[], Awaitable[None]]
) -> list[str]:
    """Publish before, while and after something breaks. The promises that were broken, when all is there."""
    clients = (subscriber, publisher)
    try:
        subscriber.start()
        await asyncio.wait_for(subscriber.subscribed.wait(), DEADLINE)
        publisher.start()
        await eventually(lambda: subscriber.numbers, "messages cross")
        await break_it()
        publisher.enough()
        await asyncio.wait_for(publisher.done.wait(), DEADLINE)
        await eventually(lambda: subscriber.has_all(publisher.sent), "the last messages are there")
    finally:
        for client in clients:
            await client.stop()
    return publisher.faults + subscriber.broken_promises(publisher.sent)


@pytest.mark.slow
async def test_a_bridge_gets_everything_from_a_node_that_is_killed(
    nodes: Nodes, clients: Clients, tmp_path: Path, start_mosquitto: StartMosquitto
) -> None:
    """With MQTT 3.1.1: in MQTT 5 mosquitto 2.0 asks for no session expiry, so its session ends with the connection."""
    node = await nodes.start({"data_dir": str(tmp_path / "data"), "mqtt": LARGE_QUEUE})
    mosquitto = await start_mosquitto(bridge(node, "t/# in 2", version=MQTT_311))
    probe = await clients.connect(mosquitto.port, "probe")
    await probe.subscribe("t/#", qos=1)
    await reached(await clients.connect(node.port, "writer"), "t/probe", probe)
    publisher = SessionPublisher(node.port, "publisher", rate=RATE)

    async def kill_node() -> None:
        await node.kill()
        await node.start()

    assert await carried(publisher, SessionSubscriber(mosquitto.port, "subscriber"), kill_node) == []


async def test_messages_wait_at_mosquitto_for_a_node_that_is_killed(
    nodes: Nodes, clients: Clients, tmp_path: Path, start_mosquitto: StartMosquitto
) -> None:
    """With MQTT 3.1.1: in MQTT 5, mosquitto 2.0 sends more again than Receive Maximum allows, and the node must close.

    Nothing is published while the bridge connects: what comes while mosquitto 2.0 looks up the node's address is sent
    behind what comes before CONNACK."""
    node = await nodes.start({"data_dir": str(tmp_path / "data"), "mqtt": LARGE_QUEUE})
    mosquitto = await start_mosquitto(bridge(node, "t/# out 2", version=MQTT_311))
    probe = await clients.connect(node.port, "probe")
    await probe.subscribe("t/#", qos=1)
    await reached(await clients.connect(mosquitto.port, "writer"), "t/probe", probe)
    publisher = SessionPublisher(mosquitto.port, "publisher", rate=RATE)

    async def kill_node() -> None:
        await node.kill()
        sent = sum(publisher.sent.values())
        await eventually(lambda: sum(publisher.sent.values()) > sent + RATE, "messages are published meanwhile")
        publisher.enough()
        await asyncio.wait_for(publisher.done.wait(), DEADLINE)
        await node.start()

    assert await carried(publisher, SessionSubscriber(node.port, "subscriber"), kill_node) == []
