"""Retained messages that an outbox dropped: when it has room again, the other node learns what their topics hold now."""

from __future__ import annotations

import pytest

from federation.stream.counters import DROP_OUTBOX_AGE, DROP_OUTBOX_FULL
from federation.stream.outbox import BLOCK_BYTES_MAX
from federation_world import World


def retained(world: World, node: str) -> dict[bytes, bytes]:
    return {message.topic: message.payload for message in world.nodes[node].broker.retained.messages()}


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest"])
@pytest.mark.parametrize("plain", [(), ("n2",)])
def test_what_an_outbox_dropped_is_retained_everywhere_in_the_end(policy: str, plain: tuple[str, ...]) -> None:
    world = World(2, plain=plain, outbox_bytes_max=20_000, outbox_policy=policy)
    subscriber = world.client("n2", "s")
    subscriber.subscribe("r/#")
    publisher = world.client("n1", "p")
    publisher.publish("r/deleted", b"old", retain=True)
    if not plain:  # an Event cannot tell that a message is over
        publisher.publish("r/over", b"old", retain=True, expiry=60)
    world.run(5)
    world.cut("n1", "n2")
    if not plain:
        publisher.publish("r/over", b"newer", retain=True, expiry=5)
    publisher.publish("r/deleted", b"", retain=True)
    for number in range(400):
        publisher.publish(f"r/{number % 40}", b"%d" % number + b"-" * 200, retain=True)
    if not plain:
        publisher.publish("r/over", b"newest", retain=True, expiry=5)
    world.run(10)
    assert world.dropped(DROP_OUTBOX_FULL) > 300
    world.heal()
    world.run(30)
    assert len(retained(world, "n1")) == 40
    assert retained(world, "n2") == retained(world, "n1")
    if not plain:
        came = len(subscriber.received)
        lost = world.dropped(DROP_OUTBOX_FULL)
        assert came + lost <= 2 + 403, "what is mended is stored, and delivered to nobody"
    counters = world.nodes["n1"].counters["n2"]
    assert counters.retained_mended > 0
    assert not world.nodes["n1"].senders["n2"].outbox.lost_topics


def test_what_became_too_old_is_mended_too() -> None:
    world = World(2, outbox_age_max=30.0)
    world.run(1)
    world.cut("n1", "n2")
    world.client("n1", "p").publish("r", b"x", retain=True)
    world.run(40)
    assert world.dropped(DROP_OUTBOX_AGE) == 1
    world.heal()
    world.run(10)
    assert retained(world, "n2") == {b"r": b"x"}


def test_a_value_that_is_mended_does_not_overtake_an_older_one_that_still_waits() -> None:
    """The newest is dropped while older ones of the topic wait: those come first, and the newest stays."""
    world = World(2, outbox_bytes_max=20_000, outbox_policy="drop_newest")
    world.run(1)
    world.cut("n1", "n2")
    publisher = world.client("n1", "p")
    for number in range(30):
        publisher.publish("r", b"%d" % number + b"-" * 1000, retain=True)
    world.heal()
    world.run(10)
    assert retained(world, "n2") == retained(world, "n1")
    assert retained(world, "n1")[b"r"].startswith(b"29-")


def test_a_large_value_is_mended_alone() -> None:
    """Where the other node refuses it, nothing else is lost with it."""
    world = World(2)
    world.run(1)
    sender = world.nodes["n1"].senders["n2"]
    publisher = world.client("n1", "p")
    sizes = (10, 2 * BLOCK_BYTES_MAX, 10)
    for number, size in enumerate(sizes):
        publisher.publish(f"r/{number}", b"x" * size, retain=True)
    world.run(1)
    sender.outbox.lost_topics = dict.fromkeys((b"r/0", b"r/1", b"r/2"))
    assert [batch.count for batch in sender.take_batches(world.now)] == [1, 1, 1]


def test_topics_beyond_the_bound_are_counted() -> None:
    world = World(2, outbox_bytes_max=2_000, outbox_policy="drop_newest")
    world.run(1)
    world.nodes["n1"].senders["n2"].outbox.lost_topics_max = 10
    world.cut("n1", "n2")
    publisher = world.client("n1", "p")
    for number in range(40):
        publisher.publish(f"r/{number}", b"x" * 100, retain=True)
    world.heal()
    world.run(10)
    counters = world.nodes["n1"].counters["n2"]
    assert counters.retained_mended == 10
    assert len(retained(world, "n2")) + counters.retained_not_mended == 40
