"""Messages that follow one of their form: they go where a message that is taken apart goes, and nowhere else."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.codec.packets import Publish
from broker.codec.reader import PacketReader
from broker.codec.wire import encode_varint
from broker.codec.writer import encode_packet, encode_publish
from broker.flow import Flow, make_flow
from broker.routing.route import Route
from broker.session.alone import DirectOutput, note_alone, receive_alone
from broker.session.connection import Connection

TOPIC = b"a/b"
ODD = (0, 1, 2, 3, 0x30, 0x31, 0x32, 0x38, 127, 128, 129)  # bytes that mean something in a header
SIZES = (0, 1, 5, 113, 119, 120, 121, 122, 123, 200, 500, 16_370, 16_377, 16_378, 16_379, 20_000)


def qos0(version: int, payload: bytes, topic: bytes = TOPIC) -> bytes:
    return encode_publish(version, topic, payload, 0, False, False, 0, b"")


def flow_of(data: bytes, version: int, topic: bytes = TOPIC) -> Flow | None:
    payload_at = data.index(topic) + len(topic) + (version == 5)
    return make_flow(Route(topic), 7, version, data, 0, payload_at)


def is_more(data: bytes, version: int) -> bool:
    """The slow way: exactly one PUBLISH of QoS 0 without flags and properties to TOPIC, its length in as few bytes as can
    be."""
    try:
        packets = PacketReader(version).receive_data(data)
    except Exception:
        return False
    if len(packets) != 1 or encode_packet(packets[0], version) != data:
        return False
    packet = packets[0]
    return (
        isinstance(packet, Publish)
        and (packet.topic, packet.qos, packet.retain, packet.dup) == (TOPIC, 0, False, False)
        and packet.topic_alias == 0
        and packet.message_expiry_interval < 0
        and not packet.properties
    )


def length_bytes(data: bytes) -> int:
    return 1 if data[1] < 128 else 2 if data[2] < 128 else 3


@pytest.mark.parametrize("version", [4, 5])
def test_it_fits_what_the_slow_way_reads_as_one_more(version: int) -> None:
    """Other sizes, topics, flags and properties, cut and joined packets, single bytes changed: never more, and never less
    where the remaining length has as many bytes as the flow's."""
    rng = random.Random(version)
    flows = [(flow_of(qos0(version, bytes(size)), version), qos0(version, bytes(size))) for size in SIZES]
    seen = [0, 0]
    for _ in range(20_000):
        data = qos0(
            version, rng.randbytes(rng.choice(SIZES[:11])), rng.choice((TOPIC, TOPIC, TOPIC, b"a/c", b"a/bb", b"a"))
        )
        choice = rng.randrange(8)
        if choice == 0:
            data = data[: rng.randrange(1, len(data))]
        elif choice == 1:
            data += data[: rng.randrange(1, len(data) + 1)]
        elif choice <= 4:
            at = rng.randrange(min(len(data), 9))
            data = data[:at] + bytes((rng.choice((*ODD, rng.randrange(256))),)) + data[at + 1 :]
        flow, first = rng.choice(flows)
        expected = flow is not None and is_more(data, version) and length_bytes(data) == length_bytes(first)
        fits = flow is not None and flow.fits(data, 0, 7)
        assert fits == expected, (data[:40], len(data), first[:10])
        if flow is not None:
            assert flow.fits(b"before" + data, 6, 7) == expected
            assert not flow.fits(data, 0, 8), "the subscriptions have changed"
        seen[fits] += 1
    assert min(seen) > 1000


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("length", [1, 5, 6, 7, 8, 13, 14, 15, 16, 100])
def test_it_fits_to_the_last_byte_of_the_topic(version: int, length: int) -> None:
    """Eight bytes are compared at once, then the rest one by one."""
    topic = b"t" * length
    data = qos0(version, b"payload", topic)
    flow = flow_of(data, version, topic)
    assert flow is not None
    assert flow.fits(b"xyz" + data, 3, 7)
    head = range(2, data.index(b"payload"))
    assert len(head) == 2 + length + (version == 5)
    for at in head:
        for value in (data[at] ^ 1, data[at] ^ 128):
            assert not flow.fits(data[:at] + bytes((value,)) + data[at + 1 :], 0, 7), at


def test_longer_packets_have_no_flow() -> None:
    assert flow_of(qos0(4, bytes(16_378)), 4) is not None
    assert flow_of(qos0(4, bytes(16_379)), 4) is None


