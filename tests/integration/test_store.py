"""Nodes with a store: what a kill -9 leaves, with real sockets and real files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
import pytest

from broker.codec import properties as props
from broker.codec.packets import PubAck, PubComp, Publish, PubRec, PubRel, SubAck, Subscribe, SubscribeFilter
from redis_process import REDIS_MISSING, REDIS_SERVER, RedisServer

if TYPE_CHECKING:
    from mqtt_client import Clients, MqttClient
    from node_process import Node, Nodes

QUOTA_EXCEEDED: Final = 0x97
EXPIRY: Final = {props.SESSION_EXPIRY_INTERVAL: 3600}


@pytest.fixture(params=["sqlite", "redis"])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The configuration of a node with a store."""
    if request.param == "sqlite":
        yield {"data_dir": str(tmp_path / "data")}
        return
    if REDIS_SERVER is None:
        pytest.skip(REDIS_MISSING)
    redis = RedisServer(tmp_path)
    redis.start()
    yield {"persistence": {"type": "redis", "redis": {"addr": f"127.0.0.1:{redis.port}"}}}
    redis.kill()


@pytest.fixture
def redis(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer]:
    """The parameter, where there is one, has options of redis-server."""
    if REDIS_SERVER is None:
        pytest.skip(REDIS_MISSING)
    server = RedisServer(tmp_path, *getattr(request, "param", ()))
    server.start()
    yield server
    server.kill()


async def member(clients: Clients, node: Node, client_id: str, **options: Any) -> MqttClient:
    """A client with a durable session that goes on."""
    return await clients.connect(node.port, client_id, clean_start=False, properties=EXPIRY, **options)


async def crash(node: Node) -> None:
    await node.kill()
    await node.start()


async def test_sessions_and_messages_survive_a_kill(nodes: Nodes, clients: Clients, durable: dict[str, Any]) -> None:
    node = await nodes.start(durable)
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


async def test_qos_2_is_exactly_once_over_a_kill(nodes: Nodes, clients: Clients, durable: dict[str, Any]) -> None:
    node = await nodes.start(durable)
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


@pytest.mark.one_process("waits for the line of one process that its store takes changes again")
async def test_nothing_durable_is_acknowledged_while_redis_is_away(
    nodes: Nodes, clients: Clients, redis: RedisServer
) -> None:
    node = await nodes.start({"persistence": {"type": "redis", "redis": {"addr": f"127.0.0.1:{redis.port}"}}})
    away = await member(clients, node, "away")
    await away.subscribe("a", qos=2)
    await away.close()
    sender = await clients.connect(node.port, "sender")
    old = await clients.connect(node.port, "old", version=4)
    await sender.publish("a", b"before", qos=1)
    redis.kill()
    sender.send(Publish(b"a", b"refused", 1, packet_id=50))
    assert await sender.answer(PubAck) == PubAck(50, QUOTA_EXCEEDED)
    await node.logged("the store takes no changes")
    old.send(Publish(b"a", b"not acknowledged", 1, packet_id=51))
    await old.wait_closed()
    assert old.answers.empty()
    await sender.publish("nobody", b"nothing durable", qos=2)
    redis.start()
    await node.logged("the store takes changes again")
    await sender.publish("a", b"after", qos=2)
    await node.kill()
    redis.kill()
    redis.start()
    await node.start()
    away = await member(clients, node, "away")
    payloads = [(await away.message()).payload]
    while payloads[-1] != b"after":
        payloads.append((await away.message()).payload)
    assert payloads[0] == b"before"


@pytest.mark.one_process("limits the files of one process; test_workers.py has this for one of two")
async def test_a_full_disk_acknowledges_nothing_durable(nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands for the end of the space."""
    node = nodes.make({"data_dir": str(tmp_path / "data"), "mqtt": {"max_queued_messages": 100_000}})
    await node.start()
    away = await member(clients, node, "away")
    await away.subscribe("a", qos=2)
    await away.close()
    sender = await clients.connect(node.port, "sender")
    old = await clients.connect(node.port, "old", version=4)
    process = psutil.Process(node.pid)
    process.rlimit(psutil.RLIMIT_FSIZE, (1_000_000, psutil.RLIM_INFINITY))
    acknowledged = 0
    answer = PubAck(1)
    while answer.reason_code == 0:
        sender.send(Publish(b"a", b"%d" % acknowledged + bytes(50_000), 1, packet_id=1))
        answer = await sender.answer(PubAck)
        acknowledged += answer.reason_code == 0
    assert answer.reason_code == QUOTA_EXCEEDED
    assert acknowledged > 0
    old.send(Publish(b"a", b"not acknowledged", 1, packet_id=51))
    await old.wait_closed()
    assert old.answers.empty()
    await sender.publish("nobody", b"nothing durable", qos=1)
    await node.kill()  # what was acknowledged is there, also without more room
    await node.start()
    back = await member(clients, node, "away")
    found = [message.payload.rstrip(b"\0") for message in await back.take(acknowledged)]
    assert found == [b"%d" % number for number in range(acknowledged)]
    await back.publish("a", b"room again", qos=1)
