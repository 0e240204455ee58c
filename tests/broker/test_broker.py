"""The whole broker: compared with a naive model of MQTT delivery, and called as the API does."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.codec.packets import Publish, SubscribeFilter
from broker.codec.reason_codes import NO_MATCHING_SUBSCRIBERS, SUCCESS
from broker.errors import MqttError
from broker.message import Message

TOPICS = (b"a", b"a/b", b"a/c", b"b", b"$d/b", b"a/b/c")
FILTERS = (b"a", b"a/b", b"a/#", b"+", b"+/b", b"#", b"a/+/c", b"$d/#")


def matches(topic_filter: bytes, topic: bytes) -> bool:
    """Topic names and filters [MQTT5 4.7], level by level."""
    if topic[:1] == b"$" and topic_filter[:1] in (b"+", b"#"):
        return False
    wanted, levels = topic_filter.split(b"/"), topic.split(b"/")
    for index, level in enumerate(wanted):
        if level == b"#":
            return True
        if index >= len(levels) or level not in (b"+", levels[index]):
            return False
    return len(wanted) == len(levels)


class ModelClient:
    """The messages that a client with these subscriptions must get."""

    def __init__(self) -> None:
        self.present = False  # a session is there
        self.online = False
        self.persistent = False
        self.subscriptions: dict[bytes, SubscribeFilter] = {}
        self.expected: list[tuple[bytes, bytes, int, bool]] = []


class Model:
    """A naive model of delivery: it compares every message with every subscription."""

    def __init__(self) -> None:
        self.clients: dict[str, ModelClient] = {}
        self.retained: dict[bytes, tuple[bytes, int]] = {}

    def publish(self, sender: str, topic: bytes, payload: bytes, qos: int, retain: bool) -> None:
        if retain:
            self.retained.pop(topic, None)
            if payload:
                self.retained[topic] = (payload, qos)
        for name, client in self.clients.items():
            is_own = sender == name
            hits = [s for f, s in client.subscriptions.items() if matches(f, topic) and not (is_own and s.no_local)]
            if hits:
                shown = retain and any(s.retain_as_published for s in hits)
                client.expected.append((topic, payload, min(qos, max(s.qos for s in hits)), shown))

    def subscribe(self, name: str, request: SubscribeFilter) -> list[tuple[bytes, bytes, int, bool]]:
        client = self.clients[name]
        known = request.topic_filter in client.subscriptions
        client.subscriptions[request.topic_filter] = request
        if request.retain_handling == 2 or (request.retain_handling == 1 and known):
            return []
        return [
            (topic, payload, min(qos, request.qos), True)
            for topic, (payload, qos) in self.retained.items()
            if matches(request.topic_filter, topic)
        ]


def shape(publish: Publish) -> tuple[bytes, bytes, int, bool]:
    return publish.topic, publish.payload, publish.qos, publish.retain


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(60))
def test_delivery_equals_a_simple_model(make_world: Any, seed: int) -> None:
    """Clients connect, disconnect, subscribe and publish in any order; each gets the messages of the model, in order."""
    rng = random.Random(seed)
    world = make_world(max_inflight=rng.choice([1, 3, 100]), write_buffer_high=rng.choice([4096, 2**18]))
    model = Model()
    clients: dict[str, Any] = {}
    names = [f"c{number}" for number in range(4)]
    versions = {name: rng.choice([3, 4, 5, 5]) for name in names}
    number = 0
    for _ in range(250):
        name = rng.choice(names)
        state = model.clients.setdefault(name, ModelClient())
        client = clients.get(name)
        action = rng.choice(["connect", "leave", "subscribe", "subscribe", "unsubscribe", *["publish"] * 6])
        if action == "connect":
            clean = rng.random() < 0.4
            persistent = not clean if versions[name] < 5 else rng.random() < 0.7
            gone = clean or not state.present or (state.online and not state.persistent)
            expiry = {"expiry": 1000 if persistent else 0} if versions[name] == 5 else {}
            if client is not None and state.online and not gone:
                assert [shape(p) for p in client.take_publishes()] == state.expected
                state.expected = []
            new = world.connect(name, versions[name], clean_start=clean, **expiry)
            assert new.connack.session_present is (not gone and versions[name] > 3)
            if gone:
                state.subscriptions.clear()
                state.expected.clear()
            state.present, state.online, state.persistent = True, True, persistent
            clients[name] = new
        elif client is None or not state.online:
            continue
        elif action == "leave":
            assert [shape(p) for p in client.take_publishes()] == state.expected
            state.expected.clear()
            client.cut() if rng.random() < 0.5 else client.disconnect()
            state.online = False
            if not state.persistent:
                state.present = False
                state.subscriptions.clear()
        elif action == "subscribe":
            five = versions[name] == 5
            request = SubscribeFilter(
                rng.choice(FILTERS),
                rng.randrange(3),
                five and rng.random() < 0.3,
                five and rng.random() < 0.3,
                rng.choice([2, 0, 1]) if five else 0,
            )
            if request.no_local:
                request.retain_handling = 2  # the model has no retained messages
            assert [shape(p) for p in client.take_publishes()] == state.expected
            state.expected = []
            kept = model.subscribe(name, request)
            assert client.subscribe(request) == [request.qos]
            assert sorted(shape(p) for p in client.take_publishes()) == sorted(kept)
        elif action == "unsubscribe":
            topic_filter = rng.choice(FILTERS)
            known = state.subscriptions.pop(topic_filter, None)
            codes = client.unsubscribe(topic_filter)
            assert codes == ([0 if known else 0x11] if versions[name] == 5 else [])
        else:
            topic, qos, retain = rng.choice(TOPICS), rng.randrange(3), rng.random() < 0.15
            for _ in range(rng.choice([1, 1, 5])):
                number += 1
                payload = b"" if retain and rng.random() < 0.3 else b"%d" % number + bytes(rng.choice([0, 0, 900]))
                client.publish(topic, payload, qos, retain=retain)
                model.publish(name, topic, payload, qos, retain)
        if rng.random() < 0.1:
            world.advance(rng.random() * 5)
            world.check()
    for name, state in model.clients.items():
        if state.present:
            if not state.online:
                clients[name] = world.connect(name, versions[name], clean_start=False)
            assert [shape(p) for p in clients[name].take_publishes()] == state.expected
    world.check()
    assert set(world.drops()) <= {"session_ended"}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_is_lost_by_cuts(make_world: Any, qos: int, seed: int) -> None:
    """Connections are cut between any two packets; QoS 1 comes at least once, QoS 2 exactly once [MQTT5 4.3, 4.4]."""
    rng = random.Random(seed)
    world = make_world(max_inflight=rng.choice([1, 2, 10]))
    version = rng.choice([4, 5])
    expiry: dict[str, Any] = {"expiry": 1000} if version == 5 else {}
    receiver = world.connect("r", version, clean_start=False, auto=False, **expiry)
    receiver.subscribe(b"a")
    sent = 0
    got: list[bytes] = []
    open_ids: set[int] = set()  # QoS 2: received and not yet released, as a receiver keeps them
    while (
        sent < 60
        or receiver.packets
        or world.broker.sessions["r"].is_waiting()
        or world.broker.sessions["r"].inflight_length()
    ):
        action = rng.randrange(10)
        if action < 3 and sent < 60:
            world.publish(b"a", b"%d" % sent, qos=qos)
            sent += 1
        elif action == 9:
            receiver.cut()
            receiver = world.connect("r", version, clean_start=False, auto=False, **expiry)
        elif receiver.packets:
            packet = receiver.packets.pop(0)
            if isinstance(packet, Publish):
                assert packet.qos == qos
                if qos == 1 or packet.packet_id not in open_ids:
                    got.append(packet.payload)
                open_ids.add(packet.packet_id)
                receiver.send_bytes((b"\x40\x02" if qos == 1 else b"\x50\x02") + packet.packet_id.to_bytes(2, "big"))
            else:
                open_ids.discard(packet.packet_id)
                receiver.send_bytes(b"\x70\x02" + packet.packet_id.to_bytes(2, "big"))
        elif sent == 60 and not receiver.packets:
            receiver.cut()
            receiver = world.connect("r", version, clean_start=False, auto=False, **expiry)
    expected = [b"%d" % number for number in range(60)]
    if qos == 2:
        assert got == expected
    else:
        assert list(dict.fromkeys(got)) == expected
    world.check()


def test_subscribe_and_publish_by_the_api(world: Any) -> None:
    """As the API does, also for an offline client, which gets its retained messages later."""
    broker = world.broker
    world.publish(b"a", b"kept", qos=1, retain=True)
    world.connect("c", expiry=100).cut()
    requests = [SubscribeFilter(b"a", 1), SubscribeFilter(b"b/#/c", 1), SubscribeFilter(b"$share/g/x", 2)]
    assert broker.subscribe("c", requests, 9, world.now) == [1, 0x8F, 2]
    assert broker.publish(Message(b"a", b"live", 1, False), world.now) == SUCCESS
    assert broker.publish(Message(b"nobody", b"", 1, False), world.now) == NO_MATCHING_SUBSCRIBERS
    with pytest.raises(MqttError):
        broker.publish(Message(b"a/+", b"", 0, False), world.now)
    with pytest.raises(KeyError):
        broker.subscribe("nobody", requests, 0, world.now)
    with pytest.raises(KeyError):
        broker.unsubscribe("nobody", [b"a"], world.now)
    client = world.connect("c", clean_start=False, expiry=100)
    got = [(p.payload, p.retain, p.subscription_identifiers) for p in client.take_publishes()]
    assert got == [(b"live", False, (9,)), (b"kept", True, (9,))]
    assert broker.unsubscribe("c", [b"a", b"a"], world.now) == [0, 0x11]
    assert sorted(broker.local_interest()) == [(b"g", b"x")]
    world.check()


def test_traffic_is_counted_over_connections(world: Any) -> None:
    client = world.connect("c", 4, clean_start=False)
    client.subscribe(b"a")
    client.publish(b"a", b"x")
    session = world.broker.sessions["c"]
    before = session.traffic()
    assert before == (3, 15 + 8 + 6, 3, 4 + 5 + 6)
    client.cut()
    assert session.traffic() == before
    world.connect("c", 4, clean_start=False)
    assert session.traffic() == (4, before[1] + 15, 4, before[3] + 4)


def test_client_ids_are_assigned(make_world: Any) -> None:
    """[MQTT-3.1.3-6]: unique, also in MQTT 3.1.1, whose CONNACK cannot carry it."""
    world = make_world()
    for version in (4, 5, 5):
        assert world.open(version).connect("").reason_code == 0
    assert len(world.broker.sessions) == 3


def test_timeouts_without_clients(world: Any) -> None:
    world.connect("c", expiry=10).cut()
    assert world.broker.next_timeout() is not None
    world.advance(10.5)
    assert world.broker.sessions == {}
    assert world.broker.next_timeout() is None
    assert world.broker.counters.sessions_expired == 1
