"""What waits for a client: bounds, what is dropped first, expiry, and publishers that are held meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec.packets import PubAck, PubComp, PubRec
from broker.codec.writer import encode_publish
from broker.message import Message


def offline(world: Any, version: int = 5) -> Any:
    """A subscriber that is away."""
    options = {"expiry": 5000} if version == 5 else {}
    client = world.connect("c", version, clean_start=False, **options)
    client.subscribe(b"a/#", b"a")
    client.cut()
    return world.broker.sessions["c"]


def back(world: Any, version: int = 5, **options: Any) -> list[bytes]:
    expiry = {"expiry": 5000} if version == 5 else {}
    payloads: list[bytes] = world.connect("c", version, clean_start=False, **expiry, **options).take_payloads()
    return payloads


def stuck(world: Any, name: str = "c", **options: Any) -> Any:
    """A subscriber that is connected and takes nothing."""
    client = world.connect(name, **options)
    client.subscribe(b"a")
    client.stop_reading()
    return client


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("keep_qos0", [True, False])
def test_a_client_that_is_away(make_world: Any, version: int, keep_qos0: bool) -> None:
    """[MQTT-3.1.2-5]: QoS 1 and 2; QoS 0 where the configuration says so."""
    world = make_world(queue_qos0_messages=keep_qos0)
    offline(world, version)
    for qos in (0, 1, 2):
        world.publish(b"a", b"%d" % qos, qos=qos)
    assert back(world, version) == ([b"0", b"1", b"2"] if keep_qos0 else [b"1", b"2"])
    assert world.drops() == ({} if keep_qos0 else {"qos0_offline": 1})


def test_in_flight_messages_count(make_world: Any) -> None:
    world = make_world(max_queued_messages=5, max_inflight=2)
    client = world.connect("c", auto=False)
    client.subscribe(b"a")
    publisher = world.connect("p")
    for number in range(8):
        publisher.publish(b"a", b"%d" % number, 1)
    world.advance(1.0)  # the publisher was held for a while
    assert [p.payload for p in client.packets] == [b"0", b"1"]
    session = world.broker.sessions["c"]
    assert session.queue_length() == 3
    assert world.drops() == {"queue_full": 3}


@pytest.mark.parametrize(
    ("name", "inflight_expiry", "waits", "acknowledged", "reason"),
    [
        ("too young", 30.0, 30.0, False, "queue_full"),
        ("old enough", 30.0, 31.0, False, "inflight_expired"),
        ("never", 0.0, 100.0, False, "queue_full"),
        ("after PUBREC", 30.0, 31.0, True, "queue_full"),
    ],
)
@pytest.mark.parametrize("connected", [True, False])
def test_inflight_expiry(
    make_world: Any,
    name: str,
    inflight_expiry: float,
    waits: float,
    acknowledged: bool,
    reason: str,
    connected: bool,
) -> None:
    """A full queue drops what was sent long ago and not acknowledged, whether the client is there or away."""
    world = make_world(inflight_expiry=inflight_expiry, max_queued_messages=3, max_inflight=1, message_expiry=0.0)
    client = world.connect("c", expiry=0xFFFFFFFF, auto=False)
    client.subscribe(b"a")
    for payload in (b"0", b"1", b"2"):
        world.publish(b"a", payload, qos=2)
    (first,) = client.take_publishes()
    if acknowledged:
        client.send(PubRec(first.packet_id))
    if not connected:
        client.cut()
    world.advance(waits)
    world.publish(b"a", b"3", qos=2)
    assert world.drops() == {reason: 1}
    assert world.broker.sessions["c"].messages_dropped == 1
    assert client.take_publishes() == []  # the window has no room before the client answers
    if connected:
        if not acknowledged:
            client.send(PubRec(first.packet_id))
        client.auto = True
        client.send(PubComp(first.packet_id))
    else:
        client = world.connect("c", clean_start=False)
    kept = [] if connected or acknowledged or reason == "inflight_expired" else [b"0"]
    queued = [b"1", b"2", b"3"] if reason == "inflight_expired" else [b"2", b"3"]
    assert client.take_payloads() == kept + queued


def test_inflight_expiry_counts_from_the_last_time_that_it_was_sent(make_world: Any) -> None:
    world = make_world(max_queued_messages=1, max_inflight=1)
    world.connect("c", expiry=1000, auto=False).subscribe(b"a")
    world.publish(b"a", b"0", qos=1)
    world.advance(31.0)
    world.connect("c", clean_start=False, expiry=1000, auto=False)
    world.publish(b"a", b"1", qos=1)
    assert world.drops() == {"queue_full": 1}


def test_bytes_are_bounded(make_world: Any) -> None:
    """The oldest go; a message that is larger than the whole bound does not drive all others out."""
    world = make_world(max_queued_bytes=10_000)
    session = offline(world)
    for number in range(10):
        world.publish(b"a", bytes([number]) * 2000, qos=1)
        assert session.queue.bytes <= 10_000
    world.publish(b"a", bytes(20_000), qos=1)
    assert [payload[0] for payload in back(world)] == [6, 7, 8, 9]
    assert world.drops() == {"queue_bytes": 7}


def test_empty_messages_are_not_free(make_world: Any) -> None:
    world = make_world(max_queued_bytes=10_000)
    session = offline(world)
    for _ in range(1000):
        world.publish(b"a", b"", qos=1)
    assert session.queue_length() < 40


@pytest.mark.parametrize(
    ("interval", "waits", "remaining"),
    [(10, 0.0, 10), (10, 3.0, 7), (10, 3.9, 7), (10, 9.9, 1), (10, 10.0, None), (0, 1.0, None), (0, 0.0, 0)],
)
@pytest.mark.parametrize("qos", [0, 1])
def test_message_expiry(world: Any, qos: int, interval: int, waits: float, remaining: int | None) -> None:
    """[MQTT-3.3.2-5]: deleted when it has passed; [MQTT-3.3.2-6]: sent less the time that it waited."""
    world.now += 0.1  # a number that floats do not hold
    if not waits:
        client = world.connect("c")
        client.subscribe(b"a")
        world.publish(b"a", qos=qos, message_expiry_interval=interval)
    else:
        offline(world)
        world.publish(b"a", qos=qos, message_expiry_interval=interval)
        world.now += waits
        client = world.connect("c", clean_start=False)
    assert [p.message_expiry_interval for p in client.take_publishes()] == ([] if remaining is None else [remaining])
    assert world.drops() == ({"expired": 1} if remaining is None else {})


def test_the_servers_limit_of_message_expiry(make_world: Any) -> None:
    world = make_world(message_expiry=60.0)
    offline(world)
    world.publish(b"a", b"old", qos=1)
    world.advance(50.0)
    world.publish(b"a", b"new", qos=1, message_expiry_interval=3600)
    world.advance(20.0)
    client = world.connect("c", clean_start=False)
    assert [(p.payload, p.message_expiry_interval) for p in client.take_publishes()] == [(b"new", 3580)]


@pytest.mark.parametrize("interval", [100, 0xFFFFFFFF])
@pytest.mark.parametrize("as_block", [False, True])
def test_messages_of_another_node_expire(world: Any, interval: int, as_block: bool) -> None:
    """It comes at a time that no client's packet has told the broker yet."""
    client = world.connect("c")
    client.subscribe(b"a")
    now = world.now + 5.0
    for _ in range(400):
        if as_block:
            block = encode_publish(5, b"a", bytes(1000), 0, False, False, 0, b"", interval)
            world.broker.router.publish_block(block, 5, None, now, 0, len(block))
        else:
            world.broker.router.publish_remote(Message(b"a", bytes(1000), 0, False, b"", now + interval), (), None, now)
    assert world.broker.sessions["c"].queue_length() > 0
    world.flush()
    assert {publish.message_expiry_interval for publish in client.take_publishes()} == {interval}
    assert not client.closed


