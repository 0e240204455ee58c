"""Sessions of the API: what a reader gets, and what it is too slow for."""

from __future__ import annotations

from broker.message import Message
from broker.routing.subscription import Subscription
from broker.session.watching import MESSAGE_BYTES, WAITING_BYTES_MAX, Watching
from broker_world import World


def test_a_reader_that_does_not_read_costs_a_bounded_memory_and_holds_nobody() -> None:
    world = World()
    woken: list[int] = []
    session = Watching(world.broker, "$api/1", world.now, lambda: woken.append(1))
    world.broker.insert_subscription(session, b"a", Subscription(session, b"", b"a", 2, False, True, 2, 0))
    size = 64 * 1024
    fitting = WAITING_BYTES_MAX // (size + MESSAGE_BYTES)
    publisher = world.connect("publisher")
    for _ in range(fitting + 3):
        world.publish(b"a", b"x" * size)
    assert (len(woken), session.dropped) == (1, 3)
    assert len(session.take()) == fitting
    assert session.take() == []
    world.publish(b"a", b"y")
    assert (len(woken), [message.payload for message in session.take()]) == (2, [b"y"])
    assert not publisher.connection.held
    world.broker.unsubscribe_one(session, b"a")
    world.publish(b"a", b"z")
    assert session.take() == []
    assert world.broker.counters.subscriptions == 0


def test_runs_are_messages() -> None:
    world = World()
    session = Watching(world.broker, "$api/1", world.now, lambda: None)
    world.broker.insert_subscription(session, b"#", Subscription(session, b"", b"#", 2, False, True, 2, 0))
    publisher = world.connect("publisher", 4)
    publisher.send_bytes(b"\x30\x04\x00\x01a1" * 3)
    taken: list[Message] = session.take()
    assert [(message.topic, message.payload) for message in taken] == [(b"a", b"1")] * 3
