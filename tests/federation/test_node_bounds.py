"""Bounds of what waits for another node, and nonsense that comes from one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.api.pb import federation_pb2 as pb
from federation.stream.counters import (
    DROP_OUTBOX_AGE,
    DROP_OUTBOX_FULL,
    SKIP_DUPLICATE,
    SKIP_MALFORMED,
    SKIP_UNKNOWN,
)
from federation.stream.state import State
from federation.stream.waiting import StreamError
from federation_world import World

# --- bounds ---


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
    assert len(got) + world.dropped(DROP_OUTBOX_FULL) == 1000
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
    assert world.dropped(DROP_OUTBOX_AGE) == 1


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


# --- nonsense from another node ---


def stream_of(world: World) -> int:
    receiver = world.nodes["n1"].receiver("n2")
    receiver.hello("a session")
    return receiver.open_stream(True, world.now)


def test_unknown_events_are_skipped_acknowledged_and_counted() -> None:
    world = World(2)
    receiver = world.nodes["n1"].receiver("n2")
    stream = stream_of(world)
    frames = b"\x63\0\0\0\0\3abc" + b"\1\x10\0\0\0\3\0\0a" + b"\1\0\0\0\0\3\0\0b"
    assert receiver.receive_batch(stream, 0, 3, frames, world.now) == 2
    assert receiver.counters.dropped[SKIP_UNKNOWN] == 2
    assert world.nodes["n1"].tree.interest_of("n2") == [(b"", b"b")]
    event = pb.Event.FromString(b"\x08\x03" + b"\xfa\x01\x02hi")
    assert receiver.receive_event(stream, event, world.now) == 3
    assert receiver.counters.dropped[SKIP_UNKNOWN] == 3


@given(st.binary(max_size=200), st.integers(0, 10))
def test_garbage_never_does_harm(data: bytes, count: int) -> None:
    world = World(2)
    receiver = world.nodes["n1"].receiver("n2")
    stream = stream_of(world)
    try:
        assert receiver.receive_batch(stream, 0, count, data, world.now) == count - 1
    except StreamError as error:
        assert error.malformed  # noqa: PT017
    assert receiver.next_event_id <= max(count, len(data))


@pytest.mark.parametrize(
    ("data", "count", "text"),
    [
        (b"\1\0\0", 1, "inside the header of its frame 0"),
        (b"\1\0\0\0\0\x09abc", 1, "body of 9 bytes, the batch has 3 left"),
        (b"", 1, "batch of 1 events has 0 frames"),
        (b"\6\0\0\0\0\0\7\0\0\0\0\0", 1, "batch of 1 events has more frames"),
    ],
)
def test_frames_that_cannot_be_told_apart_end_the_stream(data: bytes, count: int, text: str) -> None:
    world = World(2)
    stream = stream_of(world)
    with pytest.raises(StreamError, match=text) as caught:
        world.nodes["n1"].receiver("n2").receive_batch(stream, 0, count, data, world.now)
    assert caught.value.malformed


@pytest.mark.parametrize(
    "event",
    [
        pb.Event(message=pb.Message(topic_name="a/#", payload=b"x")),
        pb.Event(message=pb.Message(topic_name="", payload=b"x")),
        pb.Event(message=pb.Message(topic_name="t", qos=3)),
        pb.Event(message=pb.Message(topic_name="t", payload_format=7)),
        pb.Event(message=pb.Message(topic_name="t", user_properties=[pb.UserProperty(K=b"\xff", V=b"")])),
        pb.Event(message=pb.Message(topic_name="t", content_type="\0")),
        pb.Event(unsubscribe=pb.Unsubscribe(topic_name="$share/x")),
    ],
)
def test_a_bad_plain_event_is_skipped_acknowledged_and_counted(event: pb.Event) -> None:
    world = World(2)
    receiver = world.nodes["n1"].receiver("n2")
    assert receiver.receive_event(stream_of(world), event, world.now) == 0
    assert receiver.counters.dropped[SKIP_MALFORMED] == 1
    assert receiver.next_event_id == 1


def test_events_that_were_seen_are_acknowledged_again_and_a_gap_ends_the_stream() -> None:
    world = World(2)
    receiver = world.nodes["n1"].receiver("n2")
    stream = stream_of(world)
    event = pb.Event(id=0, Subscribe=pb.Subscribe(topic_filter="a"))
    assert receiver.receive_event(stream, event, world.now) == 0
    assert receiver.receive_event(stream, event, world.now) == 0
    assert receiver.counters.dropped[SKIP_DUPLICATE] == 1
    event.id = 5
    with pytest.raises(StreamError, match="event 5 came, 1 is the next"):
        receiver.receive_event(stream, event, world.now)
    assert receiver.hello("a session") == (False, 1)
    with pytest.raises(StreamError, match="event 5 came"):
        receiver.receive_event(receiver.open_stream(True, world.now), event, world.now)
    assert receiver.hello("a session") == (True, 0), "it could not go on: a full state"


def test_a_second_stream_of_the_session_ends_the_first() -> None:
    world = World(2)
    receiver = world.nodes["n1"].receiver("n2")
    first = stream_of(world)
    second = receiver.open_stream(True, world.now)
    with pytest.raises(StreamError, match="replaced by a newer stream"):
        receiver.receive_event(first, pb.Event(id=0), world.now)
    receiver.close_stream(first)
    assert receiver.receive_event(second, pb.Event(id=0), world.now) == 0


def test_a_batch_that_is_refused_is_given_up_and_the_rest_goes_on() -> None:
    world = World(2)
    subscriber = world.client("n2", "s")
    subscriber.subscribe("t")
    world.run(1)
    publisher = world.client("n1", "p")
    sender = world.nodes["n1"].senders["n2"]
    publisher.publish("t", b"poison")
    batches = sender.take_batches(world.now)
    assert len(batches) == 1
    publisher.publish("t", b"next")
    sender.refused(sender.attempt, "cannot be read", world.now)
    world.run(5)
    assert subscriber.payloads == [b"next"]


def test_a_node_that_does_not_answer_is_tried_again_at_growing_intervals() -> None:
    world = World(2)
    world.cut("n1", "n2")
    sender = world.nodes["n1"].senders["n2"]
    world.run(60)
    assert 12 <= sender.attempt <= 30
    assert sender.reason == "unreachable"
    world.heal()
    world.run(6)
    assert sender.state is State.STREAMING
