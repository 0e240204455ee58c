"""The records of a session's messages follow its queue and its in-flight window."""

from __future__ import annotations

from typing import Any

import pytest

from broker.broker import Broker
from broker.codec.packets import PubAck, PubComp, PubRec, PubRel
from broker.store.journal import Journal
from broker.store.kinds import MESSAGE, OUTGOING, RECEIVED


def kept(make_world: Any, **limits: Any) -> Any:
    world = make_world(**limits)
    world.keep(Journal(), {}, 0.0)
    return world


def kinds(world: Any) -> dict[int, int]:
    """Number of records by kind, of those about messages."""
    found = [record[0] for record in world.stored.values()]
    return {kind: found.count(kind) for kind in (MESSAGE, OUTGOING, RECEIVED) if kind in found}


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_is_kept_until_it_is_acknowledged(make_world: Any, qos: int) -> None:
    world = kept(make_world)
    client = world.connect("c", expiry=100, auto=False)
    client.subscribe(b"a")
    world.publish(b"a", qos=qos)
    assert kinds(world) == {MESSAGE: 1, OUTGOING: 1}
    (found,) = client.take_publishes()
    if qos == 1:
        client.send(PubAck(found.packet_id))
    else:
        client.send(PubRec(found.packet_id))
        assert kinds(world) == {OUTGOING: 1}
        client.send(PubComp(found.packet_id))
    assert kinds(world) == {}


def test_a_message_for_many_is_kept_once(make_world: Any) -> None:
    world = kept(make_world)
    for name in ("c", "d", "e"):
        world.connect(name, expiry=100).subscribe(b"a")
        world.broker.close_client(name, False, world.now)
        world.flush()
    world.publish(b"a", qos=1)
    assert kinds(world) == {MESSAGE: 1, OUTGOING: 3}
    for name in ("c", "d", "e"):
        world.connect(name, expiry=100, clean_start=False)
    assert kinds(world) == {}


@pytest.mark.parametrize("way", ["queue_full", "expired", "packet_too_large", "inflight_expired", "redelivered"])
def test_a_message_that_is_given_up_is_not_kept(make_world: Any, way: str) -> None:
    world = kept(make_world, max_queued_messages=2, max_inflight=1, inflight_expiry=5.0)
    client = world.connect("c", expiry=100, auto=False)
    client.subscribe(b"$share/g/a" if way == "redelivered" else b"a")
    if way != "inflight_expired":
        client.cut()
    if way == "expired":
        world.publish(b"a", qos=1, message_expiry_interval=5)
        world.now += 10.0
        world.connect("c", expiry=100, clean_start=False)
    elif way == "packet_too_large":
        world.publish(b"a", bytes(100), qos=1)
        world.connect("c", expiry=100, clean_start=False, properties={0x27: 60})
    elif way == "redelivered":
        world.publish(b"a", qos=1)
        world.connect("d", expiry=100, auto=False).subscribe(b"$share/g/a")
        world.connect("c", expiry=100)
        assert kinds(world) == {MESSAGE: 1, OUTGOING: 1}
        world.broker.close_client("d", True, world.now)
        world.flush()
    else:
        for _ in range(2):
            world.publish(b"a", qos=1)
        world.now += 10.0
        world.publish(b"a", qos=1)
        assert kinds(world) == {MESSAGE: 2, OUTGOING: 2}
        assert world.drops() == {way: 1}
        world.broker.close_client("c", True, world.now)
        world.flush()
    assert kinds(world) == {}


def test_qos_0_is_not_kept(make_world: Any) -> None:
    world = kept(make_world)
    world.connect("c", expiry=100).subscribe(b"a")
    world.broker.close_client("c", False, world.now)
    world.flush()
    before = dict(world.stored)
    world.publish(b"a", qos=0)
    assert world.broker.sessions["c"].queue_length() == 1
    assert world.stored == before


@pytest.mark.parametrize("expiry", [0, 100])
def test_the_packet_identifier_of_a_received_message(make_world: Any, expiry: int) -> None:
    world = kept(make_world)
    client = world.connect("c", expiry=expiry, auto=False)
    client.publish(b"a", qos=2, packet_id=9)
    assert kinds(world) == ({RECEIVED: 1} if expiry else {})
    client.send(PubRel(9))
    assert kinds(world) == {}
    assert client.take_packets() == [PubRec(9, 0x10), PubComp(9)]


class Held:
    """A store that writes when it is told to."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.broker: Broker = world.broker
        self._commit = world.commit
        world.commit = lambda: False

    def write(self) -> None:
        assert self._commit()
        self.world.flush()


def test_packets_about_durable_state_wait_for_the_store(make_world: Any) -> None:
    world = kept(make_world)
    receiver = world.connect("receiver", expiry=100, auto=False)
    receiver.subscribe(b"a")
    sender = world.connect("sender", expiry=100, auto=False)
    plain = world.connect("plain", auto=False)
    plain.subscribe(b"b")
    store = Held(world)
    sender.publish(b"a", b"1", qos=1, packet_id=1)
    sender.publish(b"a", b"2", qos=2, packet_id=2)
    plain.publish(b"b", b"3", qos=1, packet_id=3)
    assert [packet.payload for packet in receiver.take_publishes()] == [b"1"], "QoS 1 may come again"
    assert sender.take_packets() == []
    assert PubAck(3) in plain.take_packets(), "nothing durable"
    store.write()
    assert [(packet.payload, packet.packet_id) for packet in receiver.take_publishes()] == [(b"2", 2)]
    assert sender.take_packets() == [PubAck(1), PubRec(2)]
    sender.send(PubRel(2))
    receiver.send(PubRec(2))
    assert (sender.take_packets(), receiver.take_packets()) == ([], [])
    store.write()
    assert (sender.take_packets(), receiver.take_packets()) == ([PubComp(2)], [PubRel(2)])


def test_a_message_that_is_acknowledged_in_time_is_not_written(make_world: Any) -> None:
    world = kept(make_world)
    receiver = world.connect("receiver", expiry=100)
    receiver.subscribe(b"a")
    sender = world.connect("sender", auto=False)
    before = dict(world.stored)
    store = Held(world)
    sender.publish(b"a", b"1", qos=1, packet_id=1)
    journal = world.broker.commits.journal
    assert (journal.changes, sender.take_packets()) == ({}, [])
    store.write()
    assert (world.stored, sender.take_packets()) == (before, [PubAck(1)])
