"""Byte streams of clients: cut anywhere they mean the same; damaged anywhere they end in a clean close."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest

from broker.codec import properties as props
from broker.codec.packets import (
    Auth,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    SubscribeFilter,
    Unsubscribe,
    Will,
)
from broker.codec.wire import encode_varint
from broker.codec.writer import encode_packet
from broker.session.connection import Connection
from broker.session.limits import CONTROL_BYTES_MAX
from broker.slices import SLICE_STEPS

TOPICS = (b"a", b"a/b", b"c/d/e", b"$x", "é/ü".encode())
FILTERS = (b"a", b"a/#", b"+/b", b"#", b"$share/g/a", b"$share/g/+/b", b"c/+/e", "é/#".encode())


def random_packet(rng: random.Random, version: int) -> Packet:
    """What a lively client sends, mostly allowed."""
    five = version == 5
    packet_id = rng.randrange(1, 6)
    choice = rng.randrange(12)
    if choice < 6:
        qos = rng.choice([0, 0, 0, 1, 1, 2])
        block = rng.choice([b"", b"", b"\x26\0\x01k\0\x01v", b"\x01\x01"]) if five else b""
        expiry = rng.choice([-1, -1, 5]) if five else -1
        alias = rng.choice([0, 0, 0, 1, 2]) if five else 0
        payload = rng.randbytes(rng.choice([0, 1, 4, 4, 4, 200, 20_000]))
        retain = rng.random() < 0.1
        return Publish(
            rng.choice(TOPICS),
            payload,
            qos,
            retain,
            qos > 0 and rng.random() < 0.2,
            packet_id * (qos > 0),
            block,
            expiry,
            alias,
        )
    if choice == 6:
        identifier: Properties = (
            {props.SUBSCRIPTION_IDENTIFIER: rng.randrange(1, 300)} if five and rng.random() < 0.3 else {}
        )
        filters = [SubscribeFilter(rng.choice(FILTERS), rng.randrange(3)) for _ in range(rng.randrange(1, 4))]
        return Subscribe(packet_id, filters, identifier)
    if choice == 7:
        return Unsubscribe(packet_id, [rng.choice(FILTERS)])
    if choice == 8:
        return PingReq()
    return rng.choice([PubAck(packet_id), PubRec(packet_id), PubRel(packet_id), PubRel(packet_id), PubComp(packet_id)])


def random_stream(rng: random.Random, version: int, length: int) -> bytes:
    packets = [random_packet(rng, version) for _ in range(length)]
    if rng.random() < 0.3:
        packets.append(Disconnect())
    return b"".join(encode_packet(packet, version) for packet in packets for _ in range(rng.choice([1, 1, 1, 4])))


def bystanders(world: Any) -> list[Any]:
    clients = []
    for version in (4, 5):
        client = world.connect(f"bystander{version}", version, auto=False)
        client.subscribe(b"#", b"a/b")
        clients.append(client)
    return clients


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(30))
def test_any_cut_gives_the_same_output(make_world: Any, seed: int) -> None:
    rng = random.Random(seed)
    version = rng.choice([3, 4, 5])
    will = Will(b"a", b"gone", 1) if rng.random() < 0.5 else None
    expiry: Properties = {props.SESSION_EXPIRY_INTERVAL: 10} if version == 5 else {}
    stream = encode_packet(Connect("c", version, rng.random() < 0.5, 0, None, None, will, expiry), version)
    stream += random_stream(rng, version, 60)
    results = []
    for mean in (len(stream) + 1, 1, 3, 50, 5000):
        world = make_world(write_buffer_high=2**30)
        others = bystanders(world)
        client = world.open(version)
        client.auto = False
        pos = 0
        while pos < len(stream):
            size = len(stream) if mean > len(stream) else 1 + int(rng.expovariate(1 / mean))
            client.connection.receive_data(stream[pos : pos + size], world.now)
            pos += size
        world.flush()
        client.cut()
        world.check()
        counters = world.broker.counters
        results.append(
            (
                client.output,
                [other.output for other in others],
                counters.messages_received,
                counters.messages_sent,
                counters.messages_dropped,
                client.connection.packets_received,
                client.connection.received_bytes if not client.output.endswith(b"\xe0") else 0,
            )
        )
    # A stream that ends in a fault or DISCONNECT is not counted in bytes beyond it, so bytes may differ then.
    assert all(result[:6] == results[0][:6] for result in results)


@pytest.mark.thorough
@pytest.mark.parametrize("version", [3, 4, 5])
def test_damage_ends_in_a_clean_close(world: Any, version: int) -> None:
    """Whatever comes, receive_data raises nothing, the tables agree, and others are served."""
    rng = random.Random(version)
    others = bystanders(world)
    for other in others:
        other.auto = True
    closed = 0
    for round_number in range(1200):
        client = world.connect("c", version, clean_start=rng.random() < 0.5)
        client.auto = False
        stream = bytearray(random_stream(rng, version, rng.randrange(1, 12)))
        for _ in range(rng.randrange(0, 4)):
            damage = rng.randrange(4)
            at = rng.randrange(len(stream))
            if damage == 0:
                stream[at] = rng.randrange(256)
            elif damage == 1:
                stream[at] ^= 1 << rng.randrange(8)
            elif damage == 2:
                del stream[at : at + rng.randrange(1, 5)]
            else:
                stream[at:at] = rng.randbytes(rng.randrange(1, 5))
            if not stream:
                break
        pos = 0
        data = bytes(stream)
        while pos < len(data):
            size = rng.choice([1, 10, 100_000])
            client.connection.receive_data(data[pos : pos + size], world.now)
            pos += size
        world.flush()
        closed += client.closed
        client.cut()
        for other in others:
            other.output = b""
            other.take_packets()
        if round_number % 100 == 0:
            world.check()
    assert 100 < closed < 1200
    assert not others[0].closed
    assert not others[1].closed


@pytest.mark.parametrize("version", [4, 5])
def test_a_damaged_connect_gets_connack_or_a_close(world: Any, version: int) -> None:
    rng = random.Random(version)
    will = Will(b"a", b"gone", 1, properties=b"\x26\0\x01k\0\x01v" if version == 5 else b"")
    good = encode_packet(Connect("c", version, True, 10, "user", b"password", will, {}), version)
    for _ in range(4000):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 2, 255, rng.randrange(256)])
        connection = Connection(world.broker, None, "", "", world.now)
        connection.receive_data(bytes(data), world.now)
        assert connection.take_output()[:1] in (b"", b"\x20")
        world.broker.connection_lost(connection, world.now)
    world.broker.take_dirty()
    world.check()


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("length", [b"\x86\x00", b"\x86\x80\x00", b"\x86\x80\x80\x00"])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_length_that_is_longer_than_it_need_be(world: Any, version: int, length: bytes, qos: int) -> None:
    """Read in MQTT 3; its receivers get the shortest form [MQTT-1.5.5-1], in pieces and in a run too."""
    receivers = [world.connect(f"r{number}", number) for number in (3, 4, 5)]
    for receiver in receivers:
        receiver.subscribe(b"a")
        receiver.output = b""
    publisher = world.connect("p", version)
    packet = (b"\x32" if qos else b"\x30") + length + b"\0\1a" + (b"\0\7x" if qos else b"xyz")
    publisher.send_bytes(packet * 3)
    publisher.send_bytes(packet[:2])
    publisher.send_bytes(packet[2:] + packet[:5])
    publisher.send_bytes(packet[5:])
    for receiver in receivers:
        assert receiver.take_payloads() == ([b"x"] if qos else [b"xyz"]) * 5
        assert receiver.output[:2] == bytes((packet[0], 6 if receiver.version < 5 else 7))


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("before", range(3))
def test_lengths_that_are_longer_than_they_need_be_are_read_over_slices(world: Any, qos: int, before: int) -> None:
    """The slice ends between two of the packets, wherever it began."""
    receiver = world.connect("r", 4)
    receiver.subscribe(b"a")
    publisher = world.connect("p", 4)
    publisher.output = b""
    head = b"\x32\x88\x00\0\1a\0\7" if qos else b"\x30\x86\x00\0\1a"
    payloads = [b"%03d" % (number % 1000) for number in range(2 * SLICE_STEPS)]
    publisher.send_bytes(b"\xc0\0" * before + b"".join(head + payload for payload in payloads))
    assert receiver.take_payloads() == payloads
    assert publisher.output == b"\xd0\0" * before + b"\x40\2\0\7" * len(payloads) * qos


def test_a_length_that_is_longer_than_it_need_be_is_malformed(world: Any) -> None:
    """[MQTT-1.5.5-1] is normative in MQTT 5: of a packet, of its properties, of a Subscription Identifier."""
    for data in (
        b"\x30\x87\x00\0\1a\0xyz",
        b"\x30\x08\0\1a\x80\0xyz",
        b"\x82\x0a\0\1\3\x0b\x81\0\0\1a\0",
    ):
        client = world.connect("c")
        client.send_bytes(data)
        assert [p.reason_code for p in client.packets] == [0x81]


def test_a_packet_byte_by_byte_costs_its_size(world: Any) -> None:
    """Small chunks are not kept as one object each, which would take a megabyte."""
    client = world.connect()
    client.connection.receive_data(b"\x30\x80\x80\x80\x01", world.now)
    tracemalloc.start()
    for number in range(20_000):
        client.connection.receive_data(b"%02d" % (number % 100), world.now)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(client.connection.waiting_input()) == 40_005
    assert kept < 200_000


@pytest.mark.parametrize("first", [0x82, 0xA2, 0x40, 0xE0, 0xF0])
def test_only_messages_may_be_large(world: Any, first: int) -> None:
    """Filters and properties take many times their bytes: 256 MiB of them would be gigabytes. Refused on sight."""
    client = world.connect()
    filters = [SubscribeFilter(b"%0250d" % number, 2) for number in range(4000)]
    assert client.subscribe(*filters) == [2] * 4000  # a megabyte
    client.send_bytes(bytes((first,)) + encode_varint(CONTROL_BYTES_MAX + 1))
    assert [p.reason_code for p in client.packets] == [0x97]
    client = world.connect()
    client.send_bytes(b"\x30" + encode_varint(CONTROL_BYTES_MAX + 1))
    assert not client.closed


def test_a_client_cannot_make_the_broker_grow(make_world: Any) -> None:
    """What one client can fill is bounded by the limits, whatever it sends."""
    world = make_world(max_subscriptions_per_client=20, topic_alias_maximum=4, server_receive_maximum=10)
    client = world.connect("c", auto=False)
    client.subscribe(*[SubscribeFilter(b"f/%d" % number) for number in range(100)])
    for number in range(1, 11):
        client.publish(b"x", b"", 2, packet_id=number)
        client.publish(b"t/%d" % number, topic_alias=number % 4 + 1)
    session = world.broker.sessions["c"]
    assert len(session.subscriptions) == 20
    assert len(session.incoming) == 10
    assert len(client.connection.topic_aliases) == 4
    for _ in range(300):
        world.connect("c", clean_start=False, expiry=7000, will=Will(b"w", bytes(100), delay_interval=6000)).cut()
        world.connect("c", clean_start=True, keep_alive=65535)
    assert len(world.broker.timers) <= 3
    world.check()


def test_auth_and_reauthentication(world: Any) -> None:
    client = world.connect()
    client.send(Auth(0x18))
    assert [p.reason_code for p in client.packets] == [0x82]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    "packet", [PingReq(), Publish(b"a", b"", 1, packet_id=1), PubRel(1), Subscribe(1, [SubscribeFilter(b"a")])]
)
def test_a_client_that_does_not_take_its_answers(make_world: Any, version: int, packet: Packet) -> None:
    """Answers are not queued; a client that sends and sends but reads nothing is not read any more."""
    world = make_world(write_buffer_high=4096, connect_timeout=5.0)
    client = world.connect("c", version, keep_alive=60)
    client.stop_reading()
    data = encode_packet(packet, version)
    sent = 0
    for _ in range(100):
        if not client.reading:
            break
        client.send_bytes(data * 100)
        sent += 100
    assert not client.reading
    assert len(client.output) < 2 * 4096 + 100 * 6
    client.send_bytes(data)
    world.advance(60.0)
    assert not client.closed
    client.read_on()
    assert client.reading
    assert len(client.packets) == sent + 1
    # One that never reads again ends with its keep alive, however much of it waits.
    client.stop_reading()
    for _ in range(100):
        client.send_bytes(data * 100)
    assert not client.reading
    world.advance(91.0)
    assert client.closed


def test_a_slow_receiver_that_only_pings_is_read(make_world: Any) -> None:
    world = make_world(write_buffer_high=4096, max_queued_messages=10, publisher_hold_max=0.0)
    client = world.connect("c", keep_alive=60)
    client.subscribe(b"a")
    client.stop_reading()
    publisher = world.connect("p")
    for _ in range(10):
        for _ in range(50):
            publisher.publish(b"a", bytes(1000))
        world.advance(60.0)
        client.send(PingReq())
        publisher.send(PingReq())
    assert client.reading
    assert not client.closed


def test_a_large_packet_is_refused_on_sight_of_its_header(make_world: Any) -> None:
    world = make_world(max_packet_size=1000)
    client = world.connect()
    client.send_bytes(b"\x30\x80\x80\x80\x01")
    assert [p.reason_code for p in client.packets] == [0x95]
    assert not client.connection.waiting_input()


@pytest.mark.parametrize(
    ("version", "asked", "maximum", "watched"),
    [(5, 10, 300, 10), (5, 0, 300, 300), (5, 600, 300, 300), (5, 0, 0, 0), (4, 10, 300, 10), (4, 600, 0, 600)],
)
def test_keep_alive(make_world: Any, version: int, asked: int, maximum: int, watched: int) -> None:
    """One and a half intervals of silence [MQTT-3.1.2-22]; Server Keep Alive [MQTT-3.2.2-21] [MQTT-3.2.2-22]."""
    world = make_world(max_keepalive=maximum)
    client = world.connect("c", version, keep_alive=asked)
    assert client.connack is not None
    announced = client.connack.properties.get(props.SERVER_KEEP_ALIVE)
    assert announced == (watched if version == 5 and watched != asked else None)
    if watched == 0:
        world.advance(100_000)
        assert not client.closed
        return
    for _ in range(3):
        world.advance(watched * 1.4)
        client.send(PingReq())
    world.advance(watched * 1.5 - 0.01)
    assert not client.closed
    world.advance(0.3)
    assert client.closed
    last = client.packets[-1]
    if version == 5:
        assert isinstance(last, Disconnect)
        assert last.reason_code == 0x8D
    else:
        assert isinstance(last, PingResp)


def test_no_connect_in_time(make_world: Any) -> None:
    world = make_world(connect_timeout=5.0)
    client = world.open()
    world.advance(4.9)
    client.send_bytes(encode_packet(Connect("c", 5), 5)[:5])
    assert not client.closed
    world.advance(0.4)
    assert client.closed
    assert client.output == b""
    assert len(world.broker.timers) == 0
    assert world.broker.counters.connections_refused == 1


def test_half_a_packet(make_world: Any) -> None:
    """The rest of a packet is waited for no longer than connect_timeout, and bytes one by one do not make it longer."""
    world = make_world(connect_timeout=5.0, max_keepalive=0)
    client = world.connect()
    for _ in range(5):
        world.advance(1.0)
        assert not client.closed
        client.send_bytes(b"\0" if client.connection.waiting_input() else b"\x30\x50")
    world.advance(1.4)
    assert client.closed
    assert [p.reason_code for p in client.packets] == [0x8D]


def test_half_a_packet_behind_a_hold(make_world: Any) -> None:
    """The time for the packet begins again when the client is read again."""
    world = make_world(connect_timeout=5)
    client = world.connect("c", keep_alive=0)
    client.send_bytes(b"\x30\x50")
    world.broker.hold(client.connection)
    world.flush()
    world.advance(60)
    assert not client.closed
    world.broker.release(client.connection)
    world.flush()
    world.advance(4)
    assert not client.closed
    world.advance(2)
    assert client.closed


def test_a_large_packet_may_take_its_time(make_world: Any) -> None:
    world = make_world(connect_timeout=5.0)
    client = world.connect()
    client.subscribe(b"a")
    data = encode_packet(Publish(b"a", bytes(500_000)), 5)
    for at in range(0, len(data), 50_000):
        client.send_bytes(data[at : at + 50_000])
        world.advance(1.5)
    assert [len(payload) for payload in client.take_payloads()] == [500_000]
