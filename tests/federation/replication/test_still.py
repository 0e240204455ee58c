"""A process that stood still so long that others may have adopted its sessions."""

from __future__ import annotations

import pytest

from broker.message import NEVER, Message
from broker.routing.group_copy import GroupCopy
from broker.store.records import encode_changes
from federation.pb import federation_pb2 as pb
from federation.replication.copies import BEAT_SECONDS, STILL_SECONDS, Copies
from federation.replication.relay import choose_again
from federation.stream.direct_server import DirectServer
from federation.stream.frames import HEADER_SIZE, encode_copies_ended
from federation.stream.go_server import GoServer
from federation.stream.receiver import OpenStream
from simulator.client import Client
from stored_node import Station


class Stream(OpenStream):
    """The stream of another node."""

    def __init__(self) -> None:
        self.reason = ""

    def end(self, text: str, malformed: bool = False) -> None:
        self.reason = text


def station(wanted: int = 1) -> tuple[Station, Copies]:
    """A node that has looked at the clock after a second, and should have so many copies."""
    found = Station({})
    copies = found.node.copies
    assert copies is not None
    copies.replication.wanted = wanted
    found.node.handle_timeout(BEAT_SECONDS)
    return found, copies


def connected(node: Station, client_id: str, expiry: int = 0) -> Client:
    client = Client(node.broker, client_id, 1.0, expiry=expiry)
    commits = node.broker.commits
    begun = node.journal.commit or commits.begin()
    commits.written(encode_changes(node.journal.take(), 0.0), 0.0)
    commits.stored([begun])
    client.set_reading(1.0)
    client.take(1.0)
    return client


def test_what_waited_in_the_socket_of_a_durable_client_is_not_read() -> None:
    node, copies = station()
    writer = connected(node, "writer", 60)
    reader = connected(node, "reader")
    reader.subscribe("a/#", 1.0)
    last = BEAT_SECONDS + BEAT_SECONDS + STILL_SECONDS
    writer.publish("a/in_time", b"", last, 0)
    writer.publish("a/late", b"", last + 0.1, 0)
    assert writer.is_closed
    reader.take(last)
    assert [topic for topic, _ in reader.received] == [b"a/in_time"]
    assert copies.times_still == 0
    node.node.handle_timeout(last + 0.1)
    assert copies.times_still == 1
    node.node.handle_timeout(last + 0.2)
    assert copies.times_still == 1


def test_durable_clients_and_streams_of_nodes_begin_anew() -> None:
    node, _ = station()
    durable = connected(node, "durable", 60)
    other = connected(node, "other")
    node.node.added("n2", 1.0)
    receiver = node.node.receivers.by_name["n2"]
    receiver.hello("s", "0c" * 16)
    stream = Stream()
    receiver.open_stream(stream, 1.0)
    node.node.handle_timeout(60.0)
    assert (durable.is_closed, other.is_closed) == (True, False)
    assert (receiver.stream, bool(stream.reason)) == (None, True)
    assert node.node.sessions is not None
    assert node.node.sessions.homes.starting_until > 60.0


def test_a_stream_is_not_read_before_the_clock_was_looked_at() -> None:
    node, _ = station()
    server = DirectServer(node.node.receivers, 1_000, 1.0)
    server.receive_data(b"", 7.0)
    assert not server.is_over
    server.receive_data(b"", 7.1)
    assert server.is_over


def test_a_stream_of_single_events_is_not_read_before_the_clock_was_looked_at() -> None:
    node, _ = station()
    node.node.added("n2", 1.0)
    receiver = node.node.receivers.by_name["n2"]
    receiver.hello("s", "0c" * 16)
    server = GoServer(node.node.receivers)
    server.begin(receiver, 1.0)
    server.receive_event(pb.Event(id=0, Subscribe=pb.Subscribe(topic_filter="a")).SerializeToString(), 7.0)
    assert (server.is_over, receiver.next_event_id) == (False, 1)
    server.receive_event(pb.Event(id=1, Subscribe=pb.Subscribe(topic_filter="b")).SerializeToString(), 7.1)
    assert (server.is_over, receiver.next_event_id) == (True, 1)


@pytest.mark.parametrize("wanted", [0, 1])
def test_a_node_without_copies_may_stand_still(wanted: int) -> None:
    node, copies = station(wanted)
    assert (node.broker.still_at == NEVER) == (wanted == 0)
    client = connected(node, "c", 60)
    node.node.handle_timeout(100.0)
    assert client.is_closed == (wanted == 1)
    assert copies.times_still == wanted


@pytest.mark.parametrize("how", ["kept", "ended", "of the process before"])
def test_copies_that_are_not_kept_are_chosen_again_when_their_home_is_lost(how: str) -> None:
    """Those that are kept are chosen again by their numbers. The lost home may have told the end of one before its copies had
    it."""
    node = Station({}).node
    sender = node.added("n2", 0.0)
    sender.forward_copy(Message(b"a", b"x", 1, False), GroupCopy(b"g", b"a"), 0.0)
    sender.outbox.close_block()
    (block,) = sender.outbox.waiting
    data = b"".join(block.encode(0.0))
    if how == "ended":
        sender.receive_ended(encode_copies_ended(list(sender.kept)), HEADER_SIZE, HEADER_SIZE + 8)
    lost = Station({}, starts=2).node.added("n2", 0.0) if how == "of the process before" else sender
    copies = node.tree.group_copies
    choose_again(data, lost, set(lost.kept), copies, 0.0)
    assert (copies.again_at == 0.0) == (how != "kept")
