"""Links whose upstream is a RabbitMQ with rabbitmq_mqtt: MQTT 3.1.1, without properties and No Local."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from broker.codec.packets import MQTT_311, PubAck, Publish
from mqtt_client import Clients, MqttClient, reached
from node_process import Node, Nodes
from rabbitmq_broker import EPMD, PROGRAM, RABBITMQ_MISSING, RabbitMqBroker
from waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None or EPMD is None, reason=RABBITMQ_MISSING),
]


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMqBroker]:
    """One for all tests, which starts slowly. Each test has topics of its own."""
    broker = RabbitMqBroker(tmp_path_factory.mktemp("rabbitmq"))
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def config(rabbitmq: RabbitMqBroker, pattern: str, **upstream: Any) -> dict[str, Any]:
    keys = {"uri": f"mqtt://127.0.0.1:{rabbitmq.port}", "reconnect-delay": 0.3, **upstream}
    links = {
        "domain": "berlin",
        "upstreams": {"rabbit": keys},
        "policies": {"p": {"pattern": pattern, "definition": {"federation-upstream": "rabbit"}}},
    }
    return {"plugin_order": ["links"], "plugins": {"links": links}}


async def running(node: Node, times: int = 1) -> None:
    await eventually(lambda: node.log().count("links: link running") >= times, f"link running {times} times")


async def writer_to(rabbitmq: RabbitMqBroker, clients: Clients) -> MqttClient:
    return await clients.connect(rabbitmq.port, "writer", MQTT_311)


def seen(message: Publish) -> tuple[bytes, bytes, int, bool]:
    return message.topic, message.payload, message.qos, message.retain


async def test_topics_each_qos_and_retained_messages_cross(
    nodes: Nodes, clients: Clients, rabbitmq: RabbitMqBroker
) -> None:
    writer = await writer_to(rabbitmq, clients)
    await writer.publish("first/kept", b"old", qos=1, retain=True)
    node = await nodes.start(config(rabbitmq, "first/#"))
    reader = await clients.connect(node.port, "reader")
    # RabbitMQ 3.10 finds retained messages of whole topics, not of filters with wildcards.
    await reader.subscribe("first/kept", "first/+/a", "other/#", qos=2)
    assert seen(await reader.message()) == (b"first/kept", b"old", 1, False)
    await running(node)
    assert "the upstream has MQTT 3.1.1" in node.log()
    late = await clients.connect(node.port, "late")
    await late.subscribe("first/kept", qos=1)
    assert seen(await late.message()) == (b"first/kept", b"old", 1, True)
    for qos in (0, 1):
        await writer.publish("first/b/a", b"qos %d" % qos, qos=qos)
        assert seen(await reader.message()) == (b"first/b/a", b"qos %d" % qos, qos, False)
    writer.send(Publish(b"first/b/a", b"qos 2", 2, packet_id=9))
    await writer.answer(PubAck)  # RabbitMQ takes QoS 2 as QoS 1
    assert seen(await reader.message()) == (b"first/b/a", b"qos 2", 1, False)
    await writer.publish("other/a", b"no policy", qos=1)
    await writer.publish("first/b/b", b"not wanted", qos=1)
    await writer.publish("first/kept", b"new", qos=1, retain=True)
    assert seen(await reader.message()) == (b"first/kept", b"new", 1, False)


@pytest.mark.parametrize(
    ("root", "upstream", "topic"),
    [("plain", {}, b"plain/v1/0/a"), ("mapped", {"exchange": "mapped/v1/0/# -> mapped/v1.0/{#}"}, b"mapped/v1.0/a")],
)
async def test_a_dot_of_a_topic_is_a_slash_without_a_mapping(
    nodes: Nodes, clients: Clients, rabbitmq: RabbitMqBroker, root: str, upstream: dict[str, Any], topic: bytes
) -> None:
    node = await nodes.start(config(rabbitmq, f"{root}/#", **upstream))
    reader = await clients.connect(node.port, "reader")
    await reader.subscribe(f"{root}/#", qos=1)
    await running(node)
    writer = await writer_to(rabbitmq, clients)
    await writer.publish(f"{root}/v1.0/a", b"1", qos=1)
    assert (await reader.message()).topic == topic


async def test_messages_wait_in_its_queue_while_the_node_is_away_and_over_its_restart(
    nodes: Nodes, clients: Clients, rabbitmq: RabbitMqBroker
) -> None:
    node = await nodes.start({**config(rabbitmq, "second/#"), "mqtt": {"session_expiry": "1h"}})
    reader = await clients.connect(node.port, "reader")
    await reader.subscribe("second/#", qos=1)
    writer = await writer_to(rabbitmq, clients)
    await running(node)
    await reached(writer, "second/probe", reader)
    await node.kill()
    payloads = [b"%d" % number for number in range(300)]
    for payload in payloads:
        await writer.publish("second/a", payload, qos=1)
    await node.start()
    reader = await clients.connect(node.port, "reader")
    await reader.subscribe("second/#", qos=1)
    # The probe comes once more, where the node died before RabbitMQ had its acknowledgement.
    found: list[bytes] = []
    while len(found) < len(payloads):
        message = await reader.message()
        if message.topic == b"second/a":
            found.append(message.payload)
    assert found == payloads
    await running(node, 2)
    await asyncio.to_thread(rabbitmq.stop)
    await node.logged("link error")
    local = await clients.connect(node.port, "local")
    await local.publish("second/here", b"goes on", qos=1)
    assert (await reader.message()).payload == b"goes on"
    await asyncio.to_thread(rabbitmq.start)
    writer = await writer_to(rabbitmq, clients)
    # The queue has lasted, so this need not wait for the link.
    for payload in payloads:
        await writer.publish("second/b", payload, qos=1)
    assert [message.payload for message in await reader.take(len(payloads))] == payloads
    await running(node, 3)
    assert "link session lost" not in node.log()


async def test_a_link_that_pushes_gives_its_messages_to_rabbitmq(
    nodes: Nodes, clients: Clients, rabbitmq: RabbitMqBroker
) -> None:
    node = await nodes.start(config(rabbitmq, "third/#", direction="out"))
    there = await clients.connect(rabbitmq.port, "there", MQTT_311)
    await there.subscribe("third/#", qos=1)
    await running(node)
    here = await clients.connect(node.port, "here")
    for qos in (0, 1, 2):
        await here.publish("third/a", b"qos %d" % qos, qos=qos)
        assert seen(await there.message()) == (b"third/a", b"qos %d" % qos, min(qos, 1), False)


async def test_a_wrong_password_is_an_error_that_names_the_key(
    nodes: Nodes, clients: Clients, rabbitmq: RabbitMqBroker
) -> None:
    uri = f"mqtt://stranger:sesame@127.0.0.1:{rabbitmq.port}"
    node = await nodes.start(config(rabbitmq, "fourth/#", uri=uri))
    reader = await clients.connect(node.port, "reader")
    await reader.subscribe("fourth/#", qos=1)
    await node.logged("user name and password of `uri`")
    assert "sesame" not in node.log()


async def test_a_link_pushes_no_topics_that_another_one_takes_back(
    nodes: Nodes, clients: Clients, rabbitmq: RabbitMqBroker
) -> None:
    """RabbitMQ strips the path of domains: a message would go round for ever."""
    made = config(rabbitmq, "round/#")
    links = made["plugins"]["links"]
    links["upstreams"]["out"] = {**links["upstreams"]["rabbit"], "direction": "out"}
    links["policies"]["p"]["definition"] = {"federation-upstream-set": "all"}
    node = await nodes.start(made)
    reader = await clients.connect(node.port, "reader")
    await reader.subscribe("round/#", qos=1)
    await running(node)
    await node.logged("round/# comes back over the upstream")
    await node.logged("and a broker without MQTT 5 does not say so")
    writer = await writer_to(rabbitmq, clients)
    for topic in ("round/a", "round/b"):
        await reached(writer, topic, reader)
    await reader.publish("round/here", b"once", qos=1)
    assert (await reader.message()).topic == b"round/here"
    await writer.publish("round/end", b"", qos=1)
    assert (await reader.message()).topic == b"round/end"
