"""Retained messages on every node of the federation."""

from __future__ import annotations

import itertools

import pytest

from broker.message import Message
from federation_world import World


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
    world.run(0.01)
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


@pytest.mark.parametrize("names", list(itertools.permutations(("n1", "n2", "n3"))))
@pytest.mark.parametrize("meets_writer_first", [True, False])
def test_all_nodes_have_what_was_written_last(names: tuple[str, str, str], meets_writer_first: bool) -> None:
    """In whatever order they meet."""
    writer, third, newcomer = names
    world = World(0)
    for name in names:
        world.start(name)
    world.meet(writer, third)
    world.run(1)
    for name in (writer, newcomer):
        world.client(name, "c").publish("t", name.encode(), retain=True)
        world.run(1)
    for other in (writer, third) if meets_writer_first else (third, writer):
        world.meet(newcomer, other)
        world.run(1)
    for node in world.nodes.values():
        assert [m.payload for m in node.broker.retained.messages()] == [newcomer.encode()]


@pytest.mark.parametrize("writer", ["n1", "n3"])
@pytest.mark.parametrize("payload", [b"new", b""])
def test_retained_changes_of_a_node_that_others_gave_up_reach_all(writer: str, payload: bytes) -> None:
    """Whatever the names: a node that holds an older value of others does not bring it back."""
    world = World(3)
    world.run(1)
    publisher = world.client(writer, "p")
    publisher.publish("t", b"old", retain=True)
    world.run(1)
    others = [name for name in world.nodes if name != writer]
    for other in others:
        world.part(writer, other)
    publisher.publish("t", payload, retain=True)
    world.run(1)
    for other in reversed(others):
        world.meet(writer, other)
        world.run(1)
    for node in world.nodes.values():
        assert [m.payload for m in node.broker.retained.messages()] == ([payload] if payload else [])


def test_the_older_value_of_a_third_node_does_not_replace_that_of_the_writer() -> None:
    world = World(3)
    world.run(1)
    publisher = world.client("n3", "p")
    publisher.publish("t", b"old", retain=True)
    world.run(1)
    world.part("n1", "n2")
    world.part("n1", "n3")
    publisher.publish("t", b"new", retain=True)
    world.run(1)
    world.meet("n1", "n2")  # n1 comes first by name, and has the old value
    world.run(1)
    message = world.nodes["n2"].broker.retained.get(b"t")
    assert message is not None
    assert message.payload == b"new"
    world.meet("n1", "n3")
    world.run(1)
    for node in world.nodes.values():
        assert [m.payload for m in node.broker.retained.messages()] == [b"new"]


def test_a_mend_is_stored_and_delivered_to_nobody() -> None:
    """Go brokers publish each retained message again where a node connects: subscribers of theirs get it as a fresh one."""
    world = World(2)
    reader = world.client("n2", "r")
    reader.subscribe("#")
    world.run(1)
    world.part("n1", "n2")
    publisher = world.client("n1", "p")
    for number in range(50):
        publisher.publish(f"r/{number}", b"x", retain=True)
    world.run(1)
    world.meet("n1", "n2")
    world.run(5)
    assert len(world.nodes["n2"].broker.retained) == 50
    assert reader.received == []
    late = world.client("n2", "late")
    late.subscribe("#")
    world.run(1)
    assert len(late.received) == 50


def test_an_older_message_that_comes_late_is_delivered_and_not_stored() -> None:
    world = World(2)
    reader = world.client("n2", "r")
    reader.subscribe("t")
    world.run(1)
    world.cut("n1", "n2")
    world.client("n1", "p").publish("t", b"older", retain=True)
    world.run(1)
    world.client("n2", "q").publish("t", b"newer", retain=True)
    world.heal()
    world.run(10)
    assert reader.payloads == [b"newer", b"older"]
    for node in world.nodes.values():
        assert [message.payload for message in node.broker.retained.messages()] == [b"newer"]


@pytest.mark.parametrize("writer", ["n1", "n2"])
def test_a_deletion_during_a_cut_stays_one_whoever_gave_up_whom(writer: str) -> None:
    """mosquitto#1040: what was deleted while a bridge was down comes back."""
    world = World(3, outbox_age_max=5.0)
    for name in world.nodes:
        world.client(name, "p").publish(f"of/{name}", b"x", retain=True)
    world.run(1)
    for name in world.nodes:
        if name != writer:
            world.part(writer, name)
    deleting = world.client(writer, "d")
    for name in world.nodes:
        deleting.publish(f"of/{name}", b"", retain=True)
    world.run(30)
    for name in world.nodes:
        if name != writer:
            world.meet(writer, name)
    world.run(5)
    assert [len(node.broker.retained) for node in world.nodes.values()] == [0, 0, 0]


def test_the_peers_say_whether_their_retained_messages_are_equal() -> None:
    world = World(2)
    world.run(1)
    counters = world.nodes["n1"].counters["n2"]
    assert counters.retained_differing == 0
    for payload, unmended in ((b"x", 0), (b"y", 1)):  # the topic has changed again, and differs a second time
        world.nodes["n2"].broker.router.store_retained(Message(b"t", payload, 1, True), world.now)  # and told to nobody
        world.run(29.5)
        assert (counters.retained_differing, counters.retained_unmended) == (1, unmended)
        world.run(0.5)
    world.run(31)
    assert (counters.retained_differing, counters.retained_unmended) == (0, 0)
    assert world.nodes["n1"].broker.retained.get(b"t") is not None