def test_messages_in_the_queue_of_a_session_that_ends_are_counted(world: Any) -> None:
    offline(world)
    world.publish(b"a", qos=1)
    world.publish(b"a", qos=0)
    world.advance(5001.0)
    assert "c" not in world.broker.sessions
    assert world.drops() == {"session_ended": 2}


def test_a_message_that_waits_is_sent_when_the_transport_took_the_rest(make_world: Any) -> None:
    """More than write_buffer_high in one turn, and the transport takes all of it at once: nobody else wakes the queue."""
    world = make_world(write_buffer_high=4096)
    clients = [world.connect(f"c{number}", 4 + number) for number in (0, 1)]
    for client in clients:
        client.subscribe(b"a")
    publisher = world.connect("p", 4)
    one = b"\x30\x83\x08\0\x01a" + bytes(1024)
    publisher.send_bytes(one * 600)
    assert [len(client.take_publishes()) for client in clients] == [600, 600]
    assert world.drops() == {}
    assert not publisher.connection.held


def test_order_is_kept_through_the_queue(make_world: Any) -> None:
    """[MQTT-4.6.0-6]: messages of one topic and publisher arrive in order, whatever waits."""
    world = make_world(write_buffer_high=4096, max_inflight=3)
    client = world.connect("c", auto=False)
    client.subscribe(b"a")
    publisher = world.connect("p")
    for number in range(30):
        if number == 10:
            client.stop_reading()
        publisher.publish(b"a", b"%d" % number, number % 2)
    client.auto = True
    client.read_on()
    while world.broker.sessions["c"].inflight_length():
        for packet_id in [outgoing.packet_id for outgoing in world.broker.sessions["c"].inflight.messages()]:
            client.send(PubAck(packet_id))
    assert client.take_payloads() == [b"%d" % number for number in range(30)]


