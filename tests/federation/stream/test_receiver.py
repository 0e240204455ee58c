"""What a receiver does with batches: skips, refusals, duplicates, gaps, and streams that replace each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec.writer import encode_publish
from broker.message import Message
from federation.stream.counters import SkipReason
from federation.stream.frames import (
    IS_NEWS,
    IS_WRITTEN_THERE,
    RETAINED,
    SUBSCRIBE,
    encode_block_header,
    encode_frame,
    encode_interest,
    encode_packet,
)
from federation.stream.held_batches import StreamError
from federation.stream.receiver import OpenStream, PeerReceiver
from federation_world import World


class Served(OpenStream):
    """Keeps why it was ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[str] = []

    def end(self, text: str, malformed: bool = False) -> None:
        self.ended.append(text)


def receiver_of(world: World) -> tuple[PeerReceiver, Served]:
    """n1's receiver of n2, with a stream of a new session."""
    receiver = world.nodes["n1"].receivers.get("n2")
    receiver.hello("a session")
    stream = Served()
    receiver.open_stream(stream, world.now)
    return receiver, stream


def interest(topic_filter: bytes) -> bytes:
    return encode_interest(SUBSCRIBE, b"", topic_filter)


def block(*payloads: bytes) -> bytes:
    packets = b"".join(encode_publish(4, b"t", payload, 1, False, False, 1, b"") for payload in payloads)
    return encode_block_header(4, len(payloads), len(packets)) + packets


def test_unknown_events_are_skipped_acknowledged_and_counted() -> None:
    world = World(2)
    receiver, stream = receiver_of(world)
    frames = b"\x63\0\0\0\0\3abc" + b"\1\x10\0\0\0\3\0\0a" + interest(b"b")
    assert receiver.receive_batch(stream, 0, 3, frames, world.now) == 2
    assert receiver.counters.dropped[SkipReason.UNKNOWN] == 2
    assert world.nodes["n1"].tree.interest_of("n2") == [(b"", b"b")]


def test_a_publish_block_takes_an_id_for_each_packet_also_when_it_is_skipped() -> None:
    world = World(2)
    subscriber = world.client("n1", "s")
    subscriber.subscribe("t")
    receiver, stream = receiver_of(world)
    unknown = bytearray(block(b"x", b"y"))
    unknown[1] = 0x10  # a flag that must be understood
    frames = block(b"0", b"1", b"2") + bytes(unknown) + interest(b"a")
    assert receiver.receive_batch(stream, 0, 6, frames, world.now) == 5
    assert receiver.next_event_id == 6
    assert receiver.counters.events_received == 6
    world.run(1)
    assert subscriber.payloads == [b"0", b"1", b"2"]


@pytest.mark.parametrize("done", range(5))
def test_a_block_of_which_a_part_came_as_single_events_goes_on_behind_it(done: int) -> None:
    """The stream changed from the Go broker's to a direct one in the middle of the block."""
    world = World(2)
    subscriber = world.client("n1", "s")
    subscriber.subscribe("t")
    receiver, stream = receiver_of(world)
    for event_id in range(done):
        assert receiver.accept_event(stream, event_id)
    assert receiver.receive_batch(stream, 0, 4, block(b"0", b"1", b"2", b"3"), world.now) == 3
    world.run(1)
    assert subscriber.payloads == [b"%d" % number for number in range(done, 4)]
    assert receiver.counters.dropped[SkipReason.DUPLICATE] == done


@given(st.binary(max_size=200), st.integers(0, 10))
def test_garbage_never_does_harm(data: bytes, count: int) -> None:
    world = World(2)
    receiver, stream = receiver_of(world)
    try:
        assert receiver.receive_batch(stream, 0, count, data, world.now) == count - 1
    except StreamError as error:
        assert error.malformed  # noqa: PT017
    assert receiver.next_event_id <= count


@pytest.mark.parametrize(
    ("data", "count", "text"),
    [
        (b"\1\0\0", 1, "inside a frame header, behind 0 events"),
        (b"\1\0\0\0\0\x09abc", 1, "body of 9 bytes, the batch has 3 left"),
        (b"", 1, "batch of 1 events has 0"),
        (b"\6\0\0\0\0\0\7\0\0\0\0\0", 1, "batch of 1 events has more"),
        (block(b"x", b"y"), 1, "batch of 1 events has more"),
        (b"\3\0\0\0\0\4\4\0\0\0", 1, "publish block of 4 bytes, has at least 5"),
        (b"\3\0\0\0\0\5\4\0\0\0\0", 1, "publish block without packets"),
        (b"\3\0\0\0\0\5\4\xff\0\0\0", 1, "publish block without packets"),
        (b"\3\1\0\0\0\3\0\5x", 1, "extensions of 5 bytes in a frame that has 1 left"),
    ],
)
def test_frames_that_cannot_be_told_apart_end_the_stream(data: bytes, count: int, text: str) -> None:
    world = World(2)
    receiver, stream = receiver_of(world)
    with pytest.raises(StreamError, match=text) as caught:
        receiver.receive_batch(stream, 0, count, data, world.now)
    assert caught.value.malformed


