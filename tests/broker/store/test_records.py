"""What the records of a store hold."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec.packets import PubRec, Will
from broker.codec.properties import USER_PROPERTY
from broker.message import NEVER
from broker.session.outgoing import AWAIT_PUBACK, AWAIT_PUBCOMP, QUEUED
from broker.store.journal import Journal
from broker.store.kinds import MESSAGE, OUTGOING, RECEIVED, RETAINED, SESSION, SUBSCRIPTION
from broker.store.records import NO_TIME, monotonic_time, wall_time
from broker.store.shapes import check_shape
from federation.links.bridging.bridging import bridging_of

WALL_OFFSET = 1_700_000_000.0


def kept(make_world: Any, **limits: Any) -> Any:
    world = make_world(**limits)
    world.keep(Journal(), {}, WALL_OFFSET)
    return world


def of_kind(world: Any, kind: int) -> list[tuple[Any, ...]]:
    return [record[1:] for _, record in sorted(world.stored.items()) if record[0] == kind]


def test_each_field(make_world: Any) -> None:
    world = kept(make_world, max_inflight=2)
    client = world.connect("c", auto=False, username="user", keep_alive=30, expiry=1000)
    session_record = world.broker.sessions["c"].records.number
    client.subscribe(b"$share/g/x", qos=1, retain_as_published=True)
    client.subscribe(b"a", no_local=True, retain_handling=2, identifier=7)
    world.publish(b"a", b"1", qos=1)
    world.publish(b"a", b"2", qos=2)
    world.publish(b"a", b"3", qos=2)
    client.send(PubRec(client.take_publishes()[1].packet_id))
    world.publish(b"a", b"4", qos=1, message_expiry_interval=60, properties=b"\x01\x01", retain=True)
    client.publish(b"b", qos=2, packet_id=9)
    world.now += 10.0
    client.cut()
    wall = WALL_OFFSET + world.now
    assert of_kind(world, SESSION) == [
        ("c", "user", None, 5, 30, "127.0.0.1:1", "127.0.0.1:2", wall - 10, wall - 10, 1000, wall, None, NO_TIME)
    ]
    assert of_kind(world, SUBSCRIPTION) == [
        (session_record, b"$share/g/x", 1, False, True, 0, 0),
        (session_record, b"a", 2, True, False, 2, 7),
    ]
    names = [f"publisher-{number}" for number in range(1, 5)]
    messages = of_kind(world, MESSAGE)
    assert messages == [
        (b"a", b"1", 1, False, b"", NO_TIME, names[0]),
        (b"a", b"3", 2, False, b"", NO_TIME, names[2]),
        (b"a", b"4", 1, True, b"\x01\x01", wall + 50, names[3]),
    ]
    numbers = [number for number, record in sorted(world.stored.items()) if record[0] == MESSAGE]
    assert of_kind(world, OUTGOING) == [
        (session_record, numbers[0], 1, False, (7,), NO_TIME, 1, AWAIT_PUBACK),
        (session_record, 0, 2, False, (7,), NO_TIME, 2, AWAIT_PUBCOMP),
        (session_record, numbers[1], 2, False, (7,), wall - 10 + 7200, 0, QUEUED),
        (session_record, numbers[2], 1, False, (7,), wall + 50, 0, QUEUED),
    ]
    assert of_kind(world, RECEIVED) == [(session_record, 9)]
    assert of_kind(world, RETAINED) == [(b"a", b"4", 1, True, b"\x01\x01", wall + 50, names[3])]


def test_a_will_is_kept_with_the_time_when_it_is_due(make_world: Any) -> None:
    world = kept(make_world)
    will = Will(b"w", b"gone", 1, True, b"\x01\x01", 60, 5)
    client = world.connect("c", expiry=1000, will=will)
    assert of_kind(world, SESSION)[0][-3:] == (NO_TIME, (b"w", b"gone", 1, True, b"\x01\x01", 60, 5), NO_TIME)
    client.cut()
    assert of_kind(world, SESSION)[0][-1] == WALL_OFFSET + world.now + 5
    world.advance(5.25)
    assert of_kind(world, SESSION)[0][-2:] == (None, NO_TIME)


@pytest.mark.parametrize("monotonic", [0.0, 12.5, NEVER])
def test_times_come_back(monotonic: float) -> None:
    assert monotonic_time(wall_time(monotonic, WALL_OFFSET), WALL_OFFSET) == monotonic


@pytest.mark.parametrize("more", ["", " deletions=1", " message-ttl=60000"])
def test_records_of_links_have_one_value_more(make_world: Any, more: str) -> None:
    """Records without anything of links are as they were before there were links: older stores are read, and read it."""
    world = kept(make_world)
    bridging_of(world.broker)
    header = f"1 domain=paris max-hops=3 relays=1{more}"
    pair = ("gmqttd-link", header)
    client = world.connect("link", auto=False, expiry=1000, properties={USER_PROPERTY: [pair]})
    client.subscribe(b"a", pairs=[("gmqttd-link", "1 hops=2 path=oslo,paris")])
    client.subscribe(b"b")
    world.publish(b"a", qos=1)
    world.publish(b"b", b"", qos=1, retain=True)
    assert [record[-1] for record in of_kind(world, SESSION)] == [header.encode()]
    assert [record[7:] for record in of_kind(world, SUBSCRIPTION)] == [((b"1 hops=2 path=oslo,paris",),), ()]
    link = of_kind(world, MESSAGE)[0][7]
    assert link.startswith(b"1 node=~")
    assert link.endswith(b" seq=1 path=")


def test_a_position_of_another_node_is_of_bytes() -> None:
    record = (SUBSCRIPTION, 1, b"a", 1, False, False, 0, 0, ())
    check_shape((*record, b"7"))
    with pytest.raises(TypeError):
        check_shape((*record, 7))