# --- publishers that are held ---


def test_a_full_receiver_holds_its_publisher(make_world: Any) -> None:
    world = make_world(max_queued_messages=10, publisher_hold_max=1.0)
    receiver = stuck(world)
    publisher = world.connect("p")
    for number in range(9):
        publisher.publish(b"a", b"%d" % number)
    assert not publisher.reading
    assert world.broker.counters.publishers_held == 1
    assert world.broker.sessions["c"].queue_length() == 5
    world.advance(0.5)
    assert not publisher.reading
    receiver.read_on()
    assert publisher.reading
    assert receiver.take_payloads() == [b"%d" % number for number in range(9)]
    assert world.drops() == {}


def test_a_chunk_goes_on_after_the_hold(make_world: Any) -> None:
    """What was in the chunk behind the hold is not lost and not handled meanwhile."""
    world = make_world(max_queued_messages=10, publisher_hold_max=1.0)
    receiver = stuck(world)
    publisher = world.connect("p", 4)
    publisher.send_bytes(b"".join(b"\x30\x04\0\x01a%c" % number for number in range(50)) + b"\xc0\x00")
    assert not publisher.reading
    assert publisher.packets == []
    receiver.read_on()
    assert [payload[0] for payload in receiver.take_payloads()] == list(range(50))
    assert len(publisher.packets) == 1
    assert world.drops() == {}


def test_a_hold_ends_in_time_and_then_drops_are_counted(make_world: Any) -> None:
    world = make_world(max_queued_messages=10, publisher_hold_max=1.0, max_keepalive=0)
    receiver = stuck(world)
    publisher = world.connect("p", keep_alive=1)
    for number in range(30):
        publisher.publish(b"a", b"%d" % number)
    world.advance(0.9)
    assert not publisher.reading
    world.advance(0.4)
    assert publisher.reading
    assert world.broker.sessions["c"].queue_length() == 10
    assert world.drops() == {"queue_full": 20}
    # The same backlog holds nobody a second time.
    publisher.publish(b"a", b"again")
    assert publisher.reading
    assert world.drops() == {"queue_full": 21}
    # Drained, and then full anew: that is another backlog.
    receiver.read_on()
    assert world.broker.sessions["c"].queue_length() == 0
    receiver.stop_reading()
    for number in range(9):
        publisher.publish(b"a", b"%d" % number)
    assert not publisher.reading
    receiver.read_on()
    assert publisher.reading
    assert world.drops() == {"queue_full": 21}


def test_publisher_hold_max_of_zero_holds_no_publisher(make_world: Any) -> None:
    world = make_world(max_queued_messages=10, publisher_hold_max=0.0)
    stuck(world)
    publisher = world.connect("p")
    for number in range(30):
        publisher.publish(b"a", b"%d" % number)
        world.advance(0.5)
    assert publisher.reading
    assert world.drops() == {"queue_full": 20}


