"""Nodes that are drained and started again by turns, as for an upgrade, with real processes under load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from broker.codec import properties as props
from broker.codec.packets import MQTT_311, Connect
from broker.codec.reason_codes import SERVER_UNAVAILABLE, USE_ANOTHER_SERVER
from mqtt_client import reached
from session_clients import SessionClient, SessionPublisher, SessionSubscriber
from waiting import eventually

if TYPE_CHECKING:
    from broker.codec.packets import ConnAck
    from mqtt_client import Clients
    from node_process import Node, Nodes

EXPIRY: Final = {props.SESSION_EXPIRY_INTERVAL: 3600}
LARGE_QUEUE: Final = {"max_queued_messages": 100_000}
RATE: Final = 100.0  # messages a second of each publisher
DRAIN_SECONDS: Final = 60.0


async def federation(nodes: Nodes, tmp_path: Path, count: int) -> list[Node]:
    """Nodes with stores, which tell where clients reach them."""
    made: list[Node] = []
    for number in range(count):
        node = nodes.make_federated(made[:1], {"data_dir": str(tmp_path / f"data{number}"), "mqtt": LARGE_QUEUE})
        node.config["plugins"]["federation"]["server_reference"] = f"127.0.0.1:{node.port}"
        made.append(await node.start())
    await nodes.all_alive(made)
    return made


async def status(node: Node) -> dict[str, Any]:
    code, found = await node.rest("GET", "/v1/federation/drain")
    assert code == 200, found
    assert isinstance(found, dict)
    return found


async def drain(node: Node, rate: int = 500) -> None:
    code, found = await node.rest("POST", "/v1/federation/drain", {"rate": rate})
    assert code == 200, found

    async def is_drained() -> bool:
        return bool((await status(node))["state"] == "drained")

    await eventually(is_drained, f"{node.name} is drained", DRAIN_SECONDS)
    found = await status(node)
    assert (found["clients_left"], found["sessions_left"], found["waits_for"]) == ("0", "0", "")


def check_answer(answer: ConnAck | None, node: Node) -> None:
    assert answer is not None
    assert answer.reason_code == USE_ANOTHER_SERVER
    assert answer.properties[props.SERVER_REFERENCE] == f"127.0.0.1:{node.port}"


async def test_three_nodes_are_upgraded_by_turns_under_load(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    made = await federation(nodes, tmp_path, 3)
    subscribers = [SessionSubscriber(made[number % 3].port, f"subscriber {number}") for number in range(6)]
    publishers = [SessionPublisher(made[number].port, f"publisher {number}", rate=RATE) for number in range(3)]
    away = [SessionSubscriber(node.port, f"away {node.name}") for node in made]
    everybody: list[SessionClient] = [*subscribers, *publishers, *away]
    for client in everybody:
        client.others = [node.port for node in made if node.port != client._port]
    for subscriber in [*subscribers, *away]:
        subscriber.start()
        await subscriber.subscribed.wait()
    for subscriber in away:
        await subscriber.stop()
    for publisher in publishers:
        publisher.start()
    for node in made:
        await drain(node)
        await node.stop()
        await node.start()
        await nodes.all_alive(made)
    for publisher in publishers:
        publisher.enough()
        await publisher.done.wait()
    for subscriber in away:
        subscriber.start()
    sent = {topic: count for publisher in publishers for topic, count in publisher.sent.items()}

    async def have_all() -> bool:
        return all(subscriber.has_all(sent) for subscriber in [*subscribers, *away])

    await eventually(have_all, "all messages came", DRAIN_SECONDS)
    for client in everybody:
        await client.stop()
    faults = [fault for subscriber in [*subscribers, *away] for fault in subscriber.broken_promises(sent)]
    assert faults + [fault for publisher in publishers for fault in publisher.faults] == []
    assert sum(client.referred for client in everybody) >= 9
    assert "drained: other nodes have all clients and sessions" in made[0].log()


@pytest.mark.one_process("compares the homes of sessions with names of nodes; test_workers.py has a drain of two")
async def test_a_drained_node_takes_no_clients_until_it_is_undrained(
    nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    first, second = await federation(nodes, tmp_path, 2)
    away = await clients.connect(first.port, "away", clean_start=False, properties=EXPIRY)
    await away.subscribe("a/#", qos=1)
    publisher = await clients.connect(second.port, "publisher")
    await reached(publisher, "a/b", away)
    await away.close(goodbye=False)
    await publisher.publish("a/b", b"waits", qos=1)
    older = await clients.connect(first.port, "older", MQTT_311)
    code, place = await first.rest("GET", "/v1/federation/sessions/away")
    assert (code, place["state"], place["home"], place["short"]) == (200, "here", first.name, False), place
    assert place["keepers"] == [{"node_name": second.name, "whole": True}]
    await drain(first)
    await older.wait_closed()
    refused = await clients.open(first.port)
    refused.send(Connect("new", 5, True, 0, None, None, None, {}))
    await refused.wait_closed()
    check_answer(refused.answers.get_nowait(), second)  # type: ignore[arg-type]
    await clients.connect(first.port, "older", MQTT_311, reason_code=SERVER_UNAVAILABLE)
    assert (await first.rest_text("GET", "/readyz"))[0] == 503
    _, here = await second.rest("GET", "/v1/federation/sessions/away")
    _, there = await first.rest("GET", "/v1/federation/sessions/away")
    assert (here["state"], here["home"]) == ("here", second.name)
    assert (there["state"], there["home"]) == ("elsewhere", second.name)
    assert (here["counter"], here["store_id"]) == (there["counter"], there["store_id"])
    assert (await second.rest("GET", "/v1/federation/sessions/nobody"))[1]["state"] == "unknown"
    code, found = await second.rest("POST", "/v1/federation/drain", {})
    assert (code, found["message"]) == (
        400,
        f"no other node takes the clients and sessions of this one: {first.name} is drained, too",
    )
    code, found = await first.rest("POST", "/v1/federation/undrain", {})
    assert (code, found["state"]) == (200, "serving")
    back = await clients.connect(first.port, "away", clean_start=False, properties=EXPIRY)
    assert (await back.message()).payload == b"waits"
