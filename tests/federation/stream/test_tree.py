"""The federation tree: which nodes want a topic, and what it tells the router and the senders."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from broker.broker import Broker
from broker.config.settings import MqttSettings
from broker.errors import MqttError
from broker.hooks import InterestObserver
from broker.message import Message
from federation.links.bridging.bridging import bridging_of
from federation.links.bridging.routes import needs_numbers
from federation.stream.counters import SkipReason, StreamCounters
from federation.stream.full_state import LocalState
from federation.stream.outbox import Outbox
from federation.stream.sender import Outlets, PeerSender
from federation.stream.tree import FILTERS_MAX, FederationTree, check_interest
from filter_shapes import SHAPES, bound, memory_of


class World:
    """A tree with nodes n1, n2, … in front of a broker's router."""

    def __init__(self, nodes: int = 2, filters_max: int = FILTERS_MAX) -> None:
        self.broker = Broker(replace(MqttSettings()), random.Random(1), 0.0)
        self.tree = FederationTree(self.broker.router, filters_max)
        self.broker.forwarder = self.tree
        self.senders = [self.add_node(f"n{number}") for number in range(1, nodes + 1)]

    def add_node(self, name: str) -> PeerSender:
        outbox = Outbox(2**20, 300.0, True, StreamCounters())
        sender = PeerSender(name, True, LocalState(), Outlets(), outbox, random.Random(1))
        self.tree.add_node(sender)
        return sender

    def peers(self, topic: bytes) -> list[str]:
        route = self.tree.route(topic)
        return [] if route is None else [peer.name for peer in route.peers]

    def groups(self, topic: bytes) -> dict[tuple[bytes, bytes], list[str]]:
        route = self.tree.route(topic)
        if route is None:
            return {}
        return {(group.share_name, group.topic_filter): [peer.name for peer in group.peers] for group in route.groups}

    def route_of_router(self, topic: bytes) -> list[str]:
        """As a message is routed: from the cache where it can be."""
        return [peer.name for peer in self.broker.router.lookup(topic).peers]


@pytest.fixture
def world() -> World:
    return World()


def test_a_node_that_wants_a_topic_by_several_filters_is_there_once(world: World) -> None:
    for topic_filter in (b"a/b", b"a/+", b"#"):
        assert world.tree.add_interest("n1", b"", topic_filter)
    assert world.tree.add_interest("n2", b"", b"a/#")
    assert sorted(world.peers(b"a/b")) == ["n1", "n2"]
    assert world.peers(b"b") == ["n1"]
    assert world.peers(b"$SYS") == []
    assert world.tree.route(b"$SYS") is None


def test_shared_groups_keep_their_nodes_in_order_of_arrival(world: World) -> None:
    for name in ("n2", "n1"):
        world.tree.add_interest(name, b"g", b"a/+")
    world.tree.add_interest("n1", b"h", b"a/+")
    world.tree.add_interest("n2", b"", b"a/+")
    assert world.groups(b"a/x") == {(b"g", b"a/+"): ["n2", "n1"], (b"h", b"a/+"): ["n1"]}
    assert world.peers(b"a/x") == ["n2"]
    world.tree.remove_interest("n2", b"g", b"a/+")
    world.tree.remove_interest("n1", b"h", b"a/+")
    assert world.groups(b"a/x") == {(b"g", b"a/+"): ["n1"]}
    world.tree.remove_interest("n1", b"g", b"a/+")
    assert world.groups(b"a/x") == {}
    assert world.peers(b"a/x") == ["n2"]
    world.tree.remove_interest("n2", b"", b"a/+")
    assert world.tree.route(b"a/x") is None


def test_interest_is_kept_once_and_its_removal_may_come_late(world: World) -> None:
    for _ in range(2):
        assert world.tree.add_interest("n1", b"", b"a")
    assert world.tree.interest_of("n1") == [(b"", b"a")]
    for _ in range(2):
        world.tree.remove_interest("n1", b"", b"a")
    assert world.tree.interest_of("n1") == []
    assert world.peers(b"a") == []


@pytest.mark.parametrize(
    ("share_name", "topic_filter"),
    [(b"", b""), (b"", b"a/#/b"), (b"g", b""), (b"g/h", b"a"), (b"g+", b"a"), (b"\xff", b"a"), (b"g", b"a+")],
)
def test_a_filter_that_no_client_could_subscribe_to_is_refused(
    world: World, share_name: bytes, topic_filter: bytes
) -> None:
    with pytest.raises(MqttError):
        check_interest(share_name, topic_filter)
    assert not world.tree.add_interest("n1", share_name, topic_filter)
    assert world.senders[0].counters.dropped[SkipReason.FILTER] == 1
    assert world.tree.interest_of("n1") == []


def test_the_filters_of_one_node_are_bounded() -> None:
    world = World(filters_max=2)
    assert world.tree.add_interest("n1", b"", b"a")
    assert not world.tree.is_full("n1")
    assert world.tree.add_interest("n1", b"", b"b")
    assert world.tree.is_full("n1")
    assert not world.tree.add_interest("n1", b"", b"c")
    assert world.tree.add_interest("n1", b"", b"a")
    assert world.senders[0].counters.dropped[SkipReason.FILTERS_FULL] == 1
    assert world.tree.add_interest("n2", b"", b"c")


