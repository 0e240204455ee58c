"""ack-mode on-confirm in a cluster: the upstream gets its acknowledgement when the other nodes have the message."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from broker.codec.packets import ConnAck, Connect, Packet, PingReq, PingResp, PubAck, Publish, SubAck, Subscribe
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet
from waiting import eventually, stand_still

if TYPE_CHECKING:
    from mqtt_client import Clients
    from node_process import Node, Nodes


class Upstream:
    """A broker of one client that keeps what the client acknowledges."""

    def __init__(self) -> None:
        self.port = 0
        self.filters: list[bytes] = []
        self.acknowledged: list[int] = []
        self._writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        if self._writer is not None:
            self._writer.close()

    def send(self, *packets: Packet) -> None:
        assert self._writer is not None
        self._writer.write(b"".join(encode_packet(packet, 5) for packet in packets))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        packets = PacketReader(5)
        while data := await reader.read(65536):
            for packet in packets.receive_data(data):
                if isinstance(packet, Connect):
                    self.send(ConnAck(False))
                elif isinstance(packet, Subscribe):
                    self.filters += [entry.topic_filter for entry in packet.filters]
                    self.send(SubAck(packet.packet_id, [1] * len(packet.filters)))
                elif isinstance(packet, PingReq):
                    self.send(PingResp())
                elif isinstance(packet, PubAck):
                    self.acknowledged.append(packet.packet_id)


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    made = Upstream()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def start_pair(nodes: Nodes, upstream: Upstream) -> Callable[[str], Awaitable[tuple[Node, Node]]]:
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
    upstream: Upstream,
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
        await asyncio.sleep(0.05)
        return not far.messages.empty()

    await eventually(reaches_both, "a message crosses the cluster")
    assert other.process is not None
    await stand_still(other.process.pid)
    upstream.send(Publish(b"near", b"1", 1, packet_id=1))
    await eventually(lambda: upstream.acknowledged == [1], "a message that the other node does not get")
    upstream.send(Publish(b"both", b"2", 1, packet_id=2), Publish(b"near", b"last", 0))
    while (await near.message()).payload != b"last":
        pass
    if ack_mode == "on-publish":
        await eventually(lambda: upstream.acknowledged == [1, 2], "the acknowledgement of this node's own")
    else:
        await near.ping()
        assert upstream.acknowledged == [1]
    other.process.send_signal(signal.SIGCONT)
    await eventually(lambda: upstream.acknowledged == [1, 2], "the other node has the message")
    while (await far.message()).payload != b"2":
        pass
