"""A link over a network that loses and delays packets, and to an upstream that stands still."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from broker.codec.packets import Publish
from link_status_watch import RUNNING
from link_status_watch import Watch as StatusWatch
from lossy_network import ADDRESSES, NAMESPACES_MISSING, LossyNetwork, namespaces_missing, node_in
from session_clients import SessionPublisher, SessionSubscriber
from waiting import DEADLINE, eventually, stand_still

if TYPE_CHECKING:
    from mqtt_client import Clients
    from node_process import Node, Nodes

LASTING = {"session_expiry": "1h", "max_queued_messages": 100_000}
LOSS = 0.05
DELAY = 0.2  # seconds in each direction
RATE = 100.0  # messages a second
MIB = 2**20
COUNT = 200  # messages before something happens
LATE = 1.0  # seconds until a node on a busy machine has read what the upstream sent before it stood still


@pytest.fixture
async def network() -> AsyncIterator[LossyNetwork]:
    made = LossyNetwork(LOSS, DELAY)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def links(uri: str) -> dict[str, Any]:
    return {
        "domain": "berlin",
        "upstreams": {"up": {"uri": uri, "reconnect-delay": 0.3}},
        "policies": {"all": {"pattern": "t/#", "definition": {"federation-upstream": "up"}}},
    }


@contextlib.asynccontextmanager
async def watched(node: Node) -> AsyncIterator[StatusWatch]:
    """Look at the status of the node's links all the time; it must be true."""
    watch = StatusWatch(node)
    watching = asyncio.create_task(watch.run())
    try:
        yield watch
        assert not watching.done()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert [str(fault) for fault in watch.untrue()] == []


async def is_running(watch: StatusWatch) -> bool:
    return len((await watch.ask()).running()) == 1


async def is_down(watch: StatusWatch) -> bool:
    return not (await watch.ask()).running()


async def has(subscriber: SessionSubscriber, publisher: SessionPublisher, count: int) -> None:
    """Wait until so many messages have come."""
    (topic,) = publisher.sent
    await eventually(lambda: len(subscriber.numbers.get(topic, [])) >= count, f"{count} messages have come")


async def finished(subscriber: SessionSubscriber, publisher: SessionPublisher) -> list[str]:
    """The broken promises, when all that was published is there."""
    publisher.enough()
    await asyncio.wait_for(publisher.done.wait(), DEADLINE)
    await eventually(lambda: subscriber.has_all(publisher.sent), "the last messages are there")
    return publisher.faults + subscriber.broken_promises(publisher.sent)


@pytest.mark.skipif(namespaces_missing(), reason=NAMESPACES_MISSING)
@pytest.mark.slow
async def test_nothing_is_lost_where_packets_are_lost_and_late(network: LossyNetwork, nodes: Nodes) -> None:
    of_upstream = {"listeners": [{"address": f"{ADDRESSES[0]}:1883"}], "mqtt": LASTING}
    upstream = nodes.make(of_upstream, "up", node_in(network.namespaces[0]))
    config = {"plugin_order": ["links"], "plugins": {"links": links(f"mqtt://{ADDRESSES[0]}:1883")}, "mqtt": LASTING}
    node = nodes.make(config, "down", node_in(network.namespaces[1]))
    await asyncio.gather(upstream.start(), node.start())
    subscriber = SessionSubscriber(node.entry, "subscriber")
    publisher = SessionPublisher(upstream.entry, "publisher", (1,), RATE)
    try:
        async with watched(node) as watch:
            subscriber.start()
            await eventually(lambda: is_running(watch), "the link runs")
            publisher.start()
            await has(subscriber, publisher, COUNT)
            assert subscriber.duplicates == 0
            (row,) = (await watch.ask()).rows
            assert (row["reconnects"], row["status"]) == ("0", RUNNING)
            assert row["round_trip_seconds"] >= 2 * DELAY
            status, answer = await node.rest("POST", f"/v1/federation-links/{row['id']}/restart", {})
            assert status == 200, answer
            await has(subscriber, publisher, 2 * COUNT)
            assert await finished(subscriber, publisher) == []
            assert (await watch.ask()).rows[0]["sessions_lost"] == "0"
    finally:
        await publisher.stop()
        await subscriber.stop()
    assert network.lost > 0
    assert network.passed > network.lost


async def test_a_push_to_an_upstream_that_reads_nothing_is_bounded(nodes: Nodes, clients: Clients) -> None:
    """What it does not take waits in the link's queue here, within the bounds of any other queue."""
    upstream = await nodes.start(name="upstream")
    config: dict[str, Any] = {
        "plugin_order": ["links"],
        "plugins": {"links": links(f"mqtt://127.0.0.1:{upstream.port}")},
    }
    config["plugins"]["links"]["upstreams"]["up"]["direction"] = "out"
    node = await nodes.start({**config, "mqtt": {"link_max_queued_bytes": "4MiB"}}, name="downstream")
    await node.logged("link running")
    there = await clients.connect(upstream.port, "there")
    await there.subscribe("t/#", qos=1)
    here = await clients.connect(node.port, "here")
    await here.subscribe("here")
    writer = await clients.connect(node.port, "writer")
    await writer.publish("t/a", b"before", qos=1)
    assert (await there.message()).payload == b"before"
    before = node.resident_bytes()
    await stand_still(upstream.pid)
    for _ in range(100):
        writer.send(*(Publish(b"t/a", bytes(10_000)) for _ in range(100)))
        await writer.ping()
        await writer.publish("here", b"goes on")
        assert (await here.message()).payload == b"goes on"
    assert node.resident_bytes() - before < 40 * MIB
    os.kill(upstream.pid, signal.SIGCONT)
    await writer.publish("t/a", b"after", qos=1)
    while (await there.message()).payload != b"after":
        pass


@pytest.mark.slow
async def test_an_upstream_that_stands_still_and_goes_on(nodes: Nodes, clients: Clients) -> None:
    upstream = await nodes.start({"mqtt": LASTING}, "upstream")
    http, grpc = nodes.free_port(), nodes.free_port()
    uri = f"mqtt://127.0.0.1:{upstream.port}?heartbeat=1&connection_timeout=500"
    api = {
        "grpc": [{"address": f"tcp://127.0.0.1:{grpc}"}],
        "http": [{"address": f"tcp://127.0.0.1:{http}", "map": f"tcp://127.0.0.1:{grpc}"}],
    }
    node = await nodes.start(
        {"plugin_order": ["links"], "plugins": {"links": links(uri)}, "mqtt": LASTING, "api": api}, "downstream"
    )
    local = await clients.connect(node.port, "local")
    await local.subscribe("here")
    subscriber = SessionSubscriber(node.port, "subscriber")
    publisher = SessionPublisher(upstream.port, "publisher", (1,), RATE)
    try:
        async with watched(node) as watch:
            subscriber.start()
            await eventually(lambda: is_running(watch), "the link runs")
            publisher.start()
            await has(subscriber, publisher, COUNT)
            await stand_still(upstream.pid)
            watch.gone("", LATE)
            await eventually(lambda: is_down(watch), "the link does not run")
            await node.logged("no answer to PINGREQ for 1 s")
            await node.logged("no CONNACK for 0.")
            assert await is_down(watch)
            await local.publish("here", b"goes on", qos=1)
            assert (await local.message()).payload == b"goes on"
            watch.returns("")
            os.kill(upstream.pid, signal.SIGCONT)
            await eventually(lambda: is_running(watch), "the link runs again")
            await has(subscriber, publisher, 2 * COUNT)
            assert await finished(subscriber, publisher) == []
    finally:
        await publisher.stop()
        await subscriber.stop()
