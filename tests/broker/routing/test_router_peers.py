"""Other nodes: messages to and from them, the choice of a node for a shared group, congested nodes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.codec.packets import Publish
from broker.codec.writer import encode_publish
from broker.hooks import Forwarder, Peer, RemoteGroup, RemoteRoute
from broker.message import Message
from work import executed_lines


class Outbox(Peer):
    def __init__(self, name: str, names_groups: bool = True) -> None:
        super().__init__(name, names_groups)
        self.messages: list[tuple[bytes, bytes, tuple[tuple[bytes, bytes], ...]]] = []
        self.runs: list[tuple[bytes, int, int]] = []

    def forward(self, message: Message, groups: tuple[tuple[bytes, bytes], ...], now: float) -> None:
        self.messages.append((message.topic, message.payload, groups))

    def forward_run(self, data: bytes, count: int, version: int, qos: int, now: float) -> None:
        self.runs.append((data, count, version))

    def take(self) -> list[tuple[bytes, bytes, tuple[tuple[bytes, bytes], ...]]]:
        messages, self.messages = self.messages, []
        return messages


class Federation(Forwarder):
    """`interest`: which peers want a topic; `groups`: which have members of a group for it."""

    def __init__(self, *peers: Outbox) -> None:
        self.all = list(peers)
        self.interest: dict[bytes, list[Peer]] = {}
        self.groups: dict[bytes, list[RemoteGroup]] = {}
        self.changes: list[tuple[str, bytes, bytes]] = []

    def interest_added(self, share_name: bytes, topic_filter: bytes) -> None:
        self.changes.append(("+", share_name, topic_filter))

    def interest_removed(self, share_name: bytes, topic_filter: bytes) -> None:
        self.changes.append(("-", share_name, topic_filter))

    def route(self, topic: bytes) -> RemoteRoute | None:
        peers = self.interest.get(topic, [])
        groups = self.groups.get(topic, [])
        return RemoteRoute(peers, groups) if peers or groups else None

    def peers(self) -> list[Peer]:
        return list(self.all)


def join(world: Any, *peers: Outbox) -> Federation:
    federation = Federation(*peers)
    world.broker.forwarder = federation
    world.broker.router.forget_routes()
    return federation


def test_interest_is_announced_once_for_each_filter(world: Any) -> None:
    federation = join(world)
    one, two = world.connect("one"), world.connect("two", expiry=100)
    for client in (one, two):
        client.subscribe(b"a", b"a", b"+/b", b"$share/g/a", b"$share/h/a")
        client.subscribe(b"a", qos=0)
    added = [("+", b"", b"a"), ("+", b"", b"+/b"), ("+", b"g", b"a"), ("+", b"h", b"a")]
    assert federation.changes == added
    assert sorted(world.broker.local_interest()) == sorted((share, f) for _, share, f in added)
    federation.changes.clear()
    one.unsubscribe(b"a", b"$share/g/a", b"never")
    one.disconnect()
    two.cut()
    assert federation.changes == []
    two = world.connect("two", clean_start=False)
    two.unsubscribe(b"+/b")
    assert federation.changes == [("-", b"", b"+/b")]
    two.disconnect()
    assert sorted(federation.changes) == sorted(("-", share, f) for _, share, f in added)
    assert world.broker.local_interest() == []
    assert len(world.broker.router.tree) == 0


def test_messages_go_to_nodes_with_interest(world: Any) -> None:
    near, far = Outbox("near"), Outbox("far")
    join(world, near, far).interest[b"a"] = [near]
    publisher = world.connect("p", auto=False)
    for qos in (0, 1, 2):
        publisher.publish(b"a", b"%d" % qos, qos, packet_id=qos)
    publisher.publish(b"b", b"nobody", 1, packet_id=9)
    assert [len(data) for data, _, _ in near.runs] == [7, 9]
    assert near.messages == [(b"a", b"2", ())]
    assert (far.messages, far.runs) == ([], [])
    assert [p.reason_code for p in publisher.packets] == [0, 0, 0x10]


@pytest.mark.parametrize(("version", "properties"), [(3, b""), (4, b""), (5, b""), (5, b"\x26\0\x01k\0\x01v")])
def test_a_run_is_forwarded_unchanged(world: Any, version: int, properties: bytes) -> None:
    peer = Outbox("near")
    join(world, peer).interest[b"a"] = [peer]
    run = encode_publish(version, b"a", b"xyz", 0, False, False, 0, properties) * 300
    world.connect("p", version).send_bytes(run)
    assert b"".join(data for data, _, _ in peer.runs) == run
    assert sum(count for _, count, _ in peer.runs) == 300
    assert {v for _, _, v in peer.runs} == {5 if version == 5 else 4}
    assert world.broker.counters.messages_to_peers == 300


def test_retained_messages_go_to_every_node(world: Any) -> None:
    peers = [Outbox("a"), Outbox("b", names_groups=False)]
    join(world, *peers)
    world.publish(b"t", b"kept", retain=True)
    world.publish(b"t", b"", retain=True)
    for peer in peers:
        assert peer.messages == [(b"t", b"kept", ()), (b"t", b"", ())]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_group_gets_one_copy(world: Any, qos: int) -> None:
    """Available local members first, then the nodes round robin, then disconnected local members."""
    near, far = Outbox("near"), Outbox("far")
    federation = join(world, near, far)
    federation.groups[b"a"] = [RemoteGroup(b"g", b"a", [near, far])]
    member = world.connect("m", expiry=100)
    member.subscribe(b"$share/g/a")

    def copies(times: int) -> tuple[int, int, int]:
        for _ in range(times):
            world.publish(b"a", qos=qos)
        assert all(groups == ((b"g", b"a"),) for _, _, groups in near.messages + far.messages)
        assert near.runs == far.runs == []
        waiting = world.broker.sessions["m"].queue_length() if "m" in world.broker.sessions else 0
        return len(member.take_publishes()) + waiting, len(near.take()), len(far.take())

    assert copies(4) == (4, 0, 0)
    member.cut()
    assert copies(4) == (0, 2, 2)
    far.reachable = False
    assert copies(4) == (0, 4, 0)
    near.reachable = False
    assert copies(4) == (4, 0, 0)
    world.broker.close_client("m", True, world.now)
    world.broker.router.forget_routes()
    assert sum(copies(4)) == 4  # no member is reachable: the message waits for a node


def test_a_node_that_does_not_name_groups(world: Any) -> None:
    """It delivers every message to all its groups, so it is chosen for them when it gets a message anyway."""
    go, other = Outbox("go", names_groups=False), Outbox("other")
    federation = join(world, go, other)
    federation.interest[b"a"] = [go, other]
    federation.groups[b"a"] = [RemoteGroup(b"g", b"a", [other, go]), RemoteGroup(b"h", b"a", [other])]
    member = world.connect("m")
    member.subscribe(b"$share/g/a")
    for _ in range(3):
        world.publish(b"a", qos=1)
    assert member.take_publishes() == []
    assert len(go.messages) == 3
    assert [groups for _, _, groups in other.messages] == [((b"h", b"a"),)] * 3


@pytest.mark.parametrize("reverse", [False, True])
def test_a_node_that_is_chosen_for_one_group_takes_its_others(world: Any, reverse: bool) -> None:
    """A Go broker that gets the message for a group that no other node has delivers it to its other groups too."""
    go = Outbox("go", names_groups=False)
    federation = join(world, go)
    groups = [RemoteGroup(b"g", b"a", [go]), RemoteGroup(b"h", b"a", [go])]
    federation.groups[b"a"] = groups[::-1] if reverse else groups
    member = world.connect("m")
    member.subscribe(b"$share/h/a")
    world.publish(b"a", qos=1)
    assert len(go.messages) == 1
    assert set(go.messages[0][2]) == {(b"g", b"a"), (b"h", b"a")}
    assert member.take_publishes() == []


def test_a_message_of_another_node_is_not_forwarded(world: Any) -> None:
    peer = Outbox("near")
    federation = join(world, peer)
    federation.interest[b"a"] = [peer]
    federation.groups[b"a"] = [RemoteGroup(b"far", b"a", [peer])]
    ordinary, g, h = world.connect("o"), world.connect("g"), world.connect("h")
    ordinary.subscribe(b"a", no_local=True)
    g.subscribe(b"$share/g/a")
    h.subscribe(b"$share/h/+")
    router = world.broker.router

    def receive(groups: tuple[tuple[bytes, bytes], ...] | None, retain: bool = False) -> tuple[int, ...]:
        router.publish_remote(Message(b"a", b"x", 1, retain), groups, None, world.now)
        world.flush()
        return tuple(len(client.take_publishes()) for client in (ordinary, g, h))

    assert receive(()) == (1, 0, 0)
    assert receive(None) == (1, 1, 1)
    assert receive(((b"g", b"a"),)) == (1, 1, 0)
    assert receive(((b"h", b"+"), (b"g", b"a"))) == (1, 1, 1)
    assert world.drops() == {}
    assert receive(((b"g", b"+"), (b"unknown", b"a"))) == (1, 0, 0)
    assert world.drops() == {"group_gone": 2}, "their last members went meanwhile"
    assert receive((), retain=True) == (1, 0, 0)
    assert world.broker.retained.get(b"a") is not None
    router.store_retained(Message(b"a", b"", 0, True), world.now)
    assert world.broker.retained.get(b"a") is None
    assert (peer.messages, peer.runs) == ([], [])
    assert world.broker.counters.messages_from_peers == 6


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("grouped", [False, True])
def test_a_block_of_another_node(world: Any, version: int, grouped: bool) -> None:
    """Any QoS, RETAIN, properties, runs: delivered to ordinary local subscribers only."""
    peer = Outbox("near")
    join(world, peer).interest[b"a"] = [peer]
    clients = [world.connect("c4", 4), world.connect("c5", 5)]
    for client in clients:
        client.subscribe(b"a")
    if grouped:
        world.connect("m").subscribe(b"$share/g/a")
    properties = b"\x26\0\x01k\0\x01v" if version == 5 else b""
    expiry = 60 if version == 5 else -1
    parts = [encode_publish(version, b"a", b"%d" % (number % 10), 0, False, False, 0, b"") for number in range(2000)]
    parts.append(encode_publish(version, b"a", b"one", 1, False, False, 77, properties, expiry))
    parts.append(encode_publish(version, b"a", b"two", 2, True, True, 77, properties))
    parts += [encode_publish(version, b"a", b"\0" * 300, 0, False, False, 0, properties)] * 2
    parts.append(encode_publish(version, b"a", b"bare", 1, False, False, 65535, properties))
    parts.append(encode_publish(version, b"nobody", b"", 0, False, False, 0, b""))
    block = b"".join(parts)
    assert world.broker.router.publish_block(block, version, None, world.now, 0, len(block)) == len(block)
    assert world.broker.counters.messages_from_peers == 2006
    world.flush()
    for client in clients:
        publishes = client.take_publishes()
        assert len(publishes) == 2005
        assert [p.payload for p in publishes[:2000]] == [b"%d" % (number % 10) for number in range(2000)]
        assert [(p.qos, p.retain, p.dup) for p in publishes[2000:]] == [
            (1, False, False),
            (2, False, False),
            (0, False, False),
            (0, False, False),
            (1, False, False),
        ]
        assert (publishes[-1].payload, publishes[-1].packet_id) == (b"bare", publishes[2001].packet_id + 1)
        if client.version == 5 == version:
            assert publishes[2000].message_expiry_interval == 60
            assert publishes[2002].properties == publishes[2003].properties == properties
            assert publishes[2004].properties == properties
    assert world.broker.retained.get(b"a").payload == b"two"
    assert (peer.messages, peer.runs) == ([], [])
    if grouped:
        assert world.clients[world.broker.sessions["m"].connection].take_publishes() == []


GOOD = encode_publish(4, b"a", b"x", 0, False, False, 0, b"")


@pytest.mark.parametrize(
    "bad",
    [
        b"\x30",
        b"\x30\x05\0\x01a",
        b"\xc0\0",
        b"\x30\xff\xff\xff\xff\xff\x01",
        b"\x30\x05\0\x01#xx",
        b"\x32\x06\0\x01a\0\0x",
        b"\x32\x06\0\x01#\0\1x",
        b"\x30\x02\0\0",
        b"\x30\x01\0",
    ],
)
def test_a_block_that_is_damaged(world: Any, bad: bytes) -> None:
    """The fault is counted, and the packets before it are delivered."""
    client = world.connect("c")
    client.subscribe(b"#")
    block = GOOD * 2 + bad
    assert world.broker.router.publish_block(block, 4, None, world.now, 0, len(block)) == len(block)
    world.flush()
    assert client.take_payloads() == [b"x", b"x"]
    assert world.drops() == {"from_peer_invalid": 1}


@pytest.mark.parametrize("qos", [0, 1])
def test_a_refused_packet_does_not_affect_the_others(make_world: Any, qos: int) -> None:
    """This node allows fewer levels than the node of the publisher."""
    world = make_world(max_topic_levels=3)
    client = world.connect("c")
    client.subscribe(b"#")
    deep = encode_publish(4, b"a/b/c/d", b"y", qos, False, False, qos, b"")
    block = deep + GOOD + deep + GOOD
    assert world.broker.router.publish_block(block, 4, None, world.now, 0, len(block)) == len(block)
    world.flush()
    assert client.take_payloads() == [b"x", b"x"]
    assert world.drops() == {"from_peer_invalid": 2}


def test_a_length_without_an_end_costs_constant_work(world: Any) -> None:
    """400 kB of continuation bytes are not read as one number."""
    block = b"\x30" + b"\xff" * 400_000
    assert executed_lines(lambda: world.broker.router.publish_block(block, 4, None, world.now, 0, len(block))) < 1_000
    assert world.drops() == {"from_peer_invalid": 1}


def test_any_bytes_as_a_block(world: Any) -> None:
    world.connect("c").subscribe(b"#")
    rng = random.Random(3)
    good = GOOD * 3 + encode_publish(5, b"a", b"x", 1, True, False, 3, b"\x26\0\x01k\0\x01v", 6)
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        size = rng.randrange(len(data) + 1)
        world.broker.router.publish_block(bytes(data), rng.choice([4, 5]), None, world.now, 0, size)
        world.flush()


# --- a congested peer ---


def test_a_congested_peer_holds_publishers(make_world: Any) -> None:
    world = make_world(publisher_hold_max=1.0)
    peer = Outbox("near")
    join(world, peer).interest[b"a"] = [peer]
    publishers = [world.connect(f"p{number}") for number in range(2)]
    peer.congested = True
    for publisher in publishers:
        publisher.publish(b"a", qos=1)
        publisher.publish(b"a")
    assert [publisher.reading for publisher in publishers] == [False, False]
    assert world.broker.counters.publishers_held == 2
    world.advance(0.9)
    assert not publishers[0].reading
    world.advance(0.1)
    assert [publisher.reading for publisher in publishers] == [True, True]
    assert (len(peer.messages), [count for _, count, _ in peer.runs]) == (1, [1, 1, 1])
    # Publishers are held once for each backlog.
    for _ in range(5):
        publishers[0].publish(b"a")
        world.advance(0.9)
    assert publishers[0].reading
    peer.congested = False
    world.advance(1.0)
    peer.congested = True
    publishers[0].publish(b"a")
    assert not publishers[0].reading
    publishers[0].cut()
    world.advance(1.0)
    peer.congested = False
    world.advance(2.0)
    assert world.broker.peer_holds == {}


def test_a_peer_with_room_again_releases_at_once(make_world: Any) -> None:
    world = make_world(publisher_hold_max=1.0)
    peer = Outbox("near")
    join(world, peer).interest[b"a"] = [peer]
    publisher = world.connect("p")
    peer.congested = True
    publisher.publish(b"a", qos=1)
    world.advance(0.1)
    assert not publisher.reading
    peer.congested = False
    world.advance(0.0)
    assert publisher.reading
    assert world.broker.peer_holds == {}


def test_messages_of_the_server_hold_no_publisher(world: Any) -> None:
    peer = Outbox("near")
    join(world, peer).interest[b"a"] = [peer]
    peer.congested = True
    world.broker.publish(Message(b"a", b"x", 1, False), world.now)
    assert len(peer.messages) == 1
    assert world.broker.peer_holds == {}


def test_properties_reach_the_peer_in_the_message(world: Any) -> None:
    seen: list[Message] = []

    class Keeper(Outbox):
        def forward(self, message: Message, groups: tuple[tuple[bytes, bytes], ...], now: float) -> None:
            seen.append(message)

    peer = Keeper("near")
    join(world, peer).interest[b"a"] = [peer]
    publisher = world.connect("p")
    publisher.send(Publish(b"a", b"x", 2, False, False, 5, b"\x26\0\x01k\0\x01v", 60))
    (message,) = seen
    assert (message.qos, message.properties, message.expires_at) == (2, b"\x26\0\x01k\0\x01v", world.now + 60)
    assert message.client_id == "p"
