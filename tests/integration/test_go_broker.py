"""Nodes and a real Go broker in one federation (docs/operations.md, "Sharing a federation with the Go broker").

The tests avoid the faults of the Go broker, which that page describes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from broker.codec.packets import Will
from direct_peers import Proxy
from go_broker import MISSING, GoBroker, becomes, linked, make, publish_many, rest_of
from mqtt_client import reached
from node_process import Node, gossip_address, status_becomes
from waiting import DEADLINE, eventually

if TYPE_CHECKING:
    from mosquitto_process import Mosquitto
    from mqtt_client import Clients
    from node_process import Nodes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]

GO_MEMBER = ("name", "addr", "tags", "status")


@pytest.fixture
async def pair(nodes: Nodes) -> tuple[Node, Node]:
    """A Go broker and a node that has joined it."""
    go = make(nodes, GoBroker, "go1")
    ours = make(nodes, Node, "our1", [go])
    await go.start()
    await ours.start()
    await nodes.all_alive([go, ours])
    return go, ours


async def common_members(node: Node) -> dict[str, dict[str, object]]:
    """What the node says of the members, by name: as much of it as a Go broker says."""
    return {name: {key: row[key] for key in GO_MEMBER} for name, row in (await node.members()).items()}


@pytest.mark.parametrize("who", ["ours joins", "go joins", "by the API of ours", "by the API of go"])
async def test_members_agree_and_messages_cross(nodes: Nodes, clients: Clients, mosquitto: Mosquitto, who: str) -> None:
    go = make(nodes, GoBroker, "go1")
    ours = make(nodes, Node, "our1")
    joins = {"ours joins": (ours, go), "go joins": (go, ours)}.get(who)
    if joins is not None:
        joins[0].config["plugins"]["federation"]["retry_join"] = [gossip_address(joins[1])]
        await joins[1].start()
        await joins[0].start()
    else:
        await go.start()
        await ours.start()
    subscribers = {}
    for node in (go, ours):  # before the join by the API
        subscribers[node.name] = await clients.connect(node.port, f"subscriber-{node.name}")
        await subscribers[node.name].subscribe(f"to/{node.name}/+", qos=2)
    if joins is None:
        host, other = (ours, go) if who == "by the API of ours" else (go, ours)
        assert await host.rest("POST", "/v1/federation/join", {"hosts": [gossip_address(other)]}) == (200, {})
    await nodes.all_alive([go, ours])
    assert await go.members() == await common_members(ours)
    for node in (go, ours):
        member = (await ours.members())[node.name]
        assert member["addr"] == gossip_address(node)
        assert member["tags"]["fed_addr"] == node.config["plugins"]["federation"]["fed_addr"]
    await linked(clients, go, ours)

    for source, target in ((go, ours), (ours, go)):
        subscriber = subscribers[target.name]
        publisher = await clients.connect(source.port, f"publisher-{source.name}")
        for qos in (0, 1, 2):
            topic = f"to/{target.name}/{qos}"
            await publisher.publish(topic, b"%d" % qos, qos)
            message = await subscriber.message()
            assert (message.topic, message.payload, message.qos) == (topic.encode(), b"%d" % qos, qos)
        await subscriber.unsubscribe(f"to/{target.name}/+")
        await subscriber.subscribe(f"later/{target.name}", qos=1)
        await reached(publisher, f"later/{target.name}", subscriber)
        await publisher.publish(f"to/{target.name}/0", b"nobody wants it", 1)
        await publisher.publish(f"later/{target.name}", b"", 1)
        assert (await subscriber.message()).payload == b""
        properties_topic = f"properties/{target.name}"
        sub = await mosquitto.sub(target.port, "-t", properties_topic, "-q", "2", form="%P|%C|%D|%F|%R")
        watcher = await clients.connect(target.port, "watcher")
        await watcher.subscribe(properties_topic)
        await reached(publisher, properties_topic, watcher)
        await watcher.close()
        properties = (
            *("content-type", "text/plain"),
            *("correlation-data", "some-data"),
            *("payload-format-indicator", "1"),
            *("response-topic", "answer/here"),
            *("message-expiry-interval", "100"),
        )
        options = [part for at in range(0, 10, 2) for part in ("-D", "publish", *properties[at : at + 2])]
        options += ["-D", "publish", "user-property", "key", "one", "-D", "publish", "user-property", "key", "two"]
        await mosquitto.pub(source.port, "-t", properties_topic, "-q", "1", "-m", "all of them", *options)
        while (await sub.message())[1] != b"all of them":
            pass
        assert sub.texts[-1] == "key:one key:two|text/plain|some-data|1|answer/here"


@pytest.mark.one_process("has a node leave by the API, which one with workers refuses")
async def test_retained_messages(nodes: Nodes, clients: Clients) -> None:
    go = make(nodes, GoBroker, "go1")
    ours = make(nodes, Node, "our1")
    await go.start()
    await ours.start()
    on_go = await clients.connect(go.port, "on-go")
    on_ours = await clients.connect(ours.port, "on-ours")
    await on_go.publish("kept/go", b"go", 1, True)
    await on_ours.publish("kept/ours", b"ours", 1, True)
    await on_go.publish("kept/both", b"go", 1, True)
    await on_ours.publish("kept/both", b"ours", 1, True)
    assert await ours.rest("POST", "/v1/federation/join", {"hosts": [gossip_address(go)]}) == (200, {})
    await becomes(clients, (go, ours), {b"kept/go": b"go", b"kept/ours": b"ours", b"kept/both": b"ours"})
    await on_go.publish("kept/both", b"go again", 1, True)
    await on_ours.publish("kept/new", b"new", 1, True)
    expected = {b"kept/go": b"go", b"kept/ours": b"ours", b"kept/both": b"go again", b"kept/new": b"new"}
    await becomes(clients, (go, ours), expected)
    await on_go.publish("kept/ours", b"", 1, True)
    await on_ours.publish("kept/go", b"", 1, True)
    await becomes(clients, (go, ours), {b"kept/both": b"go again", b"kept/new": b"new"})

    # Apart, and together again.
    assert await ours.rest("POST", "/v1/federation/leave", {}) == (200, {})
    await status_becomes(go, "our1", "STATUS_LEFT", DEADLINE)
    await on_ours.publish("kept/both", b"changed", 1, True)
    await on_go.publish("kept/apart", b"apart", 1, True)
    assert await ours.rest("POST", "/v1/federation/join", {"hosts": [gossip_address(go)]}) == (200, {})
    await becomes(clients, (go, ours), {b"kept/both": b"changed", b"kept/new": b"new", b"kept/apart": b"apart"})


async def test_shared_groups_and_wills(pair: tuple[Node, Node], clients: Clients) -> None:
    """A group gets one copy in the federation. With ordinary subscribers of the same topic, this holds for messages that
    are published on this broker's nodes."""
    go, ours = pair
    members = []
    for node in pair:
        member = await clients.connect(node.port, f"member-{node.name}")
        await member.subscribe("$share/group/work", qos=1)
        members.append(member)
    ordinary = await clients.connect(go.port, "ordinary")
    await ordinary.subscribe("will", qos=2)
    on_ours = await clients.connect(ours.port, "on-ours")
    await on_ours.subscribe("will", qos=2)
    await linked(clients, go, ours)
    for node in pair:
        publisher = await clients.connect(node.port, f"publisher-{node.name}")
        await publish_many(publisher, "work", 0, 100)
        got = [number for member in members for number in await rest_of(member)]
        assert sorted(got, key=int) == [b"%d" % number for number in range(100)]
    await ordinary.subscribe("work", qos=1)
    await linked(clients, go, ours)
    await publish_many(await clients.connect(ours.port, "again"), "work", 0, 100)
    got = [number for member in members for number in await rest_of(member)]
    assert sorted(got, key=int) == [b"%d" % number for number in range(100)]
    assert await rest_of(ordinary) == [b"%d" % number for number in range(100)]

    for node, subscriber in ((go, on_ours), (ours, ordinary)):
        for qos in (0, 1, 2):
            (await clients.connect(node.port, f"dies-{node.name}", will=Will(b"will", b"%d" % qos, qos))).abort()
            message = await subscriber.message()
            assert (message.payload, message.qos) == (b"%d" % qos, qos)


