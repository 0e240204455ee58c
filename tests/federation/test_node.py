"""Whole nodes on virtual time: links that lag, break and come back, and what may never be seen in spite of them."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.broker import Broker
from broker.codec.packets import (
    Connect,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    SubscribeFilter,
    Unsubscribe,
)
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet
from broker.config.settings import MqttSettings
from broker.config.settings_federation import FederationSettings
from broker.message import NEVER, Message
from federation.api.pb import federation_pb2 as pb
from federation.node import Node, NotAMember, own_tags
from federation.serf.events import Member, MemberFailed, MemberJoin, MemberLeave, MemberStatus, MemberUpdate
from federation.stream.counters import (
    DROP_OUTBOX_AGE,
    DROP_OUTBOX_FULL,
    DROP_PEER_GONE,
    SKIP_DUPLICATE,
    SKIP_MALFORMED,
    SKIP_UNKNOWN,
)
from federation.stream.receiver import StreamError
from federation.stream.sender import Batch, PeerSender, State

LATENCY = 0.01


class Client:
    """An MQTT 5 client inside the process; `received` are its messages in order."""

    def __init__(self, world: World, node: str, client_id: str, version: int = 5) -> None:
        self.world = world
        self.version = version
        self.broker = world.nodes[node].broker
        self.connection = self.broker.open_connection(self, "test", "test", world.now)
        self.reader = PacketReader(version)
        self.received: list[Publish] = []
        self.next_packet_id = 1
        self.send(Connect(client_id=client_id, protocol_version=version, clean_start=True, keep_alive=0))

    def send(self, packet: Packet) -> None:
        self.connection.receive_data(encode_packet(packet, self.version), self.world.now)

    def packet_id(self) -> int:
        self.next_packet_id = self.next_packet_id % 65_535 + 1
        return self.next_packet_id

    def subscribe(self, *filters: str, qos: int = 2) -> None:
        self.send(Subscribe(self.packet_id(), [SubscribeFilter(name.encode(), qos) for name in filters], {}))

    def unsubscribe(self, *filters: str) -> None:
        self.send(Unsubscribe(self.packet_id(), [name.encode() for name in filters], {}))

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False, expiry: int = -1) -> None:
        packet_id = self.packet_id() if qos else 0
        self.send(Publish(topic.encode(), payload, qos, retain, packet_id=packet_id, message_expiry_interval=expiry))

    def take(self) -> None:
        for packet in self.reader.receive_data(self.connection.take_output()):
            if isinstance(packet, Publish):
                self.received.append(packet)
                if packet.qos == 1:
                    self.send(PubAck(packet.packet_id))
                elif packet.qos == 2:
                    self.send(PubRec(packet.packet_id))
            elif isinstance(packet, PubRec):
                self.send(PubRel(packet.packet_id))
            elif isinstance(packet, PubRel):
                self.send(PubComp(packet.packet_id))

    @property
    def payloads(self) -> list[bytes]:
        return [publish.payload for publish in self.received]


class Link:
    """One connection from a sender to a receiver, for one attempt."""

    def __init__(self, world: World, sender: PeerSender, client: str) -> None:
        self.world = world
        self.sender = sender
        self.client = client
        self.attempt = sender.attempt
        self.stream = 0
        self.open = True
        world.after(LATENCY, self.hello)

    def hello(self) -> None:
        world = self.world
        server = world.nodes.get(self.sender.name)
        if server is None or world.is_cut(self.client, self.sender.name):
            self.lost("unreachable")
            return
        try:
            clean_start, next_event_id = server.hello(self.client, self.sender.session_id)
        except (NotAMember, StreamError) as error:
            self.lost(str(error))
            return
        world.after(LATENCY, lambda: self.reply(clean_start, next_event_id))

    def reply(self, clean_start: bool, next_event_id: int) -> None:
        if not self.open or self.sender.name not in self.world.nodes:
            return self.lost("gone")
        self.sender.hello_reply(self.attempt, clean_start, next_event_id, self.world.now)
        if self.sender.state is State.STREAMING:
            receiver = self.world.nodes[self.sender.name].receiver(self.client)
            self.stream = receiver.open_stream(self.sender.batched, self.world.now)
        return None

    def write(self, batch: Batch) -> None:
        self.world.after(LATENCY, lambda: self.deliver(batch))

    def deliver(self, batch: Batch) -> None:
        world = self.world
        if not self.open:
            return
        if self.sender.name not in world.nodes:
            self.lost("unreachable")
            return
        try:
            receiver = world.nodes[self.sender.name].receiver(self.client)
            if batch.single is None:
                ack = receiver.receive_batch(self.stream, batch.first_id, batch.count, batch.events, world.now)
            else:
                for single in batch.single:
                    ack = receiver.receive_event(self.stream, pb.Event.FromString(single), world.now)
        except (NotAMember, StreamError) as error:
            text = str(error)
            malformed = isinstance(error, StreamError) and error.malformed
            world.after(LATENCY, lambda: self.lost(text, malformed))
            return
        world.after(LATENCY, lambda: self.ack(ack))

    def check(self) -> None:
        """A server ends a stream that it does not serve any more."""
        server = self.world.nodes.get(self.sender.name)
        receiver = None if server is None else server.receivers.get(self.client)
        if receiver is None or receiver.stream != self.stream:
            self.lost("ended by the server")

    def ack(self, event_id: int) -> None:
        node = self.world.nodes.get(self.client)
        if self.open and node is not None:
            node.ack(self.sender, self.attempt, event_id, self.world.now)
            self.sender.want_attention()

    def lost(self, reason: str, malformed: bool = False) -> None:
        if self.open:
            self.open = False
            if malformed:
                self.sender.refused(self.attempt, reason, self.world.now)
            else:
                self.sender.connection_lost(self.attempt, reason, self.world.now)


class World:
    def __init__(self, count: int, seed: int = 1, plain: tuple[str, ...] = (), **federation: object) -> None:
        self.now = 1000.0
        self.rng = random.Random(seed)
        self.order = 0
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.nodes: dict[str, Node] = {}
        self.links: dict[tuple[str, str], Link] = {}
        self.cuts: set[tuple[str, str]] = set()
        self.clients: list[Client] = []
        self.plain = plain
        self.settings = replace(FederationSettings(node_name="x"), **federation)  # type: ignore[arg-type]
        names = [f"n{number}" for number in range(1, count + 1)]
        for name in names:
            self.start(name)
        for name in names:
            self.introduce(name)

    def start(self, name: str) -> None:
        rng = random.Random(self.rng.getrandbits(32))
        broker = Broker(MqttSettings(), rng, self.now)
        node_settings = replace(self.settings, batch=name not in self.plain)
        self.nodes[name] = Node(name, broker, node_settings, rng)

    def member(self, name: str, port: int = 8901) -> Member:
        tags = own_tags(f"{name}:{port}", name not in self.plain)
        return Member(name, "127.0.0.1", 8902, tags, MemberStatus.ALIVE)

    def introduce(self, name: str) -> None:
        """The node and all others see each other."""
        for other, node in self.nodes.items():
            if other != name:
                node.member_events([MemberJoin(self.member(name))], self.now)
                self.nodes[name].member_events([MemberJoin(self.member(other))], self.now)

    def crash(self, name: str) -> None:
        del self.nodes[name]
        for (client, server), link in self.links.items():
            if name in (client, server):
                if client == name:
                    link.open = False
                link.lost("connection reset")
        self.clients = [client for client in self.clients if client.broker is not None]

    def client(self, node: str, client_id: str, version: int = 5) -> Client:
        client = Client(self, node, client_id, version)
        self.clients.append(client)
        return client

    def after(self, delay: float, action: Callable[[], None]) -> None:
        self.order += 1
        heapq.heappush(self.heap, (self.now + delay, self.order, action))

    def is_cut(self, a: str, b: str) -> bool:
        return (a, b) in self.cuts or (b, a) in self.cuts

    def cut(self, a: str, b: str) -> None:
        self.cuts.add((a, b))
        self.break_links(a, b)

    def heal(self) -> None:
        self.cuts.clear()

    def break_links(self, a: str, b: str) -> None:
        """What is on its way in both directions is gone."""
        for pair in ((a, b), (b, a)):
            link = self.links.get(pair)
            if link is not None:
                link.lost("connection reset")

    def flush(self) -> None:
        for _ in range(100):
            busy = False
            for client in self.clients:
                if client.connection.dirty:
                    client.take()
                    busy = True
            for name, node in self.nodes.items():
                node.broker.take_dirty()
                for sender in node.senders.values():
                    link = self.links.get((name, sender.name))
                    is_new = link is None or link.sender is not sender or link.attempt != sender.attempt
                    if sender.state is State.HELLO and is_new:
                        if link is not None:
                            link.open = False
                        self.links[(name, sender.name)] = Link(self, sender, name)
                    elif link is not None and link.stream:
                        link.check()
                for sender in node.outlets.take_ready():
                    for batch in sender.take_batches(self.now):
                        self.links[(name, sender.name)].write(batch)
                        busy = True
            if not busy and not any(client.connection.dirty for client in self.clients):
                return
        raise AssertionError("no rest within a turn")

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while True:
            self.flush()
            at = self.heap[0][0] if self.heap else NEVER
            for node in self.nodes.values():
                at = min(at, node.next_timeout(), node.broker.next_timeout() or NEVER)
            if at > until:
                self.now = until
                return
            self.now = max(self.now, at)
            while self.heap and self.heap[0][0] <= self.now:
                heapq.heappop(self.heap)[2]()
            for node in self.nodes.values():
                node.handle_timeout(self.now)
                node.broker.handle_timeout(self.now)

    def dropped(self, reason: str) -> int:
        return sum(counters.dropped[reason] for node in self.nodes.values() for counters in node.counters.values())


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


# --- plain sailing ---


@pytest.mark.parametrize("plain", [(), ("n1",), ("n2",), ("n1", "n2")])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_reaches_a_subscriber_on_another_node(plain: tuple[str, ...], qos: int) -> None:
    world = World(2, plain=plain)
    subscriber = world.client("n2", "s")
    subscriber.subscribe("a/+")
    world.run(1)
    publisher = world.client("n1", "p")
    for payload in numbers(5):
        publisher.publish("a/b", payload, qos)
    publisher.publish("other", b"", qos)
    world.run(1)
    assert subscriber.payloads == numbers(5)
    assert {publish.qos for publish in subscriber.received} == {qos}
    subscriber.unsubscribe("a/+")
    world.run(1)
    publisher.publish("a/b", b"late", qos)
    world.run(1)
    assert subscriber.payloads == numbers(5)
    assert world.nodes["n1"].broker.router.lookup(b"a/b").peers == []


@pytest.mark.parametrize("plain", [(), ("n2",)])
def test_interest_and_retained_messages_from_before_the_connection_are_told(plain: tuple[str, ...]) -> None:
    world = World(1, plain=plain)
    early = world.client("n1", "early")
    early.subscribe("x/#", "$share/g/y")
    early.publish("x/1", b"kept", retain=True)
    world.start("n2")
    world.introduce("n2")
    world.run(3)
    tree = world.nodes["n2"].tree
    assert sorted(tree.interest_of("n1")) == [(b"", b"x/#"), (b"g", b"y")]
    late = world.client("n2", "late")
    late.subscribe("x/1")
    late.publish("x/1", b"", retain=True)
    world.run(1)
    assert late.payloads[0] == b"kept"
    assert len(world.nodes["n1"].broker.retained) == 0
    assert early.payloads == [b"kept", b""]


def test_properties_and_versions_travel() -> None:
    world = World(2, plain=("n2",))
    five, four = world.client("n2", "five"), world.client("n2", "four", 4)
    five.subscribe("t")
    four.subscribe("t")
    world.run(1)
    properties = b"\x01\x01\x03\x00\x01t\x08\x00\x01r\x09\x00\x02\xff\xfe\x26\x00\x01k\x00\x01v"
    publisher = world.client("n1", "p")
    publisher.send(Publish(b"t", b"x", 1, packet_id=9, properties=properties, message_expiry_interval=100))
    world.client("n1", "p4", 4).publish("t", b"y", 0)
    world.run(5)
    assert five.received[0].properties == properties
    assert 98 <= five.received[0].message_expiry_interval <= 100
    assert four.payloads == five.payloads == [b"x", b"y"]


# --- shared groups ---


def test_a_group_gets_one_copy_wherever_its_members_are() -> None:
    world = World(5)
    members = [world.client(node, f"m-{node}") for node in ("n2", "n3", "n4")]
    for member in members:
        member.subscribe("$share/g/t/#", "$share/h/t/+")
    ordinary = world.client("n4", "o")
    ordinary.subscribe("t/1")
    world.run(1)
    publishers = [world.client(node, f"p-{node}") for node in ("n1", "n2", "n5")]
    for payload in numbers(30):
        for publisher in publishers:
            publisher.publish("t/1", payload, int(payload) % 3)
    world.run(2)
    assert len(ordinary.received) == 90
    got = sorted(payload for member in members for payload in member.payloads)
    assert got == sorted(numbers(30) * 3 * 2), "one copy for each of the two groups"
    assert all(member.received for member in members)


# --- links that break ---


@pytest.mark.parametrize("plain", [(), ("n1", "n2", "n3", "n4", "n5")])
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_or_doubled_or_out_of_order_while_links_break(seed: int, plain: tuple[str, ...]) -> None:
    world = World(5, seed, plain)
    names = list(world.nodes)
    subscribers = []
    for name in names:
        subscriber = world.client(name, f"s-{name}")
        subscriber.subscribe("t/#")
        subscribers.append(subscriber)
    group = [world.client(name, f"g-{name}") for name in names[:3]]
    for member in group:
        member.subscribe("$share/g/u")
    publishers = {name: world.client(name, f"p-{name}") for name in names}
    world.run(3)
    count = 150
    for number in range(count):
        for name, publisher in publishers.items():
            publisher.publish(f"t/{name}", b"%d" % number, number % 3)
        if not plain:
            publishers["n1"].publish("u", b"%d" % number)
        if world.rng.random() < 0.2:
            a, b = world.rng.sample(names, 2)
            if world.rng.random() < 0.5:
                world.cut(a, b)
            else:
                world.break_links(a, b)
        if world.rng.random() < 0.1:
            world.heal()
        world.run(world.rng.random() * 0.2)
    world.heal()
    world.run(60)
    for subscriber in subscribers:
        by_topic: dict[bytes, list[bytes]] = {}
        for publish in subscriber.received:
            by_topic.setdefault(publish.topic, []).append(publish.payload)
        for name in names:
            assert by_topic[f"t/{name}".encode()] == numbers(count)
    if not plain:
        got = sorted(payload for member in group for payload in member.payloads)
        assert got == sorted(numbers(count))
    for node in world.nodes.values():
        for sender in node.senders.values():
            assert sender.state is State.STREAMING
            assert sender.outbox.size == 0
            assert sender.outbox.on_way_size == 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 2)),
        st.tuples(st.just("big"), st.integers(0, 2)),
        st.tuples(st.just("run"), st.integers(1, 40)),
        st.tuples(st.just("break"), st.just(0)),
        st.tuples(st.just("subscribe"), st.integers(0, 3)),
        st.tuples(st.just("unsubscribe"), st.integers(0, 3)),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.booleans())
def test_two_nodes_agree_whatever_breaks(steps: list[tuple[str, int]], is_plain: bool) -> None:
    world = World(2, plain=("n1", "n2") if is_plain else ())
    subscriber = world.client("n2", "s")
    subscriber.subscribe("t")
    publisher = world.client("n1", "p")
    world.run(3)
    sent: list[bytes] = []
    for action, number in steps:
        payload = b"%d" % len(sent)
        if action in ("publish", "big"):
            payload += b"-" * 70_000 * (action == "big")
            publisher.publish("t", payload, number)
            sent.append(payload)
        elif action == "break":
            world.break_links("n1", "n2")
        elif action == "subscribe":
            subscriber.subscribe(f"f/{number}")
        elif action == "unsubscribe":
            subscriber.unsubscribe(f"f/{number}")
        else:
            world.run(number / 1000)
    world.run(20)
    assert subscriber.payloads == sent
    assert set(world.nodes["n1"].tree.interest_of("n2")) == set(world.nodes["n2"].broker.local_interest())


def test_interest_is_never_without_its_route_while_the_state_comes_anew() -> None:
    world = World(2)
    for number in range(3000):
        world.client("n2", f"s{number}").subscribe(f"some/topic/of/some/length/{number}")
    world.run(3)
    node = world.nodes["n1"]
    assert len(node.tree.interest_of("n2")) == 3000
    world.break_links("n1", "n2")
    world.nodes["n2"].senders["n1"].forget()
    for _ in range(300):
        world.run(0.001)
        assert len(node.tree.interest_of("n2")) == 3000
    assert world.nodes["n2"].counters["n1"].full_states_sent == 2


# --- nodes that go and come ---


def test_what_was_published_while_a_node_was_away_reaches_its_next_self() -> None:
    world = World(2)
    subscriber = world.client("n2", "s")
    subscriber.subscribe("t")
    world.run(1)
    world.crash("n2")
    world.nodes["n1"].member_events([MemberFailed(world.member("n2"))], world.now)
    publisher = world.client("n1", "p")
    publisher.publish("t", b"while away")
    world.run(5)
    world.start("n2")
    subscriber = world.client("n2", "s")
    subscriber.subscribe("t")
    world.introduce("n2")
    world.run(5)
    publisher.publish("t", b"after")
    world.run(5)
    assert subscriber.payloads == [b"while away", b"after"]


def test_a_node_that_stays_away_is_given_up_and_its_drops_are_counted() -> None:
    world = World(2, outbox_age_max=10.0)
    world.client("n2", "s").subscribe("t")
    world.run(1)
    world.crash("n2")
    world.nodes["n1"].member_events([MemberFailed(world.member("n2"))], world.now)
    world.client("n1", "p").publish("t", b"x")
    world.run(5)
    assert world.nodes["n1"].senders["n2"].outbox.size > 0
    world.run(6)
    assert world.nodes["n1"].senders == {}
    assert world.nodes["n1"].broker.router.lookup(b"t").peers == []
    assert world.dropped(DROP_PEER_GONE) + world.dropped(DROP_OUTBOX_AGE) == 1


def test_a_node_that_left_is_dropped_at_once_and_may_come_back() -> None:
    world = World(2)
    world.client("n2", "s").subscribe("t")
    world.run(1)
    node = world.nodes["n1"]
    node.member_events([MemberLeave(world.member("n2"))], world.now)
    assert node.broker.router.lookup(b"t").peers == []
    with pytest.raises(NotAMember, match="n2 has not yet joined"):
        node.hello("n2", "session")
    node.member_events([MemberJoin(world.member("n2"))], world.now)
    world.run(10)
    assert [peer.name for peer in node.broker.router.lookup(b"t").peers] == ["n2"]


def test_this_node_leaves_and_joins_again() -> None:
    world = World(2)
    subscriber = world.client("n2", "s")
    subscriber.subscribe("t")
    world.run(1)
    node = world.nodes["n1"]
    node.left()
    assert node.senders == {}
    node.member_events([MemberJoin(world.member("n2"))], world.now)
    assert node.senders == {}, "not before it joins again"
    node.joined([world.member("n2"), world.member("n1")], world.now)
    world.run(10)
    world.client("n1", "p").publish("t", b"back")
    world.run(1)
    assert subscriber.payloads == [b"back"]


def test_a_member_with_another_address_is_connected_there() -> None:
    world = World(2)
    world.run(1)
    sender = world.nodes["n1"].senders["n2"]
    attempt = sender.attempt
    world.nodes["n1"].member_events([MemberUpdate(world.member("n2", 9999))], world.now)
    assert sender.addr == "n2:9999"
    assert sender.attempt == attempt + 1
    world.run(1)
    assert sender.state is State.STREAMING


def test_a_member_that_becomes_a_plain_one_gets_the_plain_stream() -> None:
    world = World(2)
    subscriber = world.client("n2", "s")
    subscriber.subscribe("t")
    world.run(1)
    world.plain = ("n2",)
    node = world.nodes["n1"]
    node.member_events([MemberUpdate(world.member("n2"))], world.now)
    assert not node.senders["n2"].names_groups
    world.client("n1", "p").publish("t", b"x")
    world.run(2)
    assert subscriber.payloads == [b"x"]


@pytest.mark.parametrize("tags", [{}, {"role": "web"}, {"fed_addr": "no port here:x"}, {"fed_addr": "unix:///tmp/x"}])
def test_a_member_that_takes_no_streams_is_ignored(tags: dict[str, str]) -> None:
    world = World(1)
    node = world.nodes["n1"]
    node.member_events([MemberJoin(Member("agent", "127.0.0.1", 1, tags, MemberStatus.ALIVE))], world.now)
    assert node.senders == {}
    assert len(node.take_events()) == (1 if "fed_addr" in tags else 0)


# --- bounds ---


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest"])
def test_a_full_outbox_drops_by_its_policy_and_counts(policy: str) -> None:
    world = World(2, outbox_bytes_max=200_000, outbox_policy=policy)
    subscriber = world.client("n2", "s")
    subscriber.subscribe("t")
    world.run(1)
    world.cut("n1", "n2")
    publisher = world.client("n1", "p")
    for number in range(1000):
        publisher.publish("t", b"%04d" % number + b"-" * 996)
    assert world.nodes["n1"].senders["n2"].outbox.size <= 200_000
    assert not world.nodes["n1"].senders["n2"].congested, "a node that is away holds nobody up"
    world.heal()
    world.run(10)
    got = [int(payload[:4]) for payload in subscriber.payloads]
    assert len(got) + world.dropped(DROP_OUTBOX_FULL) == 1000
    assert 100 < len(got) < 200
    first = 1000 - len(got) if policy == "drop_oldest" else 0
    assert got == list(range(first, first + len(got)))


def test_old_messages_are_dropped_and_expiry_goes_on_while_waiting() -> None:
    world = World(2, outbox_age_max=30.0)
    subscriber = world.client("n2", "s")
    subscriber.subscribe("t")
    world.run(1)
    world.cut("n1", "n2")
    publisher = world.client("n1", "p")
    publisher.publish("t", b"too old")
    world.run(25)
    publisher.publish("t", b"expired", expiry=5)
    publisher.publish("t", b"alive", expiry=60)
    world.run(10)
    world.heal()
    world.run(10)
    assert subscriber.payloads == [b"alive"]
    assert 40 <= subscriber.received[0].message_expiry_interval <= 50
    assert world.dropped(DROP_OUTBOX_AGE) == 1


def test_a_message_larger_than_the_window_travels_alone() -> None:
    world = World(2)
    subscriber = world.client("n2", "s")
    subscriber.subscribe("t")
    world.run(1)
    publisher = world.client("n1", "p")
    for number in range(3):
        publisher.publish("t", b"%d" % number * 5_000_000)
    world.run(2)
    assert [len(payload) for payload in subscriber.payloads] == [5_000_000] * 3


# --- nonsense from another node ---


def stream_of(world: World) -> int:
    receiver = world.nodes["n1"].receiver("n2")
    receiver.hello("a session")
    return receiver.open_stream(True, world.now)


def test_unknown_events_are_skipped_acknowledged_and_counted() -> None:
    world = World(2)
    receiver = world.nodes["n1"].receiver("n2")
    stream = stream_of(world)
    frames = b"\x63\0\0\0\0\3abc" + b"\1\x10\0\0\0\3\0\0a" + b"\1\0\0\0\0\3\0\0b"
    assert receiver.receive_batch(stream, 0, 3, frames, world.now) == 2
    assert receiver.counters.dropped[SKIP_UNKNOWN] == 2
    assert world.nodes["n1"].tree.interest_of("n2") == [(b"", b"b")]
    event = pb.Event.FromString(b"\x08\x03" + b"\xfa\x01\x02hi")
    assert receiver.receive_event(stream, event, world.now) == 3
    assert receiver.counters.dropped[SKIP_UNKNOWN] == 3


@given(st.binary(max_size=200), st.integers(0, 10))
def test_garbage_never_does_harm(data: bytes, count: int) -> None:
    world = World(2)
    receiver = world.nodes["n1"].receiver("n2")
    stream = stream_of(world)
    try:
        assert receiver.receive_batch(stream, 0, count, data, world.now) == count - 1
    except StreamError as error:
        assert error.malformed  # noqa: PT017
    assert receiver.next_event_id <= max(count, len(data))


@pytest.mark.parametrize(
    ("data", "count", "text"),
    [
        (b"\1\0\0", 1, "inside the header of its frame 0"),
        (b"\1\0\0\0\0\x09abc", 1, "body of 9 bytes, the batch has 3 left"),
        (b"", 1, "batch of 1 events has 0 frames"),
        (b"\6\0\0\0\0\0\7\0\0\0\0\0", 1, "batch of 1 events has more frames"),
    ],
)
def test_frames_that_cannot_be_told_apart_end_the_stream(data: bytes, count: int, text: str) -> None:
    world = World(2)
    stream = stream_of(world)
    with pytest.raises(StreamError, match=text) as caught:
        world.nodes["n1"].receiver("n2").receive_batch(stream, 0, count, data, world.now)
    assert caught.value.malformed


@pytest.mark.parametrize(
    "event",
    [
        pb.Event(message=pb.Message(topic_name="a/#", payload=b"x")),
        pb.Event(message=pb.Message(topic_name="", payload=b"x")),
        pb.Event(message=pb.Message(topic_name="t", qos=3)),
        pb.Event(message=pb.Message(topic_name="t", payload_format=7)),
        pb.Event(message=pb.Message(topic_name="t", user_properties=[pb.UserProperty(K=b"\xff", V=b"")])),
        pb.Event(message=pb.Message(topic_name="t", content_type="\0")),
        pb.Event(unsubscribe=pb.Unsubscribe(topic_name="$share/x")),
    ],
)
def test_a_bad_plain_event_is_skipped_acknowledged_and_counted(event: pb.Event) -> None:
    world = World(2)
    receiver = world.nodes["n1"].receiver("n2")
    assert receiver.receive_event(stream_of(world), event, world.now) == 0
    assert receiver.counters.dropped[SKIP_MALFORMED] == 1
    assert receiver.next_event_id == 1


def test_events_that_were_seen_are_acknowledged_again_and_a_gap_ends_the_stream() -> None:
    world = World(2)
    receiver = world.nodes["n1"].receiver("n2")
    stream = stream_of(world)
    event = pb.Event(id=0, Subscribe=pb.Subscribe(topic_filter="a"))
    assert receiver.receive_event(stream, event, world.now) == 0
    assert receiver.receive_event(stream, event, world.now) == 0
    assert receiver.counters.dropped[SKIP_DUPLICATE] == 1
    event.id = 5
    with pytest.raises(StreamError, match="event 5 came, 1 is the next"):
        receiver.receive_event(stream, event, world.now)
    assert receiver.hello("a session") == (False, 1)
    with pytest.raises(StreamError, match="event 5 came"):
        receiver.receive_event(receiver.open_stream(True, world.now), event, world.now)
    assert receiver.hello("a session") == (True, 0), "it could not go on: a full state"


def test_a_second_stream_of_the_session_ends_the_first() -> None:
    world = World(2)
    receiver = world.nodes["n1"].receiver("n2")
    first = stream_of(world)
    second = receiver.open_stream(True, world.now)
    with pytest.raises(StreamError, match="replaced by a newer stream"):
        receiver.receive_event(first, pb.Event(id=0), world.now)
    receiver.close_stream(first)
    assert receiver.receive_event(second, pb.Event(id=0), world.now) == 0


def test_a_batch_that_is_refused_is_given_up_and_the_rest_goes_on() -> None:
    world = World(2)
    subscriber = world.client("n2", "s")
    subscriber.subscribe("t")
    world.run(1)
    publisher = world.client("n1", "p")
    sender = world.nodes["n1"].senders["n2"]
    publisher.publish("t", b"poison")
    batches = sender.take_batches(world.now)
    assert len(batches) == 1
    publisher.publish("t", b"next")
    sender.refused(sender.attempt, "cannot be read", world.now)
    world.run(5)
    assert subscriber.payloads == [b"next"]


def test_a_node_that_does_not_answer_is_tried_again_at_growing_intervals() -> None:
    world = World(2)
    world.cut("n1", "n2")
    sender = world.nodes["n1"].senders["n2"]
    world.run(60)
    assert 12 <= sender.attempt <= 30
    assert sender.reason == "unreachable"
    world.heal()
    world.run(6)
    assert sender.state is State.STREAMING


def test_a_retained_message_of_the_api_goes_to_every_node() -> None:
    world = World(3)
    world.run(1)
    node = world.nodes["n1"]
    node.broker.publish(Message(b"r", b"x", 1, True), world.now)
    world.run(1)
    for other in world.nodes.values():
        message = other.broker.retained.get(b"r")
        assert message is not None
        assert message.payload == b"x"


def test_a_state_from_the_past_brings_nothing_back() -> None:
    world = World(1)
    one = world.client("n1", "c1")
    one.publish("deleted", b"old", retain=True)
    one.publish("changed", b"old", retain=True)
    world.start("n2")
    world.introduce("n2")
    world.cut("n1", "n2")
    two = world.client("n2", "c2")
    two.publish("changed", b"new", retain=True)
    two.publish("deleted", b"", retain=True)
    world.heal()
    world.run(10)
    for node in world.nodes.values():
        assert {(m.topic, m.payload) for m in node.broker.retained.messages()} == {(b"changed", b"new")}


def test_values_from_before_two_nodes_met_become_one() -> None:
    world = World(0)
    for name in ("n1", "n2"):
        world.start(name)
        world.client(name, "c").publish("t", name.encode(), retain=True)
    world.introduce("n1")
    world.run(5)
    for node in world.nodes.values():
        assert [m.payload for m in node.broker.retained.messages()] == [b"n1"]