def test_a_malformed_frame_is_skipped_and_counted() -> None:
    world = World(2)
    receiver, stream = receiver_of(world)
    wrong_level = b"\3\0\0\0\0\5\3\0\0\0\2"
    frames = wrong_level + b"\1\0\0\0\0\2\0\x09" + interest(b"a")
    assert receiver.receive_batch(stream, 0, 4, frames, world.now) == 3
    assert receiver.counters.dropped[SkipReason.MALFORMED] == 2
    assert world.nodes["n1"].tree.interest_of("n2") == [(b"", b"a")]


def test_events_that_were_done_are_acknowledged_again_and_a_gap_ends_the_stream() -> None:
    world = World(2)
    receiver, stream = receiver_of(world)
    assert receiver.accept_event(stream, 0)
    assert not receiver.accept_event(stream, 0)
    assert receiver.receive_batch(stream, 0, 1, interest(b"a"), world.now) == 0
    assert receiver.counters.dropped[SkipReason.DUPLICATE] == 2
    assert world.nodes["n1"].tree.interest_of("n2") == []
    with pytest.raises(StreamError, match="event 5 came, 1 is the next"):
        receiver.accept_event(stream, 5)
    assert receiver.hello("a session") == (False, 1)
    receiver.open_stream(stream, world.now)
    with pytest.raises(StreamError, match="event 5 came"):
        receiver.receive_batch(stream, 5, 1, interest(b"a"), world.now)
    assert receiver.hello("a session") == (True, 1), (
        "it could not go on: a full state, and what was done is not done again"
    )
    assert receiver.hello("a session") == (True, 1), "the answer was lost"
    receiver.open_stream(stream, world.now)
    assert receiver.accept_event(stream, 0)
    assert receiver.hello("a session") == (False, 1)


def test_a_node_that_says_the_store_of_another_one_moves_no_position_of_it() -> None:
    """Otherwise the blocks of that node would be taken for repeats. Only the name of a node is proved, not its store."""
    world = World(3)
    subscriber = world.client("n1", "s")
    subscriber.subscribe("t")
    receivers = world.nodes["n1"].receivers
    for name, serial, payload in (("n3", 1000, b"of n3"), ("n2", 5, b"of n2")):
        receivers.hello(name, "a session", "the store of n2")
        receiver = receivers.get(name)
        stream = Served()
        receiver.open_stream(stream, world.now)
        assert receiver.receive_batch(stream, 0, 1, block(payload), world.now, serial=serial) == 0
    subscriber.take()
    assert subscriber.payloads == [b"of n3", b"of n2"]


def test_a_second_stream_of_the_session_ends_the_first() -> None:
    world = World(2)
    receiver, first = receiver_of(world)
    second = Served()
    receiver.open_stream(second, world.now)
    assert first.ended == ["replaced by a newer stream of this node"]
    with pytest.raises(StreamError, match="replaced by a newer stream"):
        receiver.accept_event(first, 0)
    receiver.close_stream(first)
    assert receiver.accept_event(second, 0)
    assert second.ended == []


def test_a_stream_needs_a_hello_and_ends_with_its_node() -> None:
    world = World(2)
    receiver = world.nodes["n1"].receivers.get("n2")
    with pytest.raises(StreamError, match="say Hello first"):
        receiver.open_stream(Served(), world.now)
    receiver, stream = receiver_of(world)
    receiver.end(world.now)
    assert stream.ended == ["n2 is not a member any more"]
    assert receiver.stream is None


@pytest.mark.parametrize("session_id", ["", "x" * 257])
def test_a_session_id_has_1_to_256_characters(session_id: str) -> None:
    world = World(2)
    with pytest.raises(StreamError, match="1 to 256"):
        world.nodes["n1"].receivers.get("n2").hello(session_id)


@pytest.mark.parametrize("flags", [0, IS_WRITTEN_THERE, IS_NEWS])
@pytest.mark.parametrize("is_known", [False, True])
def test_state_without_stamps_is_older_than_what_changed_since_its_node_is_known(flags: int, is_known: bool) -> None:
    """A node of the version before has it, and is told the value that stays."""
    world = World(3)
    world.run(1)
    if is_known:
        world.client("n3", "w").publish("t", b"newer", retain=True)
        world.run(1)
    receiver, stream = receiver_of(world)
    frame = encode_frame(RETAINED, encode_packet(Message(b"t", b"older", 1, True), 5), flags)
    assert receiver.receive_batch(stream, 0, 1, frame, world.now) == 0
    held = world.nodes["n1"].broker.retained.get(b"t")
    assert held is not None
    is_taken = flags == IS_NEWS or not is_known
    assert held.payload == (b"older" if is_taken else b"newer")
    told = [name for name, sender in world.nodes["n1"].senders.items() if sender.outbox.lost_topics]
    assert told == ([] if is_taken else ["n2"])
