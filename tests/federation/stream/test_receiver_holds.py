"""A receiver here that is slower than another node's stream: the stream waits instead of losing (decision 3)."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Final

import pytest

from broker.broker import Broker
from broker.codec.packets import ConnAck, Connect, Packet, PubAck, Publish, SubAck, Subscribe, SubscribeFilter
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet, encode_publish
from broker.config.settings import MqttSettings
from broker.session.connection import Connection
from federation.stream.counters import StreamCounters
from federation.stream.frames import encode_block_header
from federation.stream.full_state import LocalState
from federation.stream.held_batches import StreamError
from federation.stream.outbox import Outbox
from federation.stream.receiver import OpenStream, PeerReceiver
from federation.stream.retained_versions import RetainedVersions
from federation.stream.sender import Outlets, PeerSender
from federation.stream.tree import FederationTree

MESSAGES: Final = 2000


class Served(OpenStream):
    """A stream that nobody reads any more once it is ended."""

    def end(self, text: str, malformed: bool = False) -> None:
        """Its place is another's."""


class World:
    """One broker with a stream from `other`, and a subscriber that acknowledges only when asked to."""

    def __init__(self, **limits: Any) -> None:
        self.now = 100.0
        self.broker = Broker(replace(MqttSettings(), **limits), random.Random(1), self.now)
        tree = FederationTree(self.broker.router)
        counters = StreamCounters()
        outbox = Outbox(2**20, 300.0, True, counters)
        versions = RetainedVersions(self.broker, 60.0)
        tree.add_node(PeerSender("other", True, LocalState(), Outlets(), outbox, random.Random(2)))
        self.receiver = PeerReceiver("other", tree, self.broker.router, counters, versions, self.now)
        assert self.receiver.hello("session") == (True, 0)
        self.stream = Served()
        self.receiver.open_stream(self.stream, self.now)
        self.connection = Connection(self.broker, None, "", "", self.now)
        self.reader = PacketReader(4)
        self.packets: list[Packet] = []
        self.send(Connect("c", 4, True, 0))
        self.send(Subscribe(1, [SubscribeFilter(b"t", 1)]))
        self.take()
        kinds = [type(packet) for packet in self.packets]
        assert kinds == [ConnAck, SubAck]
        self.packets.clear()

    def send(self, packet: Packet) -> None:
        self.connection.receive_data(encode_packet(packet, 4), self.now)

    def take(self) -> None:
        """As the shell: what is due for the client, and the marks of who may read."""
        while self.broker.take_dirty():
            self.packets += self.reader.receive_data(self.connection.take_output())
        self.broker.take_reading_changes()

    def acknowledge(self) -> list[bytes]:
        """The client takes everything and acknowledges it; what came."""
        got: list[bytes] = []
        self.take()
        while self.packets:
            packet = self.packets.pop(0)
            assert isinstance(packet, Publish)
            got.append(packet.payload)
            self.send(PubAck(packet.packet_id))
            self.take()
        return got

    def drops(self) -> int:
        return sum(self.broker.counters.messages_dropped.values())


def block(first: int, count: int) -> bytes:
    packets = [
        encode_publish(4, b"t", b"%d" % number, 1, False, False, 1, b"") for number in range(first, first + count)
    ]
    data = b"".join(packets)
    return encode_block_header(4, count, len(data)) + data


def test_a_batch_larger_than_the_queue_waits_and_nothing_is_lost() -> None:
    """2,000 QoS 1 messages in one event, for a session that may queue 100."""
    world = World(max_queued_messages=100, max_inflight=10)
    assert world.receiver.receive_batch(world.stream, 0, MESSAGES, block(0, MESSAGES), world.now) == MESSAGES - 1
    assert world.receiver.publisher.held == 1
    # The next one came while nobody read: it waits, and is not acknowledged.
    assert world.receiver.receive_batch(world.stream, MESSAGES, 5, block(MESSAGES, 5), world.now) == -1
    got: list[bytes] = []
    acks: list[int] = []
    for _ in range(200):
        got += world.acknowledge()
        if not world.receiver.publisher.held:
            acks.append(world.receiver.resume(world.now))
    assert got == [b"%d" % number for number in range(MESSAGES + 5)]
    assert max(acks) == MESSAGES + 4
    assert world.drops() == 0
    assert world.receiver.publisher.held == 0