@pytest.mark.parametrize("version", [4, 5])
def test_a_length_with_more_bytes_than_it_needs_is_no_more_of_it(version: int) -> None:
    """They are forwarded as they came, and no receiver gets to see such a length."""
    body = qos0(version, b"x" * 20)[2:]
    flow = flow_of(qos0(version, bytes(200)), version)
    assert flow is not None
    assert not flow.fits(b"\x30" + bytes((len(body) | 0x80, 0)) + body, 0, 7)


# --- in a connection


def learn(world: Any, version: int, topic: bytes = TOPIC) -> Any:
    """A publisher whose third message finds a flow."""
    client = world.connect("publisher", version)
    for number in range(2):
        client.send_bytes(qos0(version, b"%d" % number, topic))
    assert client.connection.flow is not None
    return client


@pytest.mark.parametrize("version", [4, 5])
def test_what_changes_is_seen_by_the_next_message(world: Any, version: int) -> None:
    publisher = learn(world, version)
    first = world.connect("first", 4)
    second = world.connect("second", 5)
    first.subscribe(TOPIC)
    publisher.send_bytes(qos0(version, b"2"))
    second.subscribe(b"a/#", qos=1)
    publisher.send_bytes(qos0(version, b"3"))
    publisher.send_bytes(qos0(version, b"4"))
    first.unsubscribe(TOPIC)
    publisher.send_bytes(qos0(version, b"5"))
    second.unsubscribe(b"a/#")
    publisher.send_bytes(qos0(version, b"6"))
    second.subscribe(b"$share/g/a/b")
    publisher.send_bytes(qos0(version, b"7"))
    publisher.send_bytes(qos0(version, b"8"))
    assert [p.payload for p in first.take_publishes()] == [b"2", b"3", b"4"]
    assert [p.payload for p in second.take_publishes()] == [b"3", b"4", b"5", b"7", b"8"]
    assert world.broker.counters.messages_received == [9, 0, 0]
    assert world.broker.counters.messages_sent == [8, 0, 0]


def test_another_topic_and_back(world: Any) -> None:
    publisher = learn(world, 4)
    receiver = world.connect("r")
    receiver.subscribe(b"#")
    for topic in (b"a/c", TOPIC, b"a/c", b"a/c", b"a/c", TOPIC, TOPIC, TOPIC):
        publisher.send_bytes(qos0(4, topic, topic))
    got = [(p.topic, p.payload) for p in receiver.take_publishes()]
    assert got == [(topic, topic) for topic in (b"a/c", TOPIC, b"a/c", b"a/c", b"a/c", TOPIC, TOPIC, TOPIC)]


def test_maximum_packet_size_holds(make_world: Any) -> None:
    """Of the flow's form in all else."""
    world = make_world(max_packet_size=300)
    client = world.connect("publisher", 5)
    for size in (150, 160):
        client.send_bytes(qos0(5, bytes(size)))
    assert client.connection.flow is not None
    client.send_bytes(qos0(5, bytes(291)))
    assert not client.connection.closed
    client.send_bytes(qos0(5, bytes(292)))
    assert client.connection.closed
    assert "at most 300" in client.connection.close_text


def test_a_receivers_maximum_packet_size_and_queue(world: Any) -> None:
    """They are looked at for each message, whatever the flow says."""
    publisher = learn(world, 5)
    small = world.connect("small", 5, properties={39: 100})
    away = world.connect("away", 5, clean_start=False, expiry=100)
    small.subscribe(TOPIC)
    away.subscribe(TOPIC)
    away.cut()
    for size in (10, 93, 92, 10):
        publisher.send_bytes(qos0(5, bytes(size)))
    assert [len(p.payload) for p in small.take_publishes()] == [10, 92, 10]
    assert world.broker.counters.messages_received[0] == 6


def test_a_held_publisher_waits(make_world: Any) -> None:
    """A receiver that is full asks the publisher to wait, also in the middle of a flow."""
    world = make_world(max_queued_messages=4)
    publisher = learn(world, 4)
    receiver = world.connect("slow")
    receiver.subscribe(TOPIC)
    receiver.connection.writable = False
    for number in range(8):
        publisher.connection.receive_data(qos0(4, b"%d" % number), world.now)
        if publisher.connection.held:
            break
    assert publisher.connection.held
    assert world.broker.router.publisher is None