def test_keep_alive_does_not_run_while_held(make_world: Any) -> None:
    world = make_world(max_queued_messages=10, publisher_hold_max=10.0)
    receiver = stuck(world, "c", keep_alive=0)
    publisher = world.connect("p", keep_alive=1)
    for _ in range(9):
        publisher.publish(b"a")
    world.advance(8.0)
    assert not publisher.reading
    assert not publisher.closed
    receiver.read_on()
    world.advance(2.0)
    assert publisher.closed


@pytest.mark.parametrize("end", ["receiver cut", "receiver unread, session over", "publisher cut"])
def test_a_hold_ends_with_its_parties(make_world: Any, end: str) -> None:
    world = make_world(max_queued_messages=10, publisher_hold_max=100.0)
    receiver = stuck(world, "c", expiry=0 if "over" in end else 1000)
    publisher = world.connect("p")
    for _ in range(9):
        publisher.publish(b"a")
    assert not publisher.reading
    if end.startswith("receiver"):
        receiver.cut()
        assert publisher.reading
        assert publisher.connection.held == 0
    else:
        publisher.cut()
        receiver.read_on()
        assert publisher.connection.held == 0


def test_two_receivers_hold_one_publisher(make_world: Any) -> None:
    world = make_world(max_queued_messages=10, publisher_hold_max=100.0)
    receivers = [stuck(world, "c"), stuck(world, "d")]
    publisher = world.connect("p")
    for _ in range(9):
        publisher.publish(b"a")
    receivers[0].read_on()
    assert not publisher.reading
    receivers[1].read_on()
    assert publisher.reading
    assert [len(receiver.take_payloads()) for receiver in receivers] == [9, 9]


def test_a_client_that_is_away_holds_no_publisher(make_world: Any) -> None:
    world = make_world(max_queued_messages=10)
    offline(world)
    publisher = world.connect("p")
    for _ in range(30):
        publisher.publish(b"a", qos=1)
    assert publisher.reading


def test_new_limits_reach_the_sessions_that_are_there(make_world: Any) -> None:
    world = make_world(max_queued_messages=10)
    session = offline(world)
    for _ in range(10):
        world.publish(b"a", qos=1)
    world.broker.apply_settings(make_world(max_queued_messages=3).broker.settings)
    world.publish(b"a", b"last", qos=1)
    assert session.queue_length() == 3
    assert back(world)[-1] == b"last"


def test_a_fault_in_sending_queued_messages_ends_the_connection(world: Any) -> None:
    """The shell closes it, and is asked to carry that out."""
    client = world.connect("c")
    client.subscribe(b"a")
    client.stop_reading()
    world.publish(b"a", bytes(1000))
    (outgoing,) = world.broker.sessions["c"].queued()
    outgoing.message = None  # a fault of ours
    client.connection.writable = True
    with pytest.raises(AssertionError):
        client.connection.take_output()
    world.broker.close_connection(client.connection, 0x83, "internal error", world.now)
    assert world.broker.take_dirty() == [client.connection]


@pytest.mark.parametrize("size", [10, 10_000])
def test_a_message_that_waits_takes_what_is_counted(world: Any, size: int) -> None:
    """The forms in which others have got it, and the packet as it came, are not kept beside a large payload."""
    offline(world)
    other = world.connect("other", clean_start=False, expiry=5000)
    other.subscribe(b"a")
    other.cut()
    for version in (4, 5):
        world.connect(f"v{version}", version).subscribe(b"a", qos=0)
    publisher = world.connect("p")
    payload = bytes(size)
    publisher.publish(b"a", payload, 1)
    message = world.broker.sessions["c"].queue.first().message
    assert message is world.broker.sessions["other"].queue.first().message
    assert not message.encoded
    assert (len(message.tail) > 0) == (size < 256)
    assert back(world, 4) == [payload]
    assert size < 256 or not message.encoded, "it waits for another one yet"
    assert world.connect("other", clean_start=False, expiry=5000).take_payloads() == [payload]
