"""Bounds of what waits for another node."""

from __future__ import annotations

import pytest

from federation.stream.counters import DropReason
from federation_world import World


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
    assert len(got) + world.dropped(DropReason.OUTBOX_FULL) == 1000
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
    assert world.dropped(DropReason.OUTBOX_AGE) == 1


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


def test_a_batch_that_is_refused_is_given_up_and_the_rest_goes_on() -> None:
    world = World(2)
    subscriber = world.client("n2", "s")
    subscriber.subscribe("t")
    world.run(1)
    publisher = world.client("n1", "p")
    sender = world.nodes["n1"].senders["n2"]
    publisher.publish("t", b"poison")
    assert len(sender.take_blocks(world.now)) == 1
    publisher.publish("t", b"next")
    sender.refused(sender.attempt, "cannot be read", world.now)
    world.run(5)
    assert subscriber.payloads == [b"next"]
