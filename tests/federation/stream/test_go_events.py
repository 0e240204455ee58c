"""The codec of the Go broker's stream: what frames become, what events do, and what a Go broker is not sent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec.writer import encode_publish
from broker.message import NEVER, Message
from federation.pb import federation_pb2 as pb
from federation.stream.block import Block
from federation.stream.counters import DropReason, SkipReason, StreamCounters
from federation.stream.frames import (
    IS_WRITTEN_THERE,
    PUBLISH,
    RETAINED,
    STATE_BEGIN,
    STATE_END,
    SUBSCRIBE,
    UNSUBSCRIBE,
    encode_frame,
    encode_interest,
)
from federation.stream.go_events import (
    EVENT_BYTES_MAX,
    GoConverter,
    encode_events,
    message_from_event,
    message_to_event,
    receive_event,
)
from federation.stream.held_batches import StreamError
from federation.stream.receiver import OpenStream, PeerReceiver
from federation_world import World
from origins import fields, origin, text_of
from senders import make_outbox

NOW = 100.0
PROPERTIES = b"\x01\x01\x03\x00\x01t\x08\x00\x01r\x09\x00\x02\xff\xfe\x26\x00\x01k\x00\x01v"

MESSAGES = st.builds(
    Message,
    st.sampled_from([b"a", b"a/b", b"\xc3\xa4"]),
    st.binary(max_size=40),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([b"", PROPERTIES]),
    st.sampled_from([NEVER, NOW + 50.0]),
)


def events_of(block: Block, next_event_id: int = 0, now: float = NOW) -> list[pb.Event]:
    return [pb.Event.FromString(data) for data in encode_events(block, next_event_id, now)]


def numbered(block: Block, first_id: int = 0) -> Block:
    block.first_id = first_id
    block.events = block.count
    return block


def block_with(*messages: Message, groups: tuple[tuple[bytes, bytes], ...] = ()) -> Block:
    block = Block(False, NOW)
    for message in messages:
        block.append_message(PUBLISH, message, groups)
    return numbered(block)


class Served(OpenStream):
    def end(self, text: str, malformed: bool = False) -> None:
        """Nobody reads on."""


def serve(extended: bool = True) -> tuple[World, PeerReceiver, Served]:
    """n1 serves n2, which is a Go broker or a node of this kind."""
    world = World(2, go_only=() if extended else ("n2",))
    receiver = world.nodes["n1"].receivers.get("n2")
    receiver.hello("session")
    stream = Served()
    receiver.open_stream(stream, world.now)
    return world, receiver, stream


def receive(world: World, receiver: PeerReceiver, stream: Served, *events: pb.Event) -> None:
    for event in events:
        event.id = receiver.next_event_id
        assert receive_event(receiver, stream, event.SerializeToString(), world.now) == event.id


# --- frames to events


@given(MESSAGES)
def test_a_message_comes_back_from_its_event(message: Message) -> None:
    event = pb.Message.FromString(message_to_event(message, NOW).SerializeToString())
    assert fields(message_from_event(event, NOW)) == fields(message)


def test_a_header_of_links_is_a_user_property_of_the_event() -> None:
    message = Message(b"t", b"x", 1, False, b"\x26\0\1a\0\1b", NEVER, "", origin(b"1 path=paris"))
    event = message_to_event(message, NOW)
    assert [(pair.K, pair.V) for pair in event.user_properties] == [(b"a", b"b"), (b"gmqttd-link", b"1 path=paris")]
    assert fields(message_from_event(event, NOW)) == fields(message)


@pytest.mark.parametrize(("extended", "expected"), [(True, b"1 path=paris"), (False, b"")])
def test_fields_of_links_count_from_nodes_of_this_kind_only(extended: bool, expected: bytes) -> None:
    """A Go broker passes on what its clients say."""
    world, receiver, stream = serve(extended)
    message = Message(b"t", b"x", 1, True, b"", NEVER, "", origin(b"1 path=paris"))
    event = pb.Event(message=message_to_event(message, NOW))
    if extended:
        event.message.groups.SetInParent()
    receive(world, receiver, stream, event)
    held = world.nodes["n1"].broker.retained.get(b"t")
    assert held is not None
    assert (text_of(held.origin), held.properties) == (expected, b"")


def test_every_frame_becomes_one_event_and_a_block_one_for_each_packet() -> None:
    outbox = make_outbox()
    packets = [encode_publish(4, b"t", b"%d" % number, number, False, False, number, b"") for number in (0, 1)]
    outbox.append_run(b"".join(packets), 2, 4, NOW)
    outbox.append_message(Message(b"s", b"2", 1, False), ((b"g", b"s"), (b"h", b"#")), NOW)
    outbox.close_block()
    block = outbox.take_waiting()
    assert block is not None
    for frame in (
        encode_frame(STATE_BEGIN, b""),
        encode_interest(SUBSCRIBE, b"g", b"a/+"),
        encode_interest(UNSUBSCRIBE, b"g", b"a/+"),
        encode_frame(STATE_END, b""),
    ):
        block.append_frame(frame)
    block.append_message(RETAINED, Message(b"r", b"", 0, True), (), IS_WRITTEN_THERE)
    found = events_of(numbered(block, 7))
    assert [event.id for event in found] == list(range(7, 15))
    assert block.count == 8
    first, second, third, begin, subscribe, unsubscribe, end, state = found
    assert (first.message.payload, first.message.qos, first.message.HasField("groups")) == (b"0", 0, True)
    assert (second.message.payload, second.message.qos, list(second.message.groups.groups)) == (b"1", 1, [])
    assert [(group.share_name, group.topic_filter) for group in third.message.groups.groups] == [("g", "s"), ("h", "#")]
    assert (begin.state_mark, end.state_mark) == (pb.STATE_MARK_BEGIN, pb.STATE_MARK_END)
    assert (subscribe.Subscribe.share_name, subscribe.Subscribe.topic_filter) == ("g", "a/+")
    assert unsubscribe.unsubscribe.topic_name == "$share/g/a/+"
    assert (state.message.HasField("state_flags"), state.message.state_flags) == (True, IS_WRITTEN_THERE)
    assert not state.message.HasField("groups")


@pytest.mark.parametrize("first", [0, 1])
def test_a_block_is_known_as_done_when_its_last_event_has_come(first: int) -> None:
    """The stream breaks behind the first event, or not at all."""
    world, receiver, stream = serve()
    block = block_with(Message(b"t", b"0", 1, False), Message(b"t", b"1", 1, False))
    block.serial = 7
    events = events_of(block)
    assert [event.ends_block for event in events] == [False, True]
    assert [event.ends_block for event in events_of(block, first)] == [False, True][first:]
    store_id = receiver.position.store_id
    receive(world, receiver, stream, events[0])
    assert not receiver._positions.has_done("n2", store_id, 7)
    receive(world, receiver, stream, *events_of(block, first))
    assert receiver._positions.has_done("n2", store_id, 7)


def test_events_that_are_done_are_not_sent_again() -> None:
    block = numbered(block_with(*(Message(b"t", b"%d" % number, 1, False) for number in range(5))), 10)
    assert [event.id for event in events_of(block, 13)] == [13, 14]
    assert events_of(block, 15) == []


def test_a_go_broker_is_sent_nothing_that_has_expired_or_that_it_cannot_take() -> None:
    counters = StreamCounters()
    block = block_with(
        Message(b"t", b"good", 1, False),
        Message(b"t", b"over", 1, False, b"", NOW - 1),
        Message(b"t", bytes(EVENT_BYTES_MAX), 1, False),
        Message(b"t", bytes(EVENT_BYTES_MAX - 100), 1, False),
    )
    block.append_frame(encode_frame(STATE_BEGIN, b""))
    block.events = GoConverter(counters).convert(block, NOW)
    assert [len(event.message.payload) for event in events_of(block)] == [4, EVENT_BYTES_MAX - 100]
    assert (counters.dropped[DropReason.EXPIRED], counters.dropped[DropReason.TOO_LARGE_FOR_PEER]) == (1, 1)


def test_an_event_that_expires_between_two_sends_keeps_its_id_and_its_last_second() -> None:
    block = block_with(Message(b"t", b"x", 1, False, b"", NOW + 10), Message(b"t", b"y", 1, False))
    block.events = GoConverter(StreamCounters()).convert(block, NOW)
    assert [event.message.message_expiry for event in events_of(block, 0, NOW)] == [10, 0]
    assert [event.message.message_expiry for event in events_of(block, 0, NOW + 7)] == [3, 0]
    assert [event.message.message_expiry for event in events_of(block, 0, NOW + 70)] == [1, 0]


def test_a_node_of_this_kind_is_told_that_a_message_has_expired() -> None:
    (event,) = events_of(block_with(Message(b"t", b"x", 1, True, b"", NOW - 1)))
    assert event.message.expired
    world, receiver, stream = serve()
    world.client("n1", "p").publish("t", b"older", retain=True)
    receive(world, receiver, stream, event)
    assert world.nodes["n1"].broker.retained.get(b"t") is None
    assert receiver.counters.dropped[SkipReason.EXPIRED] == 1


# --- what events do


def message_event(topic: str = "t", payload: bytes = b"x", **values: Any) -> pb.Event:
    return pb.Event(message=pb.Message(topic_name=topic, payload=payload, **values))


def subscribe_event(topic_filter: str) -> pb.Event:
    return pb.Event(Subscribe=pb.Subscribe(topic_filter=topic_filter))


def test_only_the_groups_that_are_named_get_a_message() -> None:
    world, receiver, stream = serve()
    members = {name: world.client("n1", name) for name in ("g", "h")}
    for name, client in members.items():
        client.subscribe(f"$share/{name}/t")
    chosen = pb.Groups(groups=[pb.Group(share_name="g", topic_filter="t")])
    receive(world, receiver, stream, message_event(payload=b"g only", groups=chosen))
    receive(world, receiver, stream, message_event(payload=b"none", groups=pb.Groups()))
    receive(world, receiver, stream, message_event(payload=b"all"))
    world.run(1)
    assert members["g"].payloads == [b"g only", b"all"]
    assert members["h"].payloads == [b"all"]


def test_a_marked_state_replaces_the_interest_at_its_end() -> None:
    world, receiver, stream = serve()
    tree = world.nodes["n1"].tree
    tree.add_interest("n2", b"", b"old")
    begin, end = pb.Event(state_mark=pb.STATE_MARK_BEGIN), pb.Event(state_mark=pb.STATE_MARK_END)
    receive(world, receiver, stream, begin, subscribe_event("new"), message_event("t", retained=True))
    receiver.handle_timeout(world.now + 60)
    assert sorted(tree.interest_of("n2")) == [(b"", b"new"), (b"", b"old")], "however long it takes"
    receive(world, receiver, stream, end)
    assert tree.interest_of("n2") == [(b"", b"new")]


@pytest.mark.parametrize("how", ["time", "message", "retained"])
def test_the_filters_of_a_go_broker_are_complete_when_something_else_comes(how: str) -> None:
    world, receiver, stream = serve(extended=False)
    tree = world.nodes["n1"].tree
    tree.add_interest("n2", b"", b"old")
    receive(world, receiver, stream, subscribe_event("new"))
    assert sorted(tree.interest_of("n2")) == [(b"", b"new"), (b"", b"old")]
    if how == "time":
        receiver.handle_timeout(receiver.next_timeout())
    else:
        receive(world, receiver, stream, message_event(retained=how == "retained"))
    assert tree.interest_of("n2") == [(b"", b"new")]


@pytest.mark.parametrize(
    "event",
    [
        message_event("a/#"),
        message_event(""),
        message_event(qos=3),
        message_event(payload_format=7),
        message_event(user_properties=[pb.UserProperty(K=b"\xff", V=b"")]),
        message_event(content_type="\0"),
        pb.Event(unsubscribe=pb.Unsubscribe(topic_name="$share/x")),
    ],
)
@pytest.mark.parametrize("extended", [True, False])
def test_a_bad_event_is_skipped_acknowledged_and_counted(event: pb.Event, extended: bool) -> None:
    world, receiver, stream = serve(extended)
    receive(world, receiver, stream, event)
    assert receiver.counters.dropped[SkipReason.MALFORMED] == 1
    assert receiver.next_event_id == 1


@pytest.mark.parametrize("data", [b"", b"\xfa\x01\x05later", b"\xa0\x06\x63"])
def test_an_event_of_an_unknown_kind_is_skipped_acknowledged_and_counted(data: bytes) -> None:
    world, receiver, stream = serve()
    assert receive_event(receiver, stream, data, world.now) == 0
    assert receiver.counters.dropped[SkipReason.UNKNOWN] == 1


@given(st.binary(max_size=60))
def test_garbage_ends_the_stream_or_does_nothing(data: bytes) -> None:
    world, receiver, stream = serve()
    try:
        receive_event(receiver, stream, data, world.now)
    except StreamError as error:
        assert error.malformed or "say Hello and resume" in error.text  # noqa: PT017


def test_links_of_a_filter_travel_in_an_event() -> None:
    block = Block(True, NOW)
    block.append_frame(encode_interest(SUBSCRIBE, b"", b"a/#", b"0 link"))
    block.append_frame(encode_interest(SUBSCRIBE, b"g", b"b"))
    world, receiver, stream = serve()
    receive(world, receiver, stream, *events_of(numbered(block)))
    assert world.nodes["n1"].tree.remote_interest() == [("n2", b"", b"a/#", b"0 link"), ("n2", b"g", b"b", b"")]


def test_members_of_a_group_travel_in_an_event() -> None:
    block = Block(True, NOW)
    for share_name, note in ((b"g", b"\0\0\1\7"), (b"h", b"")):
        block.append_frame(encode_interest(SUBSCRIBE, share_name, b"b", note))
    world, receiver, stream = serve()
    receive(world, receiver, stream, *events_of(numbered(block)))
    route = world.nodes["n1"].tree.route(b"b")
    assert route is not None
    assert [(group.share_name, group.members_at(0)) for group in route.groups] == [(b"g", 263), (b"h", 1)]