async def test_stop_and_return(pair: tuple[Node, Node], nodes: Nodes, clients: Clients) -> None:
    go, ours = pair
    await linked(clients, go, ours)
    await ours.stop()
    await status_becomes(go, "our1", "STATUS_LEFT", DEADLINE)
    await ours.start()
    await nodes.all_alive([go, ours])
    await linked(clients, go, ours)
    await go.stop()
    await status_becomes(ours, "go1", "STATUS_LEFT", DEADLINE)
    go.config["plugins"]["federation"]["retry_join"] = [gossip_address(ours)]
    await go.start()
    await nodes.all_alive([go, ours])
    await linked(clients, go, ours)


async def test_kill_and_return(pair: tuple[Node, Node], nodes: Nodes, clients: Clients) -> None:
    go, ours = pair
    for killed, other in ((ours, go), (go, ours)):
        await linked(clients, go, ours)
        await killed.kill()
        await killed.start()  # at once, before the others declare it failed
        await nodes.all_alive([go, ours])
        await linked(clients, go, ours)
        await killed.kill()
        await status_becomes(other, killed.name, "STATUS_FAILED")
        await killed.start()
        await nodes.all_alive([go, ours])
        await linked(clients, go, ours)


async def test_a_go_broker_that_stood_still_gets_the_backlog(
    pair: tuple[Node, Node], nodes: Nodes, clients: Clients
) -> None:
    go, ours = pair
    subscriber = await clients.connect(go.port, "subscriber")
    await subscriber.subscribe("stream", qos=1)
    await linked(clients, go, ours)
    publisher = await clients.connect(ours.port, "publisher")
    os.kill(go.pid, signal.SIGSTOP)
    try:
        await publish_many(publisher, "stream", 0, 2000)
        await status_becomes(ours, "go1", "STATUS_FAILED")
        await publish_many(publisher, "stream", 2000, 2000)
    finally:
        os.kill(go.pid, signal.SIGCONT)
    await nodes.all_alive([go, ours])
    assert [(await subscriber.message()).payload for _ in range(4000)] == [b"%d" % number for number in range(4000)]
    assert await rest_of(subscriber) == []


