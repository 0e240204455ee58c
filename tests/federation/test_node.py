"""Whole nodes on virtual time: who gets what while links lag, break and come back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.codec.packets import (
    Publish,
)
from effort import effort
from federation.stream import effects
from federation.stream import tree as tree_module
from federation.stream.state import State
from federation_world import World, numbers

# --- without faults ---


@pytest.mark.parametrize("go_only", [(), ("n1",), ("n2",), ("n1", "n2")])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_reaches_a_subscriber_on_another_node(go_only: tuple[str, ...], qos: int) -> None:
    world = World(2, go_only=go_only)
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


@pytest.mark.parametrize("go_only", [(), ("n2",)])
def test_interest_and_retained_messages_from_before_the_connection_are_told(go_only: tuple[str, ...]) -> None:
    world = World(1, go_only=go_only)
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
    world = World(2, go_only=("n2",))
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


@pytest.mark.thorough
@pytest.mark.parametrize("go_only", [(), ("n1", "n2", "n3", "n4", "n5")])
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_or_doubled_or_out_of_order_while_links_break(seed: int, go_only: tuple[str, ...]) -> None:
    world = World(5, seed, go_only)
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
        if not go_only:
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
    if not go_only:
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


@settings(max_examples=effort(120))
@given(STEPS, st.booleans())
def test_two_nodes_agree_after_any_faults(steps: list[tuple[str, int]], is_go_only: bool) -> None:
    world = World(2, go_only=("n1", "n2") if is_go_only else ())
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


@pytest.mark.thorough
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


@pytest.mark.interpreted
def test_a_full_tree_makes_room_for_the_state_that_replaces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_module, "FILTERS_MAX", 10)
    monkeypatch.setattr(effects, "FILTERS_MAX", 10)
    world = World(2)
    client = world.client("n2", "s")
    client.subscribe(*[f"old/{number}" for number in range(8)])
    world.run(1)
    node = world.nodes["n1"]
    assert len(node.tree.interest_of("n2")) == 8
    world.break_links("n1", "n2")
    client.unsubscribe(*[f"old/{number}" for number in range(8)])
    client.subscribe(*[f"new/{number}" for number in range(9)])
    world.nodes["n2"].senders["n1"].forget()
    world.run(10)
    assert sorted(node.tree.interest_of("n2")) == [(b"", b"new/%d" % number) for number in range(9)]
