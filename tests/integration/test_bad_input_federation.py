"""Bad input to the federation: it gets a clear error or a counted drop, and everything else works."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

if TYPE_CHECKING:
    from mqtt_client import Clients, Watch
    from node_process import Node, Nodes

    StartWatch = Callable[[Node], Awaitable[Watch]]

GIVES_UP = "a worker that gives up is started again, and ends the node at its sixth end"


def federation_of(node: Node) -> dict[str, Any]:
    section = node.config["plugins"]["federation"]
    assert isinstance(section, dict)
    return section


def port_of(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


async def still_federated(nodes: Nodes, clients: Clients, node1: Node, node2: Node) -> None:
    """Both nodes are alive, and a message passes from one to the other."""
    await nodes.all_alive([node1, node2])
    subscriber = await clients.connect(node2.port)
    await subscriber.subscribe("still", qos=1)
    publisher = await clients.connect(node1.port)
    for number in range(300):
        await publisher.publish("still", b"%d" % number, 1)
        with contextlib.suppress(TimeoutError):
            await subscriber.message(0.1)
            return
    raise AssertionError("no message passes any more")


# --- start


@pytest.mark.parametrize("kind", ["fed_addr", "gossip_addr", "gossip UDP", "api.grpc", "api.http"])
async def test_port_in_use(nodes: Nodes, kind: str) -> None:
    node = nodes.make_federated()
    if kind.startswith("api."):
        address = node.config["api"][kind[4:]][0]["address"].removeprefix("tcp://")
        key = f"{kind}[0].address"
    else:
        key = f"plugins.federation.{'gossip_addr' if kind.startswith('gossip') else kind}"
        address = federation_of(node)[key.rsplit(".", 1)[1]]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM if "UDP" in kind else socket.SOCK_STREAM) as taken:
        taken.bind(("127.0.0.1", port_of(address)))
        if "UDP" not in kind:
            taken.listen()
        node.spawn()
        assert await node.wait_ended() == 1
    reason = next(line for line in node.log().splitlines() if line.startswith("gmqttd: "))
    assert address in reason
    assert key in reason
    assert "Traceback" not in node.log()


async def test_retry_join_without_an_answer(nodes: Nodes, watch: StartWatch) -> None:
    """The node serves its clients at once, logs the seeds that do not answer, and joins when one starts."""
    late = nodes.make_federated()
    early = nodes.make_federated([late], {"plugins": {"federation": {"retry_timeout": "1s"}}})
    await early.start()
    others = await watch(early)
    await others.check()
    await early.logged(federation_of(late)["gossip_addr"])
    await others.check()
    await late.start()
    await nodes.all_alive([early, late])


@pytest.mark.one_process(GIVES_UP)
async def test_retry_join_exit(nodes: Nodes) -> None:
    nobody = f"127.0.0.1:{nodes.free_port()}"
    settings = {"retry_join": [nobody], "retry_timeout": "1s", "retry_timeout_action": "exit"}
    node = nodes.make_federated(None, {"plugins": {"federation": settings}})
    node.spawn()
    assert await node.wait_ended() == 1
    last = node.log().strip().splitlines()[-1]
    assert nobody in last
    assert "retry_timeout_action is exit" in last
    assert "Traceback" not in node.log()


@pytest.mark.one_process(GIVES_UP)
async def test_duplicate_node_name(nodes: Nodes, clients: Clients, watch: StartWatch) -> None:
    node1, node2 = await nodes.federation(2)
    others = await watch(node1)
    double = nodes.make_federated([node2], {"plugins": {"federation": {"node_name": node1.name}}})
    double.config_path = double.config_path.with_name("double.yml")
    double.log_path = double.log_path.with_name("double.log")
    double.name = "double"
    double.spawn()
    assert await double.wait_ended() == 1, double.log()
    last = double.log().strip().splitlines()[-1]
    assert node1.name in last
    assert federation_of(node1)["gossip_addr"] in double.log()
    assert "node_name" in double.log()
    assert "Traceback" not in double.log()
    await others.check()
    await still_federated(nodes, clients, node1, node2)
    assert (await node2.members())[node1.name]["addr"] == federation_of(node1)["gossip_addr"]


# --- garbage


async def send_and_drop(port: int, data: bytes) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(OSError):
        writer.write(data)
        await writer.drain()
    await dropped(writer)


async def dropped(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def test_garbage_on_the_federation_port(nodes: Nodes, clients: Clients, watch: StartWatch) -> None:
    node1, node2 = await nodes.federation(2)
    others = await watch(node1)
    address = federation_of(node1)["fed_addr"]
    rng = random.Random(20260103)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)
    for number in range(300):
        data = rng.randbytes(rng.randrange(1, 500))
        await send_and_drop(port_of(address), preface + data if number % 2 else data)
    await others.check()
    async with grpc.aio.insecure_channel(address) as channel:
        methods = (
            "/gmqtt.federation.api.Federation/Hello",
            "/gmqtt.federation.api.Federation/None",
            "/nobody.Nothing/Here",
        )
        for method in methods:
            for metadata in ((), (("node_name", "stranger"),), (("node_name", "node2"),)):
                for data in (b"", b"\xff" * 40, rng.randbytes(1000)):
                    with contextlib.suppress(grpc.RpcError):
                        ask: Any = channel.unary_unary(method)
                        await ask(data, timeout=5, metadata=metadata)
        for metadata in ((), (("node_name", "stranger"),)):
            with contextlib.suppress(grpc.RpcError):
                stream: Any = channel.stream_stream("/gmqtt.federation.api.Federation/EventStream")
                async for _ in stream(iter([b"\xff" * 50, rng.randbytes(200)]), timeout=5, metadata=metadata):
                    pass
    await others.check()
    await still_federated(nodes, clients, node1, node2)
    assert "Traceback" not in node1.log()
