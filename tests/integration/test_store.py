"""Nodes with a store: what a kill -9 leaves, with real sockets and real files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from broker.codec import properties as props
from broker.codec.packets import PubComp, Publish, PubRec, PubRel, SubAck, Subscribe, SubscribeFilter, Will

if TYPE_CHECKING:
    from mqtt_client import Clients, MqttClient
    from node_process import Node, Nodes

EXPIRY: Final = {props.SESSION_EXPIRY_INTERVAL: 3600}


def durable(tmp_path: Path) -> dict[str, Any]:
    return {"data_dir": str(tmp_path / "data")}


async def member(clients: Clients, node: Node, client_id: str, **options: Any) -> MqttClient:
    """A client with a durable session that goes on."""
    return await clients.connect(node.port, client_id, clean_start=False, properties=EXPIRY, **options)


async def crash(node: Node) -> None:
    await node.kill()
    await node.start()


async def test_sessions_and_messages_survive_a_kill(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    node = await nodes.start(durable(tmp_path))
    away = await member(clients, node, "away")
    away.send(
        Subscribe(
            1, [SubscribeFilter(b"q/#", 2, no_local=True, retain_as_published=True)], {props.SUBSCRIPTION_IDENTIFIER: 7}
        )
    )
    assert (await away.answer(SubAck)).reason_codes == [2]
    await away.close()
    busy = await member(clients, node, "busy")
    busy.acknowledges = False
    await busy.subscribe("q/a", qos=1)
    publisher = await clients.connect(node.port, "publisher")
    for number in range(5):
        await publisher.publish("q/a", b"%d" % number, qos=1 + number % 2)
    await publisher.publish("kept", b"retained", qos=1, retain=True)
    inflight = await busy.take(5)
    await crash(node)

    again = await member(clients, node, "busy")
    assert again.connack is not None
    assert again.connack.session_present
    resent = await again.take(5)
    assert [(found.payload, found.packet_id) for found in resent] == [
        (found.payload, found.packet_id) for found in inflight
    ]
    assert all(found.dup for found in resent)
    back = await member(clients, node, "away")
    found = await back.take(5)
    assert [(message.payload, message.qos) for message in found] == [(b"%d" % n, 1 + n % 2) for n in range(5)]
    assert list(found[0].subscription_identifiers) == [7]
    fresh = await clients.connect(node.port, "fresh")
    await fresh.subscribe("kept")
    assert (await fresh.message()).payload == b"retained"


async def test_qos_2_is_exactly_once_over_a_kill(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    node = await nodes.start(durable(tmp_path))
    receiver = await member(clients, node, "receiver")
    await receiver.subscribe("q", qos=2)
    sender = await member(clients, node, "sender")
    sender.send(Publish(b"q", b"1", 2, False, False, 77))
    await sender.answer(PubRec)
    assert (await receiver.message()).packet_id == 1
    await crash(node)

    sender = await member(clients, node, "sender")
    sender.send(Publish(b"q", b"1", 2, False, True, 77))  # again, as PUBREC may have been lost
    await sender.answer(PubRec)
    sender.send(PubRel(77))
    await sender.answer(PubComp)
    receiver = await member(clients, node, "receiver")
    await sender.publish("q", b"2", qos=2)
    while (message := await receiver.message()).payload != b"2":
        # The kill came before the node had the PUBREC. The receiver knows the packet identifier.
        assert (message.payload, message.packet_id, message.dup) == (b"1", 1, True)
    assert receiver.messages.empty()


async def test_a_will_keeps_its_delay_over_a_kill(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    node = await nodes.start(durable(tmp_path))
    watcher = await member(clients, node, "watcher")
    await watcher.subscribe("will/#", qos=1)
    await member(clients, node, "dying", will=Will(b"will/soon", b"gone", 1, delay_interval=1))
    await crash(node)
    watcher = await member(clients, node, "watcher")
    assert (await watcher.message()).payload == b"gone"


@pytest.mark.parametrize("second", ["same", "other"])
async def test_a_session_that_ended_before_the_kill_stays_ended(
    nodes: Nodes, clients: Clients, tmp_path: Path, second: str
) -> None:
    node = await nodes.start(durable(tmp_path))
    client = await member(clients, node, "c")
    await client.subscribe("a", "b", qos=1)
    await client.publish("kept", b"x", qos=1, retain=True)
    await client.publish("kept", b"", qos=1, retain=True)
    await client.unsubscribe("b")
    if second == "same":
        await client.close()
        await clients.connect(node.port, "c", clean_start=True)
    await crash(node)
    client = await member(clients, node, "c")
    assert client.connack is not None
    assert client.connack.session_present == (second == "other")
    await client.publish("b", b"1", qos=1)
    await client.subscribe("kept")
    await client.publish("a", b"2", qos=1)
    await client.ping()
    expected = [b"2"] if second == "other" else []
    assert [client.messages.get_nowait().payload for _ in range(client.messages.qsize())] == expected
