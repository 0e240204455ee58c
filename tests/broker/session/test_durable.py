"""Which sessions are in the store, from when to when, and what their clients wait for."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec.packets import ConnAck, Publish, SubAck, UnsubAck, Will
from broker.codec.writer import encode_packet
from broker.store.journal import Journal
from broker.store.kinds import SESSION, SUBSCRIPTION


def kept(make_world: Any, **limits: Any) -> Any:
    world = make_world(**limits)
    world.keep(Journal(), {}, 0.0)
    return world


def of_kind(world: Any, kind: int) -> list[Any]:
    return [record[1] for record in world.stored.values() if record[0] == kind]


@pytest.mark.parametrize(
    ("version", "clean_start", "expiry", "durable"),
    [(4, True, None, False), (4, False, None, True), (5, False, None, False), (5, True, 100, True)],
)
def test_a_session_with_an_expiry_is_durable(
    make_world: Any, version: int, clean_start: bool, expiry: int | None, durable: bool
) -> None:
    world = kept(make_world)
    client = world.connect("c", version, clean_start=clean_start, expiry=expiry)
    client.subscribe(b"a", b"b")
    client.subscribe(b"a", qos=1)
    client.unsubscribe(b"b")
    assert of_kind(world, SESSION) == (["c"] if durable else [])
    assert len(of_kind(world, SUBSCRIPTION)) == durable


@pytest.mark.parametrize("end", ["expiry", "clean start", "resumed without expiry", "DISCONNECT", "administrator"])
def test_a_session_that_ended_leaves_no_record(make_world: Any, end: str) -> None:
    world = kept(make_world)
    client = world.connect("c", expiry=100, auto=False, will=Will(b"w", b"x", delay_interval=50))
    client.subscribe(b"a", b"b/#")
    world.publish(b"a", qos=2)
    client.publish(b"x", qos=2, packet_id=5)
    if end == "DISCONNECT":
        client.disconnect(expiry=0)
    elif end == "administrator":
        world.broker.close_client("c", True, world.now)
        world.flush()
    else:
        client.cut()
        world.publish(b"a", qos=1)
        if end == "expiry":
            world.advance(101.0)
        else:
            world.connect("c", clean_start=end == "clean start")
    assert world.stored == {}


def test_a_client_is_welcomed_when_the_store_has_its_session(make_world: Any) -> None:
    world = kept(make_world)
    write, world.commit = world.commit, lambda: False
    client = world.open()
    assert client.connect("c", expiry=100, auto=False) is None
    world.publish(b"none", qos=1)
    assert world.broker.sessions["c"].connection is client.connection
    assert write()
    world.flush()
    assert [type(packet) for packet in client.take_packets()] == [ConnAck]
    with pytest.raises(AssertionError, match="no SUBACK"):
        client.subscribe(b"a", b"b")
    assert write()
    world.flush()
    with pytest.raises(AssertionError, match="no UNSUBACK"):
        client.unsubscribe(b"a")
    assert [type(packet) for packet in client.take_packets()] == [SubAck]
    assert write()
    world.flush()
    assert [type(packet) for packet in client.take_packets()] == [UnsubAck]


def test_what_was_in_flight_comes_between_connack_and_what_came_meanwhile(make_world: Any) -> None:
    """[MQTT-3.2.0-1] [MQTT-4.4.0-1]: also for a message that comes when the store has the session and CONNACK has not left."""
    world = kept(make_world)
    before = world.connect("c", expiry=100, auto=False)
    before.subscribe(b"a", qos=1)
    world.publish(b"a", b"0", qos=1)
    before.cut()
    publisher = world.connect("p")
    world.commit, write = (lambda: False), world.commit
    client = world.open()
    assert client.connect("c", clean_start=False, expiry=100, auto=False) is None
    publisher.publish(b"a", b"1")
    assert write()
    world.broker.connection_writable(client.connection, world.now)
    publisher.connection.receive_data(encode_packet(Publish(b"a", b"2"), 5), world.now)
    world.flush()
    welcome, *messages = client.take_packets()
    assert isinstance(welcome, ConnAck)
    assert [message.payload for message in messages] == [b"0", b"1", b"2"]


def test_a_client_that_goes_before_it_is_welcomed(make_world: Any) -> None:
    world = kept(make_world)
    write, world.commit = world.commit, lambda: False
    clients = [world.open() for _ in range(3)]
    for client in clients:  # each takes the session of the one before over
        assert client.connect("c", expiry=100, auto=False) is None
    clients[2].cut()
    assert write()
    world.flush()
    assert not any(isinstance(packet, ConnAck) and not packet.reason_code for packet in clients[2].take_packets())
    assert world.broker.connecting == {}
    assert write() is False
    world.check()


def test_a_session_that_its_client_was_not_told_of_is_a_new_one(make_world: Any) -> None:
    """The client goes on with packet identifiers of the session that it knows, unless CONNACK says that there is another."""
    world = kept(make_world)
    write, world.commit = world.commit, lambda: False
    for _ in range(2):
        client = world.open()
        assert client.connect("c", clean_start=False, expiry=100, auto=False) is None
        client.cut()
    world.commit = write
    world.flush()
    assert [world.open().connect("c", clean_start=False, expiry=100).session_present for _ in range(2)] == [False, True]


def test_a_clean_start_waits_for_the_end_of_the_session_before(make_world: Any) -> None:
    world = kept(make_world)
    world.connect("c", expiry=100).cut()
    write, world.commit = world.commit, lambda: False
    client = world.open()
    assert client.connect("c", clean_start=True) is None
    assert write()
    world.flush()
    assert [type(packet) for packet in client.take_packets()] == [ConnAck]
    assert world.stored == {}


@pytest.mark.parametrize(
    ("client_id", "expiry", "refused"),
    [("new", 100, True), ("new", 0, False), ("known", 0, True), ("known", 100, True)],
)
def test_a_client_that_needs_a_full_store_is_refused(
    make_world: Any, client_id: str, expiry: int, refused: bool
) -> None:
    world = kept(make_world)
    world.connect("known", expiry=100).cut()
    world.broker.commits.journal.is_full = True
    connack = world.open().connect(client_id, expiry=expiry, clean_start=True)
    assert connack is not None
    assert connack.reason_code == (0x88 if refused else 0)
    assert "known" in world.broker.sessions
    assert world.broker.connecting == {}