def test_a_replaced_interest_keeps_the_routes_of_filters_that_stay() -> None:
    world = World(filters_max=2)
    world.tree.add_interest("n1", b"", b"goes")
    world.tree.add_interest("n1", b"g", b"stays")
    world.tree.replace_interest("n1", {(b"g", b"stays"): b"", (b"", b"comes"): b""})
    assert world.tree.interest_of("n1") == [(b"g", b"stays"), (b"", b"comes")]
    assert world.peers(b"goes") == []
    assert world.groups(b"stays") == {(b"g", b"stays"): ["n1"]}
    assert world.peers(b"comes") == ["n1"]


def test_a_node_goes_with_its_interest(world: World) -> None:
    for name in ("n1", "n2"):
        world.tree.add_interest(name, b"", b"a")
        world.tree.add_interest(name, b"g", b"a")
    assert [peer.name for peer in world.tree.peers()] == ["n1", "n2"]
    world.tree.remove_node("n1")
    assert [peer.name for peer in world.tree.peers()] == ["n2"]
    assert world.peers(b"a") == ["n2"]
    assert world.groups(b"a") == {(b"g", b"a"): ["n2"]}
    world.tree.replace_interest("n2", {})
    assert world.tree.route(b"a") is None
    assert list(world.tree.members) == ["n2"]


def test_the_router_forgets_routes_that_change(world: World) -> None:
    assert world.route_of_router(b"a/b") == []
    world.tree.add_interest("n1", b"", b"a/b")
    assert world.route_of_router(b"a/b") == ["n1"]
    world.tree.add_interest("n2", b"", b"a/+")
    assert sorted(world.route_of_router(b"a/b")) == ["n1", "n2"]
    world.tree.remove_interest("n2", b"", b"a/+")
    world.tree.remove_interest("n1", b"", b"a/b")
    assert world.route_of_router(b"a/b") == []


def test_every_sender_learns_of_subscriptions_on_this_node(world: World) -> None:
    world.tree.interest_added(b"", b"a")
    world.tree.interest_added(b"g", b"b")
    world.tree.interest_removed(b"", b"c")
    for sender in world.senders:
        assert sender.full_state.interest == {(b"", b"a"): True, (b"g", b"b"): True, (b"", b"c"): False}


def test_messages_for_one_node(world: World) -> None:
    world.tree.tell("n1", Message(b"a", b"x", 0, True), 1.0)
    assert [sender.counters.messages_queued for sender in world.senders] == [1, 0]


@pytest.mark.thorough
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share_name", [b"", b"g"])
def test_memory(shape: str, share_name: bytes) -> None:
    """1 kB for each filter that another node wants and 6 times its bytes, as they come from the wire."""
    filters = SHAPES[shape]()
    world = World()

    def make() -> None:
        for topic_filter in filters:
            assert world.tree.add_interest("n1", share_name, bytes(bytearray(topic_filter)))

    taken = memory_of(make)
    assert len(world.tree.interest_of("n1")) == len(filters)
    assert taken <= bound(filters)


class Observed(InterestObserver):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def interest_added(self, node: str, share_name: bytes, topic_filter: bytes, note: bytes) -> None:
        self.calls.append((node, share_name, topic_filter, note))

    def interest_removed(self, node: str, share_name: bytes, topic_filter: bytes) -> None:
        self.calls.append((node, share_name, topic_filter))

    def note_changed(self, node: str, topic_filter: bytes, note: bytes) -> None:
        self.calls.append((node, topic_filter, note))


def test_a_route_names_the_nodes_with_links(world: World) -> None:
    bridging_of(world.broker)
    world.tree.add_interest("n1", b"", b"a/#")
    world.tree.add_interest("n1", b"", b"a/b", b"0\nx")
    world.tree.add_interest("n2", b"", b"a/b/c", b"1n\nx")
    for topic, peers, is_numbered in [(b"a/x", [], False), (b"a/b", ["n1"], False), (b"a/b/c", ["n2"], True)]:
        route = world.tree.route(topic)
        assert route is not None
        assert [peer.name for peer, _ in route.notes] == peers
        assert [needs_numbers(note) for _, note in route.notes] == [is_numbered] * len(peers)
    assert world.broker.router.lookup(b"a/b/c").bridge is not None
    world.tree.add_interest("n2", b"", b"a/b/c", b"")
    assert world.broker.router.lookup(b"a/b/c").bridge is None


def test_the_observer_sees_interest_of_other_nodes_and_their_links(world: World) -> None:
    observed = world.broker.interest_observer = Observed()
    tree = world.tree
    tree.add_interest("n1", b"", b"a/#")
    tree.add_interest("n1", b"", b"a/#", b"0 x")
    tree.add_interest("n1", b"", b"a/#", b"0 x")
    tree.add_interest("n2", b"g", b"b")
    assert observed.calls == [("n1", b"", b"a/#", b""), ("n1", b"a/#", b"0 x"), ("n2", b"g", b"b", b"")]
    assert tree.remote_interest() == [("n1", b"", b"a/#", b"0 x"), ("n2", b"g", b"b", b"")]
    observed.calls.clear()
    tree.replace_interest("n1", {(b"", b"a/#"): b"", (b"", b"c"): b"1 y"})
    tree.remove_node("n2")
    tree.remove_interest("n1", b"", b"c")
    assert observed.calls == [("n1", b"a/#", b""), ("n1", b"", b"c", b"1 y"), ("n2", b"g", b"b"), ("n1", b"", b"c")]
    assert world.peers(b"a/x") == ["n1"]
