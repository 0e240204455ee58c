"""Retained messages on every node of the federation."""

from __future__ import annotations

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
