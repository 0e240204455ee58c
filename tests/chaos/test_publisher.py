"""The publisher of a chaos run: nothing counts as acknowledged that no node has taken."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from messages import TOPIC_PREFIX, message_of, number_of
from mqtt_client import Clients
from node_process import PATIENT, Nodes, nodes_in
from publisher import Publisher
from waiting import DEADLINE, eventually

SEED = 5


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    async with nodes_in(tmp_path) as made:
        yield made


def test_messages_are_unique_and_checked() -> None:
    payloads = [message_of(SEED, number).payload for number in range(1000)]
    assert len(set(payloads)) == 1000
    assert [number_of(SEED, payload) for payload in payloads] == list(range(1000))
    assert number_of(SEED + 1, payloads[0]) is None
    assert number_of(SEED, payloads[12].replace(b":12:", b":13:")) is None


async def test_each_message_arrives_also_when_a_node_is_killed(nodes: Nodes) -> None:
    first, second = nodes.make(PATIENT), nodes.make(PATIENT)
    for node in (first, second):
        await node.start()
    clients = Clients()
    subscriber = await clients.connect(second.port)
    await subscriber.subscribe(f"{TOPIC_PREFIX}#", qos=1)
    publisher = Publisher([first.port, second.port], SEED, rate=2000.0, connections=4)
    publisher.start()
    try:
        await eventually(lambda: publisher.acknowledged_count > 500, "500 messages are acknowledged")
        psutil.Process(first.pid).suspend()
        await eventually(lambda: publisher.published > publisher.acknowledged_count + 100, "messages are on the way")
        await first.kill()
        at_kill = publisher.published
        await eventually(lambda: publisher.acknowledged_count > at_kill + 500, "publishing goes on at the other node")
        await publisher.finish(DEADLINE)
    finally:
        await publisher.abort()
    assert publisher.acknowledged_count == publisher.published
    assert bytes(publisher.acknowledged) == bytes([1] * publisher.published)
    # Messages after the kill were published at the second node, to which the subscriber is connected.
    missing = set(range(at_kill, publisher.published))
    while missing:
        missing.discard(number_of(SEED, (await subscriber.message()).payload))
    assert publisher.sent_again > 0
    await clients.close()
