"""Receivers of a message: overlaps, No Local, identifiers, shared groups; runs; the cache of routes."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from broker.codec.packets import SubscribeFilter
from broker.codec.writer import encode_publish
from broker.errors import MqttError
from broker.message import Message
from broker.routing import route_cache
from broker.routing.route import GROUP_SIZE
from broker.routing.route_cache import ROUTE_TOPIC_BYTES_MAX, ROUTES_MAX

# --- overlapping subscriptions ---


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(("mode", "qos"), [("onlyonce", [2]), ("overlap", [0, 1, 2])])
def test_overlap(make_world: Any, version: int, mode: str, qos: list[int]) -> None:
    """[MQTT-3.3.4-2]: one copy at the highest QoS; or, allowed by 3.3.4 too, one for each subscription."""
    world = make_world(delivery_mode=mode)
    client = world.connect("c", version)
    for topic_filter, granted in ((b"a/b", 0), (b"a/#", 2), (b"+/b", 1)):
        client.subscribe(topic_filter, qos=granted)
    world.publish(b"a/b", qos=2)
    assert sorted(p.qos for p in client.take_publishes()) == qos
    world.publish(b"a/b", qos=0)
    assert len(client.take_publishes()) == len(qos)
    client.unsubscribe(b"a/#")
    world.publish(b"a/b", qos=2)
    assert max(p.qos for p in client.take_publishes()) == 1


@pytest.mark.parametrize(("mode", "identifiers"), [("onlyonce", [(1, 2)]), ("overlap", [(1,), (2,)])])
def test_subscription_identifiers(make_world: Any, mode: str, identifiers: list[tuple[int, ...]]) -> None:
    """[MQTT-3.3.4-3..5]: all of them in one copy, or each its own."""
    world = make_world(delivery_mode=mode)
    client = world.connect("c")
    client.subscribe(b"a", identifier=1)
    client.subscribe(b"+", identifier=2)
    other = world.connect("d")
    other.subscribe(b"a")
    for qos in (0, 1):
        world.publish(b"a", qos=qos)
        got = [p.subscription_identifiers for p in client.take_publishes()]
        assert sorted(tuple(sorted(ids)) for ids in got) == identifiers
        assert [p.subscription_identifiers for p in other.take_publishes()] == [()]
    client.unsubscribe(b"+")
    client.subscribe(b"a", identifier=268_435_455)
    world.publish(b"a")
    assert [p.subscription_identifiers for p in client.take_publishes()] == [(268_435_455,)]
    client.subscribe(b"a")
    world.publish(b"a", retain=True)
    client.subscribe(b"a", identifier=5)
    assert [p.subscription_identifiers for p in client.take_publishes()] == [(), (5,)]


@pytest.mark.thorough
def test_thousands_of_overlapping_filters_of_one_client(make_world: Any) -> None:
    """Every identifier comes, in the order of the matches."""
    world = make_world(max_subscriptions_per_client=40_000)
    client = world.connect("c")
    levels = 15
    for identifier, choice in enumerate(itertools.product((b"a", b"+"), repeat=levels), 1):
        world.broker.subscribe("c", [SubscribeFilter(b"/".join(choice))], identifier, world.now)
    route = world.broker.router.lookup(b"/".join([b"a"] * levels))
    assert sorted(route.receivers[0].identifiers) == list(range(1, 2**levels + 1))
    world.publish(b"/".join([b"a"] * levels))
    (publish,) = client.take_publishes()
    assert publish.subscription_identifiers == route.receivers[0].identifiers


def test_no_local(world: Any) -> None:
    """[MQTT-3.8.3-3]: by client id, also after a reconnect, and for each subscription."""
    client = world.connect("c", clean_start=False, expiry=100)
    other = world.connect("d")
    client.subscribe(b"a", no_local=True)
    other.subscribe(b"a")
    for qos in (0, 1, 2):
        client.publish(b"a", b"mine", qos)
        other.publish(b"a", b"theirs", qos)
        client.connection.receive_data(encode_publish(5, b"a", b"run", 0, False, False, 0, b"") * 3, world.now)
        world.flush()
        assert client.take_payloads() == [b"theirs"]
        assert other.take_payloads() == [b"mine", b"theirs", b"run", b"run", b"run"]
    client.subscribe(b"#")
    client.publish(b"a", b"mine")
    assert client.take_payloads() == [b"mine"]
    world.broker.publish(Message(b"a", b"server's", 0, False), world.now)
    world.flush()
    assert client.take_payloads() == [b"server's"]


def test_a_subscription_that_is_replaced(world: Any) -> None:
    """[MQTT-3.8.4-3]: new options, no second copy."""
    client = world.connect("c")
    for topic_filter in (b"a", b"+"):
        client.subscribe(topic_filter, qos=0)
        world.publish(b"a", qos=2)
        client.subscribe(topic_filter, qos=1)
        world.publish(b"a", qos=2)
        assert [p.qos for p in client.take_publishes()] == [0, 1]
        client.unsubscribe(topic_filter)
        world.publish(b"a", qos=2)
        assert client.take_publishes() == []
    assert world.broker.counters.subscriptions_total == 2


def test_dollar_topics(world: Any) -> None:
    """[MQTT-4.7.2-1]."""
    client = world.connect("c")
    client.subscribe(b"#", b"+/a")
    world.publish(b"$x/a")
    assert client.take_publishes() == []
    client.subscribe(b"$x/#")
    world.publish(b"$x/a")
    assert len(client.take_publishes()) == 1


# --- shared subscriptions [MQTT5 4.8.2] ---


def members(world: Any, count: int, topic_filter: bytes = b"$share/g/a", **options: Any) -> list[Any]:
    clients = [world.connect(f"m{number}", expiry=1000, **options) for number in range(count)]
    for client in clients:
        client.subscribe(topic_filter)
    return clients


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_members_get_messages_round_robin(world: Any, qos: int) -> None:
    clients = members(world, 3)
    for number in range(9):
        world.publish(b"a", b"%d" % number, qos=qos)
    got = [client.take_payloads() for client in clients]
    assert [len(payloads) for payloads in got] == [3, 3, 3]
    assert sorted(payload for payloads in got for payload in payloads) == [b"%d" % number for number in range(9)]


def test_disconnected_members_come_last(world: Any) -> None:
    clients = members(world, 3)
    clients[0].cut()
    clients[1].cut()
    for _ in range(4):
        world.publish(b"a", qos=1)
    assert len(clients[2].take_publishes()) == 4
    clients[2].cut()
    for _ in range(6):
        world.publish(b"a", qos=1)
    assert [world.broker.sessions[f"m{number}"].queue_length() for number in range(3)] == [2, 2, 2]


def test_groups_and_ordinary_subscriptions_together(world: Any) -> None:
    """[MQTT-4.8.2-4]: each group gets its copy, a client with both kinds gets both."""
    one = world.connect("one")
    two = world.connect("two")
    one.subscribe(b"$share/g/a", b"$share/h/a", b"a", identifier=7)
    two.subscribe(b"$share/g/+", b"$share/h/a")
    for _ in range(2):
        world.publish(b"a", qos=1)
    got = [len(client.take_publishes()) for client in (one, two)]
    assert got == [2 + 1 + 1, 2 + 1 + 0] or sum(got) == 2 * 4
    one.disconnect()
    two.disconnect()
    assert world.broker.local_interest() == []


def test_a_member_that_unsubscribes(world: Any) -> None:
    clients = members(world, 2, b"$share/g/a/#")
    assert clients[0].unsubscribe(b"$share/g/a/#") == [0]
    for _ in range(3):
        world.publish(b"a/b")
    assert [len(client.take_publishes()) for client in clients] == [0, 3]
    clients[1].unsubscribe(b"$share/g/a/#")
    publisher = world.connect("p", auto=False)
    publisher.publish(b"a/b", qos=1, packet_id=1)
    assert publisher.packets[0].reason_code == 0x10


def test_a_slow_member_is_skipped(make_world: Any) -> None:
    world = make_world(max_queued_messages=4, max_inflight=1)
    clients = members(world, 2, auto=False)
    for _ in range(10):
        world.publish(b"a", qos=1)
        clients[1].auto = True
        clients[1].send_bytes(b"\xc0\x00")
        for publish in clients[1].take_publishes():
            clients[1].send_bytes(b"\x40\x02" + publish.packet_id.to_bytes(2, "big"))
    assert world.drops() == {}


# --- runs ---


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(40))
def test_runs_equal_single_messages(make_world: Any, seed: int) -> None:
    """Every receiver of a stream of QoS 0 messages, cut anywhere, gets the same as from single messages."""
    rng = random.Random(seed)
    topics = [b"a", b"b", b"a/b"]
    mode = rng.choice(["onlyonce", "overlap"])
    streams: dict[int, bytes] = {}
    for version in (4, 5):
        parts = []
        for _ in range(rng.randrange(1, 12)):
            payload_size = rng.choice([0, 1, 5, 119, 120, 121, 122, 123, 124, 125, 400])
            topic = rng.choice(topics)
            payloads = [rng.randbytes(payload_size) for _ in range(rng.choice([1, 2, 7, 300]))]
            block = rng.choice([b"", b"", b"\x26\0\1k\0\1v", b"\x26\0\1k\0\0\x26\0\0\0\1v"])
            parts += [encode_publish(version, topic, payload, 0, False, False, 0, block) for payload in payloads]
        streams[version] = b"".join(parts)
    subscribers = []
    for number in range(rng.randrange(1, 7)):
        filters = [
            SubscribeFilter(rng.choice([b"a", b"b", b"a/b", b"#", b"+", b"$share/g/a"]), rng.randrange(3))
            for _ in range(rng.randrange(1, 4))
        ]
        limit = {} if rng.random() < 0.7 else {0x27: rng.choice([60, 125, 126, 127, 128, 129, 130, 131, 200])}
        subscribers.append((number, rng.choice([3, 4, 5, 5]), filters, rng.choice([0, 0, 3]), limit))
    outputs = []
    for whole in (True, False):
        world = make_world(delivery_mode=mode, max_queued_messages=100_000)
        clients = []
        for number, version, filters, identifier, limit in subscribers:
            client = world.connect(f"c{number}", version, properties=limit if version == 5 else None)
            client.subscribe(*filters, identifier=identifier if version == 5 else 0)
            clients.append(client)
        cut = random.Random(seed)
        for version, stream in streams.items():
            publisher = world.connect(f"p{version}", version)
            pos = 0
            while pos < len(stream):
                if whole:
                    end = pos + cut.choice([1, 3, 50, 1000, 100_000])
                else:
                    size, shift, at = 0, 0, pos + 1
                    while True:
                        size |= (stream[at] & 127) << shift
                        shift += 7
                        at += 1
                        if stream[at - 1] < 128:
                            break
                    end = at + size
                publisher.send_bytes(stream[pos:end])
                pos = end
        outputs.append([client.output for client in clients])
        assert world.broker.counters.messages_sent[0] == sum(len(c.take_publishes()) for c in clients)
    assert outputs[0] == outputs[1]


def test_a_run_to_disconnected_or_full_receivers(make_world: Any) -> None:
    world = make_world(max_queued_messages=50, publisher_hold_max=0.0)
    away = world.connect("away", expiry=100)
    away.subscribe(b"a")
    away.cut()
    full = world.connect("full", 4)
    full.subscribe(b"a")
    full.stop_reading()
    there = world.connect("there", 4)
    there.subscribe(b"a")
    publisher = world.connect("p", 4)
    publisher.send_bytes(b"".join(b"\x30\x05\0\x01a-%c" % number for number in range(80)))
    full.read_on()
    kept = list(range(30, 80))
    assert [payload[1] for payload in full.take_payloads()] == kept
    assert [payload[1] for payload in there.take_payloads()] == list(range(80))
    assert [p[1] for p in world.connect("away", clean_start=False).take_payloads()] == kept
    assert world.drops() == {"queue_full": 60}


# --- the cache ---


def test_topics_without_receivers(world: Any) -> None:
    router = world.broker.router
    assert router.reaches_nobody([b"a", b"b"])
    client = world.connect("c")
    client.subscribe(b"b")
    assert router.reaches_nobody([b"a"])
    assert not router.reaches_nobody([b"a", b"b"])
    client.cut()
    assert router.reaches_nobody([b"a", b"b"])
    world.connect("d").subscribe(b"$share/g/a")
    assert not router.reaches_nobody([b"a"])
    with pytest.raises(MqttError, match="wildcard"):
        router.reaches_nobody([b"c", b"a/+"])


@pytest.mark.thorough
def test_the_cache_is_bounded(world: Any) -> None:
    router = world.broker.router
    for number in range(ROUTES_MAX + 10):
        router.lookup(b"t/%d" % number)
    assert len(router.cache.routes) == 10
    router.lookup(b"x" * (ROUTE_TOPIC_BYTES_MAX + 1))
    assert len(router.cache.routes) == 10


@pytest.mark.interpreted
def test_the_receivers_of_the_cache_are_bounded(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic takes as much of the cache as it has receivers, and identifiers of them."""
    monkeypatch.setattr(route_cache, "ROUTE_RECEIVERS_MAX", 10)
    cache = world.broker.router.cache
    for number in range(3):
        world.connect(f"c{number}").subscribe(b"f/#", identifier=number)
    for number in range(2):
        world.publish(b"f/%d" % number)
    world.publish(b"nobody")
    assert (len(cache.routes), cache.receivers, world.broker.counters.routes_cleared) == (3, 10, 0)
    world.publish(b"f/2")
    assert (list(cache.routes), cache.receivers, world.broker.counters.routes_cleared) == ([b"f/2"], 5, 1)
    for number in range(3, 9):
        world.connect(f"c{number}").subscribe(b"f/2")
    world.publish(b"f/2")
    assert (list(cache.routes), cache.receivers) == ([b"f/2"], 11), "one route alone may be larger"
    world.broker.router.forget_topic(b"f/2")
    assert (cache.routes, cache.receivers, world.broker.counters.routes_cleared) == ({}, 0, 1)


def test_shared_groups_count_in_the_cache(world: Any) -> None:
    cache = world.broker.router.cache
    for number in range(4):
        world.connect(f"c{number}").subscribe(b"$share/g%d/f/#" % number)
    for topic in (b"f/1", b"f/2"):
        world.publish(topic)
    assert cache.receivers == 2 * 4 * GROUP_SIZE
    world.broker.router.forget_topic(b"f/1")
    assert cache.receivers == 4 * GROUP_SIZE


def test_a_filter_without_wildcards_forgets_its_topic_only(world: Any) -> None:
    client = world.connect("c")
    world.publish(b"a")
    world.publish(b"b")
    client.subscribe(b"a")
    assert list(world.broker.router.cache.routes) == [b"b"]
    client.subscribe(b"a/+")
    assert list(world.broker.router.cache.routes) == []
