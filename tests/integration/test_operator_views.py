"""What an operator sees of two nodes that run: /v1/node, /v1/federation/peers, metrics, the level of the log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mqtt_client import reached
from waiting import eventually

if TYPE_CHECKING:
    from mqtt_client import Clients
    from node_process import Node, Nodes


def metric(text: str, name: str) -> float:
    """The value of one sample, by its name with labels."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(line.rpartition(" ")[2])


async def metrics_text(node: Node) -> str:
    status, text = await node.rest_text("GET", "/metrics")
    assert status == 200
    return text


@pytest.mark.one_process("expects one other member, and each worker of a node is one")
async def test_two_nodes_show_their_stream_and_their_clients(nodes: Nodes, clients: Clients) -> None:
    metrics = {"listen_address": "127.0.0.1:0"}
    overrides = {"plugin_order": ["admin", "federation", "prometheus"], "plugins": {"prometheus": metrics}}
    node1, node2 = await nodes.federation(2, overrides)
    subscriber = await clients.connect(node2.port, "subscriber")
    await subscriber.subscribe("a/#", qos=1)
    publisher = await clients.connect(node1.port, "publisher")
    await reached(publisher, "a/b", subscriber)
    await eventually(lambda: acknowledged(node1, node2.name), "all events are acknowledged")
    status, answer = await node1.rest("GET", "/v1/federation/peers")
    assert status == 200
    (peer,) = answer["peers"]
    assert (peer["node_name"], peer["state"], peer["stream"], peer["reason"]) == (node2.name, "streaming", "direct", "")
    assert (peer["outbox_bytes"], peer["outbox_seconds"]) == ("0", 0)
    assert 0 <= peer["round_trip_seconds"] < 60
    assert peer["last_acknowledgement"].startswith("20")

    status, shown = await node2.rest("GET", "/v1/node")
    assert status == 200
    assert (shown["node_name"], shown["not_ready"], shown["clients_connected"]) == (node2.name, [], 1)
    assert shown["uptime_seconds"] > 0
    assert shown["subscriptions"] == 1

    text = await metrics_text(node1)
    assert metric(text, f'gmqtt_federation_streaming{{node="{node2.name}"}}') == 1
    assert metric(text, f'gmqtt_federation_events_acked_total{{node="{node2.name}"}}') > 0
    assert metric(text, 'gmqtt_gossip_members{status="ALIVE"}') == 2
    assert metric(text, "gmqtt_sessions_active_current") == 1
    assert metric(await metrics_text(node2), "gmqtt_messages_from_nodes_total") > 0


@pytest.mark.one_process("expects one other member, and each worker of a node is one")
async def test_a_node_shows_what_its_store_keeps_for_another_one(
    nodes: Nodes, clients: Clients, tmp_path: Path
) -> None:
    overrides = {"plugin_order": ["admin", "federation", "prometheus"]}
    metrics = {"plugins": {"prometheus": {"listen_address": "127.0.0.1:0"}}}
    made: list[Node] = []
    for number in (1, 2):
        made.append(nodes.make_federated(made, {**overrides, **metrics, "data_dir": str(tmp_path / f"data{number}")}))
        await made[-1].start()
    node1, node2 = made
    await nodes.all_alive(made)
    subscriber = await clients.connect(node2.port, "subscriber")
    await subscriber.subscribe("a", qos=1)
    publisher = await clients.connect(node1.port, "publisher")
    await reached(publisher, "a", subscriber)
    await eventually(lambda: acknowledged(node1, node2.name), "all events are acknowledged")
    peer = await only_peer(node1)
    assert peer["store_id"] == (await node1.members())[node2.name]["tags"]["store"]
    assert (peer["behind"], peer["stored_blocks"], peer["promises_waiting"]) == (False, "0", "0")
    await node2.kill()
    await publisher.publish("a", b"kept", qos=1)
    peer = await only_peer(node1)
    assert peer["behind"]
    assert int(peer["times_behind"]) > 0
    assert int(peer["stored_blocks"]) > 0
    text = await metrics_text(node1)
    assert metric(text, f'gmqtt_federation_behind{{node="{node2.name}"}}') == 1
    assert metric(text, f'gmqtt_federation_outbox_stored_bytes{{node="{node2.name}"}}') == int(peer["stored_bytes"]) > 0
    assert metric(text, "gmqtt_federation_positions_forgotten_total") == 0


async def only_peer(node: Node) -> dict[str, Any]:
    status, answer = await node.rest("GET", "/v1/federation/peers")
    assert status == 200
    (peer,) = answer["peers"]
    return dict(peer)


async def acknowledged(node: Node, name: str) -> bool:
    _, answer = await node.rest("GET", "/v1/federation/peers")
    (peer,) = answer["peers"]
    return bool(peer["node_name"] == name and peer["events_sent"] == peer["events_acked"] != "0")


async def test_the_level_of_the_log_changes_while_the_node_runs(nodes: Nodes) -> None:
    node = await nodes.start(
        {"plugin_order": ["admin"], "api": {"http": [{"address": f"127.0.0.1:{nodes.free_port()}"}]}}
    )
    assert await node.rest("PUT", "/v1/log_level", {"level": "debug"}) == (200, {})
    assert (await node.rest("GET", "/v1/node"))[1]["log_level"] == "debug"
    await node.logged("the level of the log was changed by the API")
    status, answer = await node.rest("PUT", "/v1/log_level", {"level": "loud"})
    assert (status, answer["message"]) == (400, 'level "loud" is not one of debug, info, warn, error')
