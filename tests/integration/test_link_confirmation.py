"""ack-mode on-confirm in a cluster: the upstream gets its acknowledgement when the other nodes have the message."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from broker.codec.packets import Publish
from scripted_upstream import ScriptedUpstream
from waiting import eventually, stand_still

if TYPE_CHECKING:
    from mqtt_client import Clients
    from node_process import Node, Nodes


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    made = ScriptedUpstream()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def start_pair(nodes: Nodes, upstream: ScriptedUpstream) -> Callable[[str], Awaitable[tuple[Node, Node]]]:
    """Starts a node with a link and another node of its cluster."""

    async def start(ack_mode: str) -> tuple[Node, Node]:
        gossip = [f"127.0.0.1:{nodes.free_port()}" for _ in range(2)]
        made = []
        for number, name in enumerate(("linked", "other")):
            federation = {
                "node_name": name,
                "fed_addr": f"127.0.0.1:{nodes.free_port()}",
                "gossip_addr": gossip[number],
                "retry_join": [gossip[1 - number]],
            }
            config: dict[str, Any] = {"plugin_order": ["federation"], "plugins": {"federation": federation}}
            if name == "linked":
                config["plugin_order"].append("links")
                config["plugins"]["links"] = {
                    "domain": "berlin",
                    "upstreams": {"north": {"uri": f"mqtt://127.0.0.1:{upstream.port}", "ack-mode": ack_mode}},
                    "policies": {"all": {"pattern": "#", "definition": {"federation-upstream": "north"}}},
                }
            made.append(await nodes.start(config, name=name))
        return made[0], made[1]

    return start


@pytest.mark.parametrize("ack_mode", ["on-confirm", "on-publish"])
async def test_on_confirm_waits_for_the_other_nodes(
    clients: Clients,
    upstream: ScriptedUpstream,
    start_pair: Callable[[str], Awaitable[tuple[Node, Node]]],
    ack_mode: str,
) -> None:
    linked, other = await start_pair(ack_mode)
    far = await clients.connect(other.port, "far")
    await far.subscribe("both", qos=1)
    near = await clients.connect(linked.port, "near")
    await near.subscribe("both", "near", qos=1)
    await eventually(lambda: {b"both", b"near"} <= set(upstream.filters), "the interest of both nodes")

    async def reaches_both() -> bool:
        upstream.send(Publish(b"both", b"probe", 0))
        return not far.messages.empty()

    await eventually(reaches_both, "a message crosses the cluster")
    upstream.send(Publish(b"both", b"last probe", 1, packet_id=3))
    await eventually(lambda: upstream.acknowledged == [3], "the other node has the probes")
    assert other.process is not None
    await stand_still(other.process.pid)
    upstream.send(Publish(b"near", b"1", 1, packet_id=1))
    await eventually(lambda: upstream.acknowledged == [3, 1], "a message that the other node does not get")
    upstream.send(Publish(b"both", b"2", 1, packet_id=2), Publish(b"near", b"last", 0))
    while (await near.message()).payload != b"last":
        pass
    if ack_mode == "on-publish":
        await eventually(lambda: upstream.acknowledged == [3, 1, 2], "the acknowledgement of this node's own")
    else:
        await near.ping()
        assert upstream.acknowledged == [3, 1]
    other.process.send_signal(signal.SIGCONT)
    await eventually(lambda: upstream.acknowledged == [3, 1, 2], "the other node has the message")
    while (await far.message()).payload != b"2":
        pass