Proxied = Callable[[str], Awaitable[tuple[Node, Node, Proxy]]]


@pytest.fixture
async def proxied(nodes: Nodes) -> AsyncIterator[Proxied]:
    """A Go broker and a node. The streams to the named one go through the proxy."""
    proxies: list[Proxy] = []

    async def start(name: str) -> tuple[Node, Node, Proxy]:
        fed = {each: nodes.free_port() for each in ("go1", "our1")}
        proxy = await Proxy(fed[name]).start()
        proxies.append(proxy)
        addresses: dict[str, Any] = {each: {"fed_addr": f"127.0.0.1:{port}"} for each, port in fed.items()}
        addresses[name]["advertise_fed_addr"] = proxy.addr
        go = make(nodes, GoBroker, "go1", **addresses["go1"])
        ours = make(nodes, Node, "our1", [go], **addresses["our1"])
        await go.start()
        await ours.start()
        await nodes.all_alive([go, ours])
        return go, ours, proxy

    yield start
    await asyncio.gather(*(proxy.stop() for proxy in proxies))


async def test_connections_to_go_break_under_load(proxied: Proxied, clients: Clients) -> None:
    go, ours, proxy = await proxied("go1")
    subscriber = await clients.connect(go.port, "subscriber")
    await subscriber.subscribe("stream", qos=1)
    await linked(clients, go, ours)
    publisher = await clients.connect(ours.port, "publisher")
    before = proxy.connections
    proxy.cuts = [90_000, 60_000, 30_000]  # of the connections that follow
    proxy.cut()
    await publish_many(publisher, "stream", 0, 20_000)
    got = [(await subscriber.message()).payload for _ in range(20_000)]
    assert got == [b"%d" % number for number in range(20_000)]
    assert await rest_of(subscriber) == []
    assert proxy.connections >= before + 4


