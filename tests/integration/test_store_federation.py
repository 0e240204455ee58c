"""A node with a store in a federation: events of other nodes are acknowledged when the store has what they caused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.codec import properties as props
from mqtt_client import reached

if TYPE_CHECKING:
    from mqtt_client import Clients, MqttClient
    from node_process import Node, Nodes

EXPIRY: Final = {props.SESSION_EXPIRY_INTERVAL: 3600}
COUNT: Final = 400


async def member(clients: Clients, node: Node) -> MqttClient:
    return await clients.connect(node.port, "member", clean_start=False, properties=EXPIRY)


async def test_messages_of_another_node_survive_a_kill(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    """The other node keeps what was not acknowledged in its outbox. What was acknowledged is in the store."""
    first = await nodes.make_federated().start()
    second = await nodes.make_federated([first], {"data_dir": str(tmp_path / "data")}).start()
    await nodes.all_alive([first, second])
    receiver = await member(clients, second)
    await receiver.subscribe("a", qos=1)
    sender = await clients.connect(first.port, "sender")
    await reached(sender, "a", receiver)
    receiver.acknowledges = False

    async def publish() -> None:
        for number in range(COUNT):
            await sender.publish("a", b"%d" % number, qos=1)

    publishing = asyncio.create_task(publish())
    await receiver.take(20)
    await second.kill()
    await publishing
    await second.start()
    await nodes.all_alive([first, second])
    back = await member(clients, second)
    numbers: list[int] = []
    while not numbers or numbers[-1] != COUNT - 1:
        payload = (await back.message()).payload
        if not payload.startswith(b"probe"):  # those may come again, as any QoS 1 message
            numbers.append(int(payload))
    assert list(dict.fromkeys(numbers)) == list(range(COUNT))
