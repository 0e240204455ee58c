"""Retained messages that an outbox dropped: when it has room again, the other node learns what their topics hold now."""

from __future__ import annotations

import pytest

from federation.stream.counters import DropReason
from federation.stream.outbox import BLOCK_BYTES_MAX
from federation_world import World


def retained(world: World, node: str) -> dict[bytes, bytes]:
    return {message.topic: message.payload for message in world.nodes[node].broker.retained.messages()}


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest"])
@pytest.mark.parametrize("go_only", [(), ("n2",)])
def test_retained_messages_that_an_outbox_dropped_become_equal_again(policy: str, go_only: tuple[str, ...]) -> None:
    world = World(2, go_only=go_only, outbox_bytes_max=20_000, outbox_policy=policy)
    subscriber = world.client("n2", "s")
    subscriber.subscribe("r/#")
    publisher = world.client("n1", "p")
    publisher.publish("r/deleted", b"old", retain=True)
    if not go_only:  # an Event cannot tell that a message is over
        publisher.publish("r/over", b"old", retain=True, expiry=60)
    world.run(5)
    world.cut("n1", "n2")
    if not go_only:
        publisher.publish("r/over", b"newer", retain=True, expiry=5)
    publisher.publish("r/deleted", b"", retain=True)
    for number in range(400):
        publisher.publish(f"r/{number % 40}", b"%d" % number + b"-" * 200, retain=True)
    if not go_only:
        publisher.publish("r/over", b"newest", retain=True, expiry=5)
    world.run(10)
    assert world.dropped(DropReason.OUTBOX_FULL) > 300
    world.heal()
    world.run(30)
    assert len(retained(world, "n1")) == 40
    assert retained(world, "n2") == retained(world, "n1")
    if not go_only:
        came = len(subscriber.received)
        lost = world.dropped(DropReason.OUTBOX_FULL)
        assert came + lost <= 2 + 403, "what is mended is stored, and delivered to nobody"
    counters = world.nodes["n1"].counters["n2"]
    assert counters.retained_mended > 0
    assert not world.nodes["n1"].senders["n2"].outbox.lost_topics


def test_retained_messages_past_the_age_of_the_outbox_become_equal_again() -> None:
    world = World(2, outbox_age_max=30.0)
    world.run(1)
    world.cut("n1", "n2")
    world.client("n1", "p").publish("r", b"x", retain=True)
    world.run(40)
    assert world.dropped(DropReason.OUTBOX_AGE) == 1
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
    for topic in (b"r/0", b"r/1", b"r/2"):
        sender.tell_present(topic)
    assert [block.events for block in sender.take_blocks(world.now)] == [1, 1, 1]


@pytest.mark.parametrize("writer", ["n1", "n2"], ids=["the first name writes", "the second name writes"])
@pytest.mark.parametrize("go_only", [(), ("n1", "n2")], ids=["stamps", "no stamps"])
@pytest.mark.parametrize("restarts", [False, True])
def test_all_topics_become_equal_past_the_bound_of_lost_topics(
    writer: str, go_only: tuple[str, ...], restarts: bool
) -> None:
    """Deletions, too, and where the session begins anew in the middle. A Go broker is not told of deletions then."""
    topics = 400
    names = {"n1": "n2", "n2": "n1"}
    world = World(0, go_only=go_only, outbox_bytes_max=20_000)
    for name in names:
        world.start(name)
    world.introduce("n1")
    other = names[writer]
    # The other node holds older values of some, which clients of the writer wrote, and one of its own.
    publisher = world.client(writer, "p")
    for number in range(0, topics, 2):
        publisher.publish(f"r/{number}", b"old", retain=True)
    world.client(other, "q").publish("own", b"own", retain=True)
    world.run(5)
    assert len(retained(world, other)) == topics // 2 + 1
    sender = world.nodes[writer].senders[other]
    sender.outbox.lost_topics_max = topics // 4
    world.cut("n1", "n2")
    for number in range(topics):
        publisher.publish(f"r/{number}", b"new %d" % number + b"-" * 500, retain=True)
    if not go_only:
        for number in range(0, topics, 3):
            publisher.publish(f"r/{number}", b"", retain=True)
    assert sender.outbox.is_retained_state_due
    world.heal()
    if restarts:
        world.run(0.05)
        world.nodes[other].receivers.get(writer).session_id = ""
        world.break_links("n1", "n2")
    world.run(60)
    assert sender.counters.full_states_sent == 1 + restarts
    assert len(retained(world, writer)) == topics - (0 if go_only else len(range(0, topics, 3))) + 1
    assert retained(world, other) == retained(world, writer)
