"""Clients that connect to another node of the federation: their sessions follow, with real processes and stores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.codec import properties as props
from broker.codec.packets import ConnAck
from broker.codec.reason_codes import SESSION_TAKEN_OVER
from mqtt_client import reached

if TYPE_CHECKING:
    from mqtt_client import Clients, MqttClient
    from node_process import Node, Nodes

EXPIRY: Final = {props.SESSION_EXPIRY_INTERVAL: 3600}
COUNT: Final = 1_000


def is_present(client: MqttClient) -> bool:
    return isinstance(client.connack, ConnAck) and client.connack.session_present


async def mover(clients: Clients, node: Node, acknowledges: bool = True) -> MqttClient:
    return await clients.connect(node.port, "mover", clean_start=False, properties=EXPIRY, acknowledges=acknowledges)


def numbers(payloads: list[bytes]) -> list[int]:
    return [int(payload) for payload in payloads if not payload.startswith(b"probe")]


async def test_a_session_follows_its_client_and_survives_the_death_of_both_nodes(
    nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    first = await nodes.make_federated([], {"data_dir": str(tmp_path / "first")}).start()
    second = await nodes.make_federated([first], {"data_dir": str(tmp_path / "second")}).start()
    await nodes.all_alive([first, second])
    client = await mover(clients, first)
    await client.subscribe("a/#", qos=1)
    publisher = await clients.connect(second.port, "publisher")
    await reached(publisher, "a/b", client)
    await client.close(goodbye=False)
    await publisher.publish_all([("a/b", b"%d" % number, 1) for number in range(COUNT)])
    moved = await mover(clients, second, acknowledges=False)
    assert is_present(moved)
    await moved.take(20)
    await second.kill()
    await first.kill()
    await second.start()
    await first.start()
    await nodes.all_alive([first, second])
    back = await mover(clients, first)
    assert is_present(back)
    came: list[int] = []
    while not came or came[-1] != COUNT - 1:
        came += numbers([(await back.message()).payload])
    assert list(dict.fromkeys(came)) == list(range(COUNT))


async def test_a_client_is_connected_to_one_node(nodes: Nodes, clients: Clients) -> None:
    """Its older connection ends, and the session that ends with it is there no more."""
    first = await nodes.make_federated().start()
    second = await nodes.make_federated([first]).start()
    await nodes.all_alive([first, second])
    observer = await clients.connect(first.port, "observer")
    old = await clients.connect(first.port, "twice")
    await old.subscribe("t")
    await reached(observer, "t", old)
    new = await clients.connect(second.port, "twice", clean_start=False)
    assert not is_present(new)
    await old.wait_closed()
    assert old.disconnect is not None
    assert old.disconnect.reason_code == SESSION_TAKEN_OVER
    await new.subscribe("t")
    await reached(observer, "t", new)
