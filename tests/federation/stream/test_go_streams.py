"""The two ends of the Go broker's stream: events, acknowledgements, holds and ends; with and without our fields."""

from __future__ import annotations

import random

import pytest

from broker.broker import Broker
from broker.config.settings import MqttSettings
from broker.message import NEVER
from broker.store.journal import Journal
from federation.pb import federation_pb2 as pb
from federation.stream.go_client import GoClient
from federation.stream.go_server import GoServer
from federation.stream.served_stream import HELD_SECONDS
from federation.stream.state import State
from federation.stream.stored_events import StoredEvents
from federation_world import World
from senders import Local, make_sender

PACKET = b"\x30\x05\x00\x01tab"


def served(extended: bool = True) -> tuple[World, GoServer]:
    world = World(2, go_only=() if extended else ("n2",))
    receiver = world.nodes["n1"].receivers.get("n2")
    receiver.hello("session")
    server = GoServer(world.nodes["n1"].receivers)
    server.begin(receiver, world.now)
    return world, server


def subscribe(event_id: int) -> bytes:
    return pb.Event(id=event_id, Subscribe=pb.Subscribe(topic_filter=f"t/{event_id}")).SerializeToString()


# --- the client


@pytest.mark.parametrize("extended", [True, False])
def test_a_client_sends_its_state_and_resumes_in_the_middle_of_a_block(extended: bool) -> None:
    sender = make_sender(Local([(b"", b"a")]), extended)
    sender.connect("host:1", 0.0)
    client = GoClient(sender)
    assert client.hello_reply(True, 0, 0.0)
    events = [pb.Event.FromString(data) for data in client.take_events(0.0)]
    assert [event.WhichOneof("Event") for event in events] == (
        ["state_mark", "Subscribe", "state_mark"] if extended else ["Subscribe"]
    )
    first = len(events)
    client.receive_ack(first - 1, 0.0)
    sender.forward_run(PACKET * 5, 5, 4, 0, 0.0)
    assert [pb.Event.FromString(data).id for data in client.take_events(0.0)] == list(range(first, first + 5))
    client.connection_lost("reset", False, 1.0)
    assert client.take_events(1.0) == []
    sender.handle_timeout(10.0)
    again = GoClient(sender)
    assert again.hello_reply(False, first + 3, 10.0)
    sender.full_state.end_digests()  # they are of direct streams
    assert [pb.Event.FromString(data).id for data in again.take_events(10.0)] == [first + 3, first + 4]
    again.receive_ack(first + 4, 10.0)
    assert sender.outbox.size == 0


def test_calls_out_of_order_end_the_stream_of_the_client() -> None:
    sender = make_sender()
    sender.connect("host:1", 0.0)
    client = GoClient(sender)
    assert not client.hello_reply(False, 9, 0.0)
    assert client.is_over
    sender.handle_timeout(10.0)
    client = GoClient(sender)
    assert client.hello_reply(True, 0, 10.0)
    client.receive_ack(99, 10.0)
    assert client.is_over
    assert sender.state is State.BACKOFF


# --- the server


def test_one_acknowledgement_stands_for_all_before_it() -> None:
    world, server = served()
    assert server.take_ack() == -1
    for event_id in range(3):
        server.receive_event(subscribe(event_id), world.now)
    assert server.take_ack() == 2
    assert server.take_ack() == -1


@pytest.mark.parametrize(
    ("data", "text", "malformed"),
    [
        (subscribe(7), "event 7 came, 0 is the next: say Hello and resume", False),
        (b"\xff", "what came is not an Event", True),
    ],
)
def test_an_impossible_event_ends_the_stream(data: bytes, text: str, malformed: bool) -> None:
    world, server = served()
    server.receive_event(data, world.now)
    assert (server.is_over, server.end_text, server.end_malformed) == (True, text, malformed)
    server.receive_event(subscribe(0), world.now)
    assert server.take_ack() == -1


@pytest.mark.parametrize("extended", [True, False])
def test_full_receivers_let_a_node_of_this_kind_hear_that_the_server_lives(extended: bool) -> None:
    """A Go broker waits for ever."""
    world, server = served(extended)
    server.receive_event(subscribe(0), world.now)
    assert server.take_ack() == 0
    node = world.nodes["n1"]
    publisher = node.receivers.get("n2").publisher
    node.broker.hold(publisher)
    server.reading_changed(world.now)
    assert not server.wants_reading()
    said = []
    for number in range(1, 4):
        server.handle_timeout(world.now + number * HELD_SECONDS)
        said.append(server.take_ack())
    assert said == ([0, 0, 0] if extended else [-1, -1, -1])
    node.broker.release(publisher)
    server.reading_changed(world.now)
    assert server.wants_reading()
    assert server.next_timeout() == NEVER


def test_the_end_of_the_membership_ends_it() -> None:
    world, server = served()
    world.part("n1", "n2")
    assert (server.is_over, server.end_text) == (True, "n2 is not a member any more")


def test_an_acknowledgement_is_told_once_while_the_store_is_slow() -> None:
    world, server = served()
    assert server.receiver is not None
    broker = Broker(MqttSettings(), random.Random(1), world.now)
    journal = Journal()
    broker.set_journal(journal)
    server.receiver.stored = StoredEvents(broker)
    server.receive_event(subscribe(0), world.now)
    journal.add("not written yet")
    for event_id in (1, 2):
        server.receive_event(subscribe(event_id), world.now)
    assert [server.take_ack() for _ in range(3)] == [0, -1, -1]