async def test_connections_from_go_break(proxied: Proxied, clients: Clients) -> None:
    """Between messages: one that breaks under load may be the last one that a Go broker makes."""
    go, ours, proxy = await proxied("our1")
    subscriber = await clients.connect(ours.port, "subscriber")
    await subscriber.subscribe("stream", qos=1)
    await linked(clients, go, ours)
    publisher = await clients.connect(go.port, "publisher")
    for part in range(3):
        await publish_many(publisher, "stream", part * 1000, 1000)
        got = [(await subscriber.message()).payload for _ in range(1000)]
        assert got == [b"%d" % number for number in range(part * 1000, part * 1000 + 1000)]
        before = proxy.connections
        proxy.cut()
        await eventually(lambda before=before: proxy.connections > before, "the Go broker connects again")
    await publish_many(publisher, "stream", 3000, 1000)
    got = [(await subscriber.message()).payload for _ in range(1000)]
    assert got == [b"%d" % number for number in range(3000, 4000)]
    assert await rest_of(subscriber) == []


@pytest.mark.parametrize("qos", [0, 1])
async def test_bursts(pair: tuple[Node, Node], clients: Clients, qos: int) -> None:
    go, ours = pair
    for source, target in ((go, ours), (ours, go)):
        subscriber = await clients.connect(target.port, f"subscriber-{target.name}")
        await subscriber.subscribe("burst", qos=1)
        await linked(clients, go, ours)
        publisher = await clients.connect(source.port, f"publisher-{source.name}")
        await publish_many(publisher, "burst", 0, 20_000, qos)
        got = [(await subscriber.message()).payload for _ in range(20_000)]
        assert got == [b"%d" % number for number in range(20_000)]
        assert await rest_of(subscriber) == []
        await subscriber.close()


async def test_long_payloads(pair: tuple[Node, Node], clients: Clients) -> None:
    """A Go broker takes events of up to 4 MiB. Larger messages are not sent to it, and the stream does not end."""
    go, ours = pair
    limit = 4 * 2**20
    sizes = (3 * 2**20, limit - 1000, limit, 5 * 2**20, 20 * 2**20)
    for source, target in ((go, ours), (ours, go)):
        subscriber = await clients.connect(target.port, f"subscriber-{target.name}")
        await subscriber.subscribe("long", qos=1)
        await linked(clients, go, ours)
        publisher = await clients.connect(source.port, f"publisher-{source.name}")
        for size in sizes:
            for qos in (0, 1):  # one after the other: two of the longest are more than `max_queued_bytes`
                await publisher.publish("long", b"x" * size, qos)
                if target is ours or size < limit:
                    assert len((await subscriber.message()).payload) == size
            await publisher.publish("long", b"%d" % size, 1)
            assert (await subscriber.message()).payload == b"%d" % size
    assert "a batch was refused" not in ours.log()


async def test_two_and_two(nodes: Nodes, clients: Clients) -> None:
    go1 = make(nodes, GoBroker, "go1")
    ours1 = make(nodes, Node, "our1", [go1])
    go2 = make(nodes, GoBroker, "go2", [ours1])
    ours2 = make(nodes, Node, "our2", [go2])
    all_nodes = [go1, ours1, go2, ours2]
    for node in all_nodes:
        await node.start()
    await nodes.all_alive(all_nodes)
    members = await go1.members()
    for node in all_nodes:
        assert await common_members(node) == members
    await linked(clients, *all_nodes)
    subscribers = {}
    workers = {}
    for node in all_nodes:
        subscribers[node.name] = await clients.connect(node.port, f"subscriber-{node.name}")
        await subscribers[node.name].subscribe("all", qos=2)
        workers[node.name] = await clients.connect(node.port, f"worker-{node.name}")
        await workers[node.name].subscribe("$share/group/work", qos=1)
    await linked(clients, *all_nodes)
    count = 1000
    expected = [b"%d" % number for number in range(count)]
    for node in all_nodes:
        publisher = await clients.connect(node.port, f"publisher-{node.name}")
        await publish_many(publisher, "all", 0, count)
        for subscriber in subscribers.values():
            async with asyncio.timeout(DEADLINE):
                assert [(await subscriber.message()).payload for _ in range(count)] == expected
        await publish_many(publisher, "work", 0, 100)
        got = [number for worker in workers.values() for number in await rest_of(worker)]
        assert sorted(got, key=int) == expected[:100]
    for subscriber in subscribers.values():
        assert await rest_of(subscriber) == []
    await go2.stop()
    await ours2.stop()
    for node in (go1, ours1):
        for left in (go2, ours2):
            await status_becomes(node, left.name, "STATUS_LEFT", DEADLINE)
    await linked(clients, go1, ours1)
