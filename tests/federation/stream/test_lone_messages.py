"""Messages that come alone: the short cut writes and reads the same bytes, and does the same, as the long way."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.broker import Broker
from broker.codec.packets import Connect, Publish, Subscribe, SubscribeFilter
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet, encode_publish
from broker.config.settings import MqttSettings
from broker.message import Message
from broker.session.alone import DirectOutput
from federation.stream.batches import Outlet, Outlets
from federation.stream.counters import StreamCounters
from federation.stream.direct import PING, ServerReader, encode_batch_of
from federation.stream.frames import encode_block_header
from federation.stream.full_state import LocalState
from federation.stream.lone import LONE_HEADER_SIZE, LoneEncoder, encode_lone_batch, lone_event_id
from federation.stream.outbox import Outbox
from federation.stream.receiver import PeerReceiver
from federation.stream.retained_changes import RetainedChanges
from federation.stream.sender import EAGER_BLOCKS, PeerSender
from federation.stream.state import State
from federation.stream.tree import FederationTree
from federation.stream.waiting import WaitingBatch


def qos0(payload: bytes, topic: bytes = b"t", version: int = 4) -> bytes:
    return encode_publish(version, topic, payload, 0, False, False, 0, b"")


class Wire(Outlet):
    """A shell without a network: what the sender wrote, as bytes of a direct stream."""

    def __init__(self, sender: PeerSender) -> None:
        self.sender = sender
        self.is_open = True
        self.alone: list[bytes] = []
        self.written: list[bytes] = []
        sender.outlet = self

    def is_direct(self) -> bool:
        return self.is_open

    def write_direct(self, data: bytes) -> None:
        self.alone.append(data)
        self.written.append(data)

    def flush_at(self, now: float) -> None:
        data = self.sender.take_bytes(now)
        if data:
            self.written.append(data)


def make(bytes_max: int = 2**26) -> tuple[PeerSender, Wire]:
    outbox = Outbox(bytes_max, 300.0, True, StreamCounters())
    sender = PeerSender("other", True, LocalState(), Outlets(), outbox, RetainedChanges("this"), random.Random(1))
    wire = Wire(sender)
    sender.connect("host:1", 0.0)
    sender.hello_reply(1, True, 0, 0.0)
    wire.flush_at(0.0)
    sender.ack(1, 1, 0.0)
    wire.written.clear()
    sender.outlets.take_ready()
    return sender, wire


def forward_alone(sender: PeerSender, data: bytes, version: int, now: float) -> bool:
    """As the router, for a message that comes alone."""
    if not sender.is_clear():
        sender.forward_run(data, 1, version, now)
        return False
    sender.write_alone(data, version)
    return sender.note_alone(data, version, now)


# --- the bytes


@pytest.mark.parametrize("size", [0, 1, 100, 200, 240, 241, 5000, 70_000])
@pytest.mark.parametrize("version", [4, 5])
def test_the_bytes_are_those_of_any_batch(size: int, version: int) -> None:
    packet = qos0(bytes(size), version=version)
    long_way = encode_batch_of(2**40 + 7, 1, [encode_block_header(version, 1, len(packet)), packet])
    assert encode_lone_batch(2**40 + 7, version, 1, packet) == long_way
    assert lone_event_id(long_way) == 2**40 + 7
    assert long_way[LONE_HEADER_SIZE:] == packet


@pytest.mark.parametrize("seed", range(10))
def test_what_was_prepared_or_not_gives_the_same_bytes(seed: int) -> None:
    rng = random.Random(seed)
    encoder = LoneEncoder()
    event_id = 0
    for _ in range(200):
        packet = qos0(bytes(rng.choice((5, 5, 5, 6, 200, 300))))
        version = rng.choice((4, 4, 4, 5))
        assert encoder.encode(event_id, version, packet) == encode_lone_batch(event_id, version, 1, packet)
        event_id += rng.choice((1, 1, 1, 2))
        if rng.random() < 0.9:
            encoder.prepare(event_id, version, len(packet))
        if rng.random() < 0.1:
            event_id = 0  # a new session


def test_only_a_chunk_of_one_batch_of_one_packet_is_alone() -> None:
    lone = encode_lone_batch(7, 4, 1, qos0(b"x" * 50))
    assert lone_event_id(lone) == 7
    others = [b"", PING, lone[:-1], lone + b"x", lone + lone, encode_lone_batch(7, 4, 2, qos0(b"x") * 2)]
    header = encode_block_header(4, 1, 10)
    others.append(encode_batch_of(7, 2, [header, bytes(10), header, bytes(10)]))
    for at in [*range(4), *range(12, 22), *range(23, 27)]:  # all of the headers but the id and the version
        values = {0, 1, 2, 127, 128, 255} - {lone[at]}
        others += [lone[:at] + bytes((value,)) + lone[at + 1 :] for value in sorted(values)]
    assert [other for other in others if lone_event_id(other) != -1] == []
    assert lone_event_id(encode_lone_batch(0, 4, 1, qos0(b"x"))[:4] + b"\xff" * 8 + lone[12:]) < 0, (
        "an id of 2^63 or more"
    )


# --- the sender


def test_alone_is_written_as_if_it_had_waited_for_the_end_of_the_turn() -> None:
    sender, wire = make()
    other, other_wire = make()
    for number in range(20):
        packet = qos0(b"%d" % number)
        forward_alone(sender, packet, 4, 1.0 + number)
        other.forward_run(packet, 1, 4, 1.0 + number)
        assert other.outlets.take_ready() == [other]
        other_wire.flush_at(1.0 + number)
        assert not sender.outlets.ready
    assert len(wire.alone) == 20
    assert wire.written == other_wire.written
    assert sender.outbox.size == other.outbox.size > 0
    for name in ("messages_queued", "batches_sent", "events_sent", "bytes_sent"):
        assert getattr(sender.counters, name) == getattr(other.counters, name)
    for each in (sender, other):
        assert each.next_timeout() == other.next_timeout()
        each.ack(1, 21, 30.0)
        assert each.outbox.size == 0
        assert each.counters.events_acked == 22


def not_streaming(sender: PeerSender, _wire: Wire) -> None:
    sender.connection_lost(1, "reset", 1.0)


def on_grpc(_sender: PeerSender, wire: Wire) -> None:
    wire.is_open = False


def no_shell(sender: PeerSender, _wire: Wire) -> None:
    sender.outlet = None


def something_waits(sender: PeerSender, _wire: Wire) -> None:
    sender.forward_run(qos0(b"first"), 1, 4, 1.0)


def many_on_the_way(sender: PeerSender, wire: Wire) -> None:
    for _ in range(EAGER_BLOCKS):
        forward_alone(sender, qos0(b"first"), 4, 1.0)
    wire.alone.clear()


def interest_waits(sender: PeerSender, _wire: Wire) -> None:
    sender.interest_changed(b"", b"a/#", True)


def retained_was_lost(sender: PeerSender, _wire: Wire) -> None:
    sender.tell_retained(b"r")


def a_resumed_stream(sender: PeerSender, wire: Wire) -> None:
    forward_alone(sender, qos0(b"first"), 4, 1.0)
    wire.alone.clear()
    sender.connection_lost(1, "reset", 1.0)
    sender.connect("host:1", 1.0)
    sender.hello_reply(sender.attempt, False, 2, 1.0)


@pytest.mark.parametrize(
    "case",
    [
        not_streaming,
        on_grpc,
        no_shell,
        something_waits,
        many_on_the_way,
        interest_waits,
        retained_was_lost,
        a_resumed_stream,
    ],
)
def test_it_waits_behind_what_must_come_first(case: Any) -> None:
    sender, wire = make()
    case(sender, wire)
    queued = sender.counters.messages_queued
    forward_alone(sender, qos0(b"last"), 4, 1.0)
    assert wire.alone == []
    assert sender.counters.messages_queued == queued + 1
    assert not sender.outbox.is_empty()


def test_a_full_outbox_is_no_short_cut() -> None:
    """Past the half publishers are held, and past the bound messages are dropped: the long way does both."""
    sender, wire = make(bytes_max=4096)
    while not sender.congested:
        forward_alone(sender, qos0(bytes(300)), 4, 1.0)
    assert 3 <= len(wire.alone) <= 8
    assert sender.outbox.size <= 4096


@pytest.mark.parametrize("seed", range(40))
def test_any_mixture_arrives_once_and_in_order(seed: int) -> None:
    """Alone, in runs, as messages, with acknowledgements, lost connections and refused ones between."""
    rng = random.Random(seed)
    sender, wire = make()
    reader = Reader()
    now = 1.0
    sent = []
    for number in range(400):
        now += rng.choice((0.0, 0.0003, 0.002, 0.2))
        payload = b"%d" % number
        choice = rng.randrange(12)
        if choice < 6:
            forward_alone(sender, qos0(payload), 4, now)
            sent.append(payload)
        elif choice < 8:
            sender.forward_run(qos0(payload), 1, rng.choice((4, 4, 4, 4)), now)
            sent.append(payload)
        elif choice == 8:
            sender.forward(Message(b"t", payload, rng.randrange(2), rng.random() < 0.3), (), now)
            sent.append(payload)
        elif choice == 9 and state(sender) is State.STREAMING:
            reader.read(wire)
            if reader.next_id > 0:
                sender.ack(sender.attempt, reader.next_id - 1, now)
        elif choice == 10 and rng.random() < 0.2:
            if rng.random() < 0.5:
                reader.read(wire)  # else it is lost on the way
            wire.written.clear()
            sender.connection_lost(sender.attempt, "reset", now)
            sender.connect("host:1", now)
            is_new = rng.random() < 0.2 and reader.next_id == 0
            sender.hello_reply(sender.attempt, is_new, reader.next_id, now)
        if rng.random() < 0.7 and sender.outlets.take_ready():
            wire.flush_at(now)
    for _ in range(200):
        now += 0.01
        wire.flush_at(now)
        reader.read(wire)
        sender.ack(sender.attempt, reader.next_id - 1, now)
    assert reader.payloads == sent
    assert sender.outbox.size == 0
    assert len(wire.alone) > 20


def state(sender: PeerSender) -> State:
    return sender.state


class Reader:
    """The other end, by the long way only: event ids go up by one, what comes again is stepped over."""

    def __init__(self) -> None:
        self.next_id = 2
        self.payloads: list[bytes] = []
        self._packets = PacketReader(4)
        self._packets5 = PacketReader(5)

    def read(self, wire: Wire) -> None:
        reader = ServerReader(2**20)
        reader._needed = 16
        reader.receive(b"".join(wire.written))
        wire.written.clear()
        while reader.next_batch():
            assert reader.first_id <= self.next_id
            event_id = reader.first_id
            pos = reader.start
            while pos < reader.stop:
                kind = reader.data[pos]
                size = int.from_bytes(reader.data[pos + 2 : pos + 6], "big")
                body = reader.data[pos + 6 : pos + 6 + size]
                if event_id == self.next_id:
                    self.next_id += 1
                    self._event(kind, body)
                event_id += 1
                pos += 6 + size

    def _event(self, kind: int, body: bytes) -> None:
        if kind == 3:
            packets = self._packets if body[0] == 4 else self._packets5
            data = body[5:]
        else:
            assert kind == 4
            packets = self._packets5
            data = body[2:]
        for packet in packets.receive_data(data):
            assert isinstance(packet, Publish)
            self.payloads.append(packet.payload)


# --- the receiver


class Socket(DirectOutput):
    """Of the subscriber of an End, when its shell writes at once."""

    def __init__(self, end: End) -> None:
        self.end = end
        self.count = 0

    def write(self, data: bytes) -> None:
        self.count += 1
        self.end.read(data)


class End:
    """One broker with a stream from `other` and a subscriber."""

    def __init__(self, at_once: bool = False) -> None:
        self.now = 100.0
        self.broker = Broker(MqttSettings(), random.Random(1), self.now)
        tree = FederationTree(self.broker.router)
        self.counters = StreamCounters()
        changes = RetainedChanges("this")
        outbox = Outbox(2**20, 300.0, True, self.counters)
        tree.add_node(PeerSender("other", True, LocalState(), Outlets(), outbox, changes, random.Random(2)))
        self.receiver = PeerReceiver("other", tree, self.broker.router, self.counters, changes, self.now)
        self.receiver.hello("session")
        self.stream = self.receiver.open_stream(True, self.now)
        self.connection = self.broker.open_connection(None, "", "", self.now)
        self.received: list[Publish] = []
        self._packets = PacketReader(4)
        self.connection.receive_data(encode_packet(Connect("c", 4, True, 0), 4), self.now)
        self.socket = Socket(self)
        if at_once:
            self.connection.direct = self.socket
        self.subscribe(b"t")
        self.take()

    def subscribe(self, *topic_filters: bytes) -> None:
        packet = Subscribe(1, [SubscribeFilter(topic_filter) for topic_filter in topic_filters])
        self.connection.receive_data(encode_packet(packet, 4), self.now)

    def take(self) -> list[tuple[bytes, bytes]]:
        """What the subscriber was sent since the last call."""
        while self.broker.take_dirty():
            self.read(self.connection.take_output())
        found = [(packet.topic, packet.payload) for packet in self.received]
        self.received.clear()
        return found

    def read(self, data: bytes) -> None:
        self.received += [packet for packet in self._packets.receive_data(data) if isinstance(packet, Publish)]

    def short_way(self, data: bytes) -> int:
        """As the shell; -1 where it is left to the long way."""
        ack = self.receiver.receive_alone(self.stream, data)
        if ack >= 0:
            self.receiver.note_alone(data, self.now)
            return ack
        return self.receiver.receive_lone(self.stream, data, self.now)

    def long_way(self, data: bytes) -> int:
        reader = ServerReader(2**20)
        reader._needed = 16
        reader.receive(data)
        ack = -1
        while reader.next_batch():
            ack = self.receiver.receive_batch(
                self.stream, reader.first_id, reader.count, reader.data, self.now, reader.start, reader.stop
            )
        return ack


@pytest.mark.parametrize("at_once", [False, True])
def test_the_short_cut_is_taken_from_the_third_message_on(at_once: bool) -> None:
    end = End(at_once)
    taken = []
    received = []
    for number in range(6):
        data = encode_lone_batch(number, 4, 1, qos0(b"%d" % number))
        ack = end.short_way(data)
        taken.append(ack)
        if ack < 0:
            assert end.long_way(data) == number
            received += end.take()
    assert taken == [-1, -1, 2, 3, 4, 5]
    assert received + end.take() == [(b"t", b"%d" % number) for number in range(6)]
    assert end.socket.count == (4 if at_once else 0)
    assert end.receiver.next_event_id == 6
    assert end.broker.router.publisher is None


def learned(at_once: bool = False) -> End:
    end = End(at_once)
    for number in range(2):
        end.long_way(encode_lone_batch(number, 4, 1, qos0(b"%d" % number)))
    end.take()
    return end


@pytest.mark.parametrize("at_once", [False, True])
def test_what_is_not_the_next_of_its_form_is_left_to_the_long_way(at_once: bool) -> None:
    end = learned(at_once)
    packet = qos0(b"x")
    five = qos0(b"x", version=5)
    refused = [
        encode_lone_batch(1, 4, 1, packet),  # done already
        encode_lone_batch(3, 4, 1, packet),  # a gap
        encode_lone_batch(2, 5, 1, packet),  # of another MQTT level
        encode_lone_batch(2, 5, 1, five),
        encode_lone_batch(2, 4, 1, qos0(b"x", b"u")),
        encode_lone_batch(2, 4, 1, bytes((0x31,)) + packet[1:]),
        encode_lone_batch(2, 4, 2, packet + packet),
        encode_lone_batch(2, 4, 1, packet)[:-1],
        PING,
    ]
    assert [end.short_way(data) for data in refused] == [-1] * len(refused)
    good = encode_lone_batch(2, 4, 1, packet)
    assert end.receiver.receive_alone(end.stream + 1, good) == -1, "another stream"
    assert end.receiver.receive_lone(end.stream + 1, good, end.now) == -1, "another stream"
    end.receiver.publisher.held += 1
    assert end.short_way(good) == -1, "receivers are full"
    end.receiver.publisher.held -= 1
    end.subscribe(b"#")
    assert end.short_way(good) == -1, "a subscription changed"
    assert end.take() == []
    assert end.socket.count == 0
    assert end.receiver.next_event_id == 2
    assert end.long_way(good) == 2
    assert end.take() == [(b"t", b"x")]


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_both_ways_do_the_same(seed: int, at_once: bool) -> None:
    rng = random.Random(seed)
    short, long = End(at_once), End()
    event_id = 0
    taken = 0
    received: list[tuple[bytes, bytes]] = []
    received_long: list[tuple[bytes, bytes]] = []
    topic = b"t"
    for number in range(200):
        if rng.random() < 0.1:
            topic = rng.choice((b"t", b"u", b"v/w"))
        if rng.random() < 0.05:
            topic_filter = rng.choice((b"#", b"u", b"v/+", b"$share/g/t"))
            short.subscribe(topic_filter)
            long.subscribe(topic_filter)
        version = 4 if rng.random() < 0.95 else 5
        data = encode_lone_batch(event_id, version, 1, qos0(b"%d" % number, topic, version))
        ack = short.short_way(data)
        taken += ack >= 0
        if ack < 0:
            ack = short.long_way(data)
        assert ack == long.long_way(data) == event_id
        if rng.random() < 0.9:
            event_id += 1
        received += short.take()
        received_long += long.take()
    assert received == received_long
    assert len(received) > 50
    assert taken > 50
    for name in ("batches_received", "events_received", "bytes_received"):
        assert getattr(short.counters, name) == getattr(long.counters, name)
    for name in ("messages_from_peers", "messages_sent"):
        assert getattr(short.broker.counters, name) == getattr(long.broker.counters, name)
    assert (short.socket.count > 20) == at_once


@pytest.mark.parametrize("at_once", [False, True])
def test_it_waits_behind_what_was_received_before(at_once: bool) -> None:
    end = learned(at_once)
    good = encode_lone_batch(2, 4, 1, qos0(b"x"))
    end.receiver.streaming = False
    assert end.short_way(good) == -1, "no stream is open"
    end.receiver.streaming = True
    end.receiver._block = (b"", 4)
    assert end.short_way(good) == -1, "the rest of a block waits"
    end.receiver._block = None
    end.receiver._waiting.put_back(WaitingBatch(2, 1, 0, b""))
    assert end.short_way(good) == -1, "a batch waits"
    end.receiver._waiting.take()
    assert end.receiver.next_event_id == 2
    end.now += 7.0
    assert end.short_way(good) == 2
    assert end.broker.now == end.now
    assert end.take() == [(b"t", b"x")]