def test_a_stuck_receiver_holds_the_others_for_a_bounded_time() -> None:
    """After publisher_hold_max the stream goes on; the stuck session's queue overflows, counted."""
    world = World(max_queued_messages=100, max_inflight=10, publisher_hold_max=0.2)
    world.receiver.receive_batch(world.stream, 0, MESSAGES, block(0, MESSAGES), world.now)
    world.take()
    assert world.receiver.publisher.held == 1
    assert world.drops() == 0
    world.now += 1.0
    world.broker.handle_timeout(world.now)
    assert world.receiver.publisher.held == 0
    world.receiver.resume(world.now)
    while world.broker.slices.has_work():
        world.broker.go_on(world.now)
        world.receiver.resume(world.now)
    assert world.receiver.publisher.held == 0, "one hold a backlog"
    assert world.drops() == MESSAGES - 100
    assert world.receiver.receive_batch(world.stream, MESSAGES, 1, block(0, 1), world.now) == MESSAGES


@pytest.mark.parametrize("same_session", [True, False])
def test_a_stream_that_breaks_while_it_waits(same_session: bool) -> None:
    """The event that was begun goes on by time; those that waited behind it come again and are not doubled."""
    world = World(max_queued_messages=100, max_inflight=10)
    world.receiver.receive_batch(world.stream, 0, MESSAGES, block(0, MESSAGES), world.now)
    assert world.receiver.receive_batch(world.stream, MESSAGES, 5, block(MESSAGES, 5), world.now) == -1
    world.receiver.close_stream(world.stream)
    got: list[bytes] = []
    for _ in range(200):
        got += world.acknowledge()
        if world.receiver.next_timeout() <= world.now:
            world.receiver.handle_timeout(world.now)
    assert got == [b"%d" % number for number in range(MESSAGES)]
    if same_session:
        assert world.receiver.hello("session") == (False, MESSAGES)
    else:
        assert world.receiver.hello("another") == (True, 0)
    stream = Served()
    world.receiver.open_stream(stream, world.now)
    first = world.receiver.next_event_id
    assert world.receiver.receive_batch(stream, first, 5, block(MESSAGES, 5), world.now) == first + 4
    assert world.acknowledge() == [b"%d" % number for number in range(MESSAGES, MESSAGES + 5)]
    assert world.drops() == 0


def test_a_block_that_waits_belongs_to_the_store_it_came_from() -> None:
    """Its node comes back with another store meanwhile."""
    world = World(max_queued_messages=100, max_inflight=10)
    receiver = world.receiver
    receiver.hello("session", "first store")
    receiver.receive_batch(world.stream, 0, MESSAGES, block(0, MESSAGES), world.now, serial=7)
    first = receiver.position
    assert 0 < first.rest < MESSAGES
    receiver.hello("another", "second store")
    for _ in range(200):
        world.acknowledge()
        receiver.resume(world.now)
    assert (first.serial, first.done, first.rest) == (7, MESSAGES, 0)
    assert (receiver.position.serial, receiver.position.done, receiver.position.rest) == (0, 0, 0)


def test_a_node_that_leaves_takes_back_nothing_that_was_acknowledged() -> None:
    """The last block of a batch is acknowledged before all of it is with its receivers. What the queue has no room for is
    dropped by the queue, and counted."""
    world = World(max_queued_messages=1000, max_inflight=10)
    assert world.receiver.receive_batch(world.stream, 0, MESSAGES, block(0, MESSAGES), world.now) == MESSAGES - 1
    assert world.receiver.publisher.held == 1
    world.receiver.end(world.now)
    got: list[bytes] = []
    for _ in range(200):
        got += world.acknowledge()
    assert len(got) + world.drops() == MESSAGES
    assert world.drops() <= MESSAGES / 2
    assert got[-1] == b"%d" % (MESSAGES - 1)


def test_batches_of_an_older_session_do_not_count_for_the_new_one() -> None:
    """Over gRPC a Hello comes before its stream: meanwhile the stream of the session before may still bring something."""
    world = World()
    assert world.receiver.hello("another") == (True, 0)
    with pytest.raises(StreamError, match="replaced by a newer stream"):
        world.receiver.receive_batch(world.stream, 0, 3, block(0, 3), world.now)
    stream = Served()
    world.receiver.open_stream(stream, world.now)
    assert world.receiver.receive_batch(stream, 0, 1, block(10, 1), world.now) == 0
    assert world.acknowledge() == [b"10"]