@pytest.mark.parametrize("seed", range(20))
def test_packet_by_packet_is_as_all_at_once(make_world: Any, seed: int) -> None:
    """Every packet a chunk of its own, or many in one: the same output for everyone."""
    outcomes = []
    for one_by_one in (True, False):
        rng = random.Random(seed)
        world = make_world()
        version = rng.choice((4, 5))
        others = [world.connect(f"r{v}", v) for v in (4, 5)]
        for other in others:
            other.subscribe(b"a/#")
        client = world.connect("c", version)
        for _ in range(12):
            packets = []
            topic = rng.choice((TOPIC, b"a/c"))
            for _ in range(rng.randrange(1, 30)):
                if rng.random() < 0.1:
                    topic = rng.choice((TOPIC, b"a/c", b"b"))
                packet = qos0(version, rng.randbytes(rng.choice((4, 4, 9, 150))), topic)
                if rng.random() < 0.1:
                    packet = encode_publish(version, topic, b"p", 1, rng.random() < 0.5, False, 1, b"")
                packets.append(packet)
            for chunk in packets if one_by_one else [b"".join(packets)]:
                client.send_bytes(chunk)
            other = rng.choice(others)
            topic_filter = rng.choice((b"a/#", b"b", b"#", b"$share/g/a/b"))
            if rng.random() < 0.5:
                other.subscribe(topic_filter)
            else:
                other.unsubscribe(topic_filter)
        counters = world.broker.counters
        received = [[(p.topic, p.payload, p.qos) for p in other.take_publishes()] for other in others]
        outcomes.append(
            (received, counters.messages_received, counters.messages_sent, client.connection.packets_received)
        )
        if one_by_one:
            assert client.connection.flow is not None
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0][0] or outcomes[0][0][1]


def test_the_slow_reader_of_this_file_tells_a_long_length() -> None:
    body = qos0(4, b"x" * 20)[2:]
    assert is_more(b"\x30" + encode_varint(len(body)) + body, 4)
    assert not is_more(b"\x30" + bytes((len(body) | 0x80, 0)) + body, 4)


# --- to the only receiver, at once


class Direct(DirectOutput):
    """A shell that writes at once: everything for one client in the order in which it leaves."""

    def __init__(self, client: Any) -> None:
        self.connection = client.connection
        self.stream = b""
        self.alone = 0
        self.connection.direct = self

    def write(self, data: bytes) -> None:
        self.stream += data
        self.alone += 1

    def flush(self) -> None:
        """The end of a turn."""
        while dirty := self.connection.broker.take_dirty():
            for connection in dirty:
                data = connection.take_output()
                if connection is self.connection:
                    self.stream += data

    def publishes(self) -> list[bytes]:
        packets = PacketReader(self.connection.version).receive_data(self.stream)
        return [packet.payload for packet in packets if isinstance(packet, Publish)]


def alone(world: Any, publisher: Any, payload: bytes, version: int = 4) -> bool:
    return receive(publisher.connection, qos0(version, payload), world.now, True)


def receive(connection: Connection, data: bytes, now: float, is_alone: bool) -> bool:
    """As the shell. True when there is nothing to flush."""
    if is_alone and receive_alone(connection, data):
        return note_alone(connection, data, now)
    connection.receive_data(data, now)
    return False


def test_the_only_receiver_gets_it_at_once(world: Any) -> None:
    receiver = world.connect("r", 4, auto=False)
    receiver.subscribe(TOPIC)
    world.flush()
    publisher = learn(world, 4)
    world.flush()
    direct = Direct(receiver)
    assert alone(world, publisher, b"2")
    assert (direct.publishes(), direct.alone) == ([b"2"], 1)
    assert not world.broker.dirty
    assert receiver.connection.take_output() == b""
    assert receiver.connection.packets_sent >= 3
    assert world.broker.counters.messages_sent == [3, 0, 0]
    assert world.broker.router.publisher is None
    publisher.connection.receive_data(qos0(4, b"3"), world.now)  # not alone: at the end of the turn
    assert direct.alone == 1
    direct.flush()
    assert direct.publishes() == [b"2", b"3"]


def output_waits(world: Any, receiver: Any) -> None:
    receiver.connection.write_packets(qos0(4, b"first"), 1)


def transport_is_full(_world: Any, receiver: Any) -> None:
    receiver.connection.writable = False


def another_receiver(world: Any, _receiver: Any) -> None:
    world.connect("other", 4).subscribe(TOPIC)


def shell_gathers(_world: Any, receiver: Any) -> None:
    receiver.connection.direct = None


def messages_wait(world: Any, receiver: Any) -> None:
    receiver.connection.writable = False
    world.publish(TOPIC, b"queued", qos=1)
    receiver.connection.writable = True


def receiver_is_away(_world: Any, receiver: Any) -> None:
    receiver.cut()


