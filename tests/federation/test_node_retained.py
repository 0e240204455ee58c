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