@pytest.mark.parametrize(
    "case", [output_waits, transport_is_full, another_receiver, shell_gathers, messages_wait, receiver_is_away]
)
def test_it_keeps_its_place_behind_what_waits(world: Any, case: Any) -> None:
    receiver = world.connect("r", 4, clean_start=False, auto=False)
    receiver.subscribe(TOPIC, qos=1)
    publisher = learn(world, 4)
    world.flush()
    direct = Direct(receiver)
    case(world, receiver)
    publisher.connection.receive_data(qos0(4, b"learned again"), world.now)
    publisher.connection.receive_data(qos0(4, b"and again"), world.now)
    assert not alone(world, publisher, b"last")
    assert direct.alone == 0


@pytest.mark.parametrize("version", [4, 5])
def test_a_receiver_of_the_other_version_or_with_a_small_maximum(world: Any, version: int) -> None:
    other = world.connect("other", 9 - version, auto=False)
    other.subscribe(TOPIC)
    publisher = learn(world, version)
    world.flush()
    direct = Direct(other)
    assert not alone(world, publisher, b"2", version)
    assert direct.alone == 0
    other.unsubscribe(TOPIC)
    small = world.connect("small", 5, auto=False, properties={39: 60})
    small.subscribe(TOPIC)
    world.flush()
    to_small = Direct(small)
    for size in (10, 10, 10, 80, 20):
        if not alone(world, publisher, bytes(size), version):
            to_small.flush()
    assert [len(payload) for payload in to_small.publishes()] == [10, 10, 10, 20]
    assert to_small.alone == (2 if version == 5 else 0), "the first finds the change, the second learns"


@pytest.mark.parametrize("seed", range(20))
def test_at_once_or_at_the_end_of_the_turn_is_the_same_to_the_receiver(make_world: Any, seed: int) -> None:
    """The same bytes in the same order, whatever is alone, waits, or is held between."""
    streams = []
    shortened = 0
    for is_direct in (True, False):
        rng = random.Random(seed)
        world = make_world()
        receiver = world.connect("r", 4, auto=False)
        receiver.subscribe(TOPIC, qos=rng.randrange(2))
        publishers = [world.connect(f"p{number}", 4) for number in range(2)]
        world.flush()
        direct = Direct(receiver)
        if not is_direct:
            receiver.connection.direct = None
        for number in range(300):
            publisher = rng.choice(publishers)
            choice = rng.randrange(20)
            payload = b"%d" % number
            if choice == 0:
                receiver.connection.writable = not receiver.connection.writable
                if receiver.connection.writable:
                    world.broker.connection_writable(receiver.connection, world.now)
            elif choice == 1:
                data = encode_publish(4, TOPIC, payload, 1, False, False, 1 + number, b"")
                publisher.connection.receive_data(data, world.now)
            elif choice <= 3:
                publisher.connection.receive_data(qos0(4, payload), world.now)
            elif not receive(publisher.connection, qos0(4, payload), world.now, not world.broker.dirty):
                direct.flush()
            if rng.random() < 0.5:
                direct.flush()
        receiver.connection.writable = True
        world.broker.connection_writable(receiver.connection, world.now)
        direct.flush()
        streams.append(direct.publishes())
        shortened += direct.alone
    assert streams[0] == streams[1]
    assert len(streams[0]) > 150
    assert shortened > 30


# --- what is written down afterwards


def test_the_books_are_as_on_the_long_way(make_world: Any) -> None:
    seen = []
    for is_alone in (True, False):
        world = make_world()
        receiver = world.connect("r", 4, auto=False)
        receiver.subscribe(TOPIC)
        publisher = learn(world, 4)
        world.flush()
        direct = Direct(receiver)
        receive(publisher.connection, qos0(4, b"2"), world.now + 5.0, is_alone)
        assert direct.alone == is_alone
        direct.flush()
        connection = publisher.connection
        seen.append(
            (
                connection.last_received_at,
                connection.packets_received,
                connection.received_bytes,
                world.broker.now,
                receiver.connection.packets_sent,
                receiver.connection.sent_bytes,
                world.broker.counters.messages_received,
                world.broker.counters.messages_sent,
            )
        )
    assert seen[0] == seen[1]
    assert seen[0][0] == seen[0][3] == world.now + 5.0


def test_behind_half_a_packet_or_beyond_the_maximum_it_is_not_alone(world: Any) -> None:
    receiver = world.connect("r", 4, auto=False)
    receiver.subscribe(TOPIC)
    publisher = learn(world, 4)
    world.flush()
    direct = Direct(receiver)
    packet = qos0(4, b"2")
    maximum = world.broker.max_packet_size
    world.broker.max_packet_size = len(packet) - 1
    assert not receive_alone(publisher.connection, packet)
    world.broker.max_packet_size = maximum
    publisher.connection.receive_data(qos0(4, packet)[:-5], world.now)
    assert not receive_alone(publisher.connection, packet), "it is the rest of a packet that has its form inside"
    assert direct.alone == 0
