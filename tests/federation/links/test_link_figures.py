"""The figures of a link's status: what came and went adds up, and what is not known is absent."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec import properties as props
from broker.codec.packets import PingResp, Properties, PubAck, Publish
from broker.message import Message
from broker.origin import NAME, Origin
from broker.session.refused import STORE_IS_FULL
from broker.store.journal import Journal
from federation.links.bridging.bridging import bridging_of
from federation.links.bridging.headers import LinkWelcome, encode_welcome
from federation.links.status import LinkStatus
from link_world import World

OUT = {"direction": "out"}
OF_OURS: Properties = {
    props.USER_PROPERTY: [(NAME.decode(), encode_welcome(LinkWelcome(b"paris", 1, "", 1, 1)).decode())]
}


def header(value: bytes) -> bytes:
    return b"\x26\x00\x0bgmqttd-link" + len(value).to_bytes(2, "big") + value


def publish(world: World, *payloads: bytes) -> None:
    topic = b"s/a"
    for payload in payloads:
        world.broker.now = world.now
        route = world.broker.router.lookup(topic)
        world.broker.router.route(route, Message(topic, payload, 1, False), None, world.now)
    world.flush()


def pushed(world: World, *payloads: bytes) -> list[Publish]:
    """What a link that pushes sends of these messages."""
    world.run()
    publish(world, *payloads)
    return [packet for packet in world.sent() if isinstance(packet, Publish)]


def status(world: World) -> LinkStatus:
    world.flush()
    world.broker.now = world.now
    return world.link.status(world.now)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_refused_message_counts_once_by_its_reason(qos: int) -> None:
    world = World()
    world.want()
    world.run(properties=OF_OURS)
    bridging_of(world.broker).home.name = b"berlin"
    far, seen = header(b"1 path=oslo,paris"), header(b"1 path=berlin,paris")
    for number, properties in enumerate((b"", far, far, seen), 1):
        world.receive(Publish(b"s/a", b"x", qos, packet_id=number * qos, properties=properties))
    world.receive(Publish(b"$SYS/a", b"x", qos, packet_id=9 * qos))
    found = status(world)
    assert found.dropped == {"link_hops": 2, "link_path": 1, "link_topic": 1}
    assert (found.received, found.sent, found.in_flight) == (5, 0, 0)


def test_surplus_of_a_mapping_was_received() -> None:
    world = World({"exchange": "eu/s/# -> s/{#}"})
    world.want()
    world.run()
    world.receive(Publish(b"eu/s/a", b"x"), Publish(b"us/s/a", b"x"), Publish(b"us/s/b", b"x", 1, packet_id=1))
    found = status(world)
    assert (found.received, found.dropped) == (3, {"surplus": 2})


def test_pushed_messages_that_the_upstream_refuses_are_counted() -> None:
    world = World(OUT)
    first, second, third = pushed(world, b"1", b"2", b"3")
    world.receive(PubAck(first.packet_id, 0x87), PubAck(second.packet_id))
    text: dict[int, Any] = {props.REASON_STRING: "x" * 300}
    world.receive(PubAck(third.packet_id, 0x80, text))
    found = status(world)
    assert (found.sent, found.received, found.in_flight) == (3, 0, 0)
    assert found.dropped == {"not_authorized": 1, "unspecified_error": 1}


def test_a_pushed_message_for_which_the_upstream_has_no_room_now_is_sent_again() -> None:
    world = World(OUT)
    first, second, third = pushed(world, b"1", b"2", b"3")
    world.receive(PubAck(first.packet_id), PubAck(second.packet_id, 0x97), PubAck(third.packet_id))
    world.flush()
    assert "quota exceeded" in status(world).last_error
    assert world.until_next_try() <= 1.0
    found = world.connect(session_present=True)
    world.receive(PingResp())
    again = [packet for packet in found + world.sent() if isinstance(packet, Publish)]
    assert [(packet.payload, packet.dup) for packet in again] == [(b"2", True)]
    assert status(world).dropped == {}


def test_a_message_that_the_store_here_does_not_take_stays_at_the_upstream() -> None:
    """To an acknowledgement with 0x97 the upstream would let it go."""
    world = World()
    world.want()
    world.run(properties=OF_OURS)
    journal = Journal()
    world.broker.set_journal(journal)
    journal.is_full = True
    world.receive(Publish(b"s/a", b"x", 1, packet_id=1, retain=True))
    world.flush()
    assert not [packet for packet in world.sent() if isinstance(packet, PubAck)]
    assert STORE_IS_FULL in status(world).last_error
    journal.is_full = False
    assert world.until_next_try() <= 1.0
    world.connect(session_present=True, properties=OF_OURS)
    world.receive(Publish(b"s/a", b"x", 1, dup=True, packet_id=1, retain=True))
    assert len(world.broker.retained) == 1


def test_messages_to_push_have_an_age_while_the_upstream_is_away() -> None:
    world = World(OUT, link_max_queued_messages=3)
    world.run()
    assert (status(world).lag_seconds, status(world).waiting, status(world).oldest_waiting_seconds) == (0.0, 0, 0.0)
    publish(world, b"1")
    world.now += 4.0
    found = status(world)
    assert (found.in_flight, found.lag_seconds, found.waiting) == (1, 4.0, 0)
    world.lose()
    world.now += 1.0
    publish(world, b"2", b"3")
    world.now += 2.0
    found = status(world)
    assert (found.in_flight, found.lag_seconds, found.waiting, found.oldest_waiting_seconds) == (1, 7.0, 2, 2.0)
    publish(world, b"4", b"5")
    assert status(world).dropped == {"queue": 2}


def test_messages_to_push_wait_no_longer_than_message_ttl() -> None:
    world = World({**OUT, "message-ttl": 5000})
    world.run()
    world.lose()
    publish(world, b"old")
    world.now += 4.0
    publish(world, b"new")
    world.now += 2.0
    world.link.restart(world.now)
    sent = [packet.payload for packet in world.connect(session_present=True) if isinstance(packet, Publish)]
    assert sent == [b"new"]
    assert status(world).dropped == {"queue": 1}


def test_messages_that_wait_at_an_upstream_are_not_known_here() -> None:
    world = World()
    assert (status(world).lag_seconds, status(world).waiting, status(world).oldest_waiting_seconds) == (-1.0, -1, -1.0)
    world.want()
    world.run()
    assert (status(world).lag_seconds, status(world).waiting, status(world).oldest_waiting_seconds) == (0.0, -1, -1.0)


def test_a_link_that_pushes_is_drained_when_all_is_acknowledged() -> None:
    world = World(OUT)
    world.run()
    publish(world, b"1")
    (packet,) = world.sent()
    assert isinstance(packet, Publish)
    link_id = world.link.plan.link_id
    world.links.drain(link_id, world.now + 5.0, world.now)
    assert (world.shell.is_held, world.link.is_drained()) == (False, False)
    world.receive(PubAck(packet.packet_id))
    assert world.link.is_drained()
    assert world.links.end(link_id, world.now) == 0


@pytest.mark.parametrize("is_alone", [False, True])
def test_messages_to_push_stay_where_no_other_node_can_run_the_link(is_alone: bool) -> None:
    world = World(OUT)
    world.run()
    world.lose()
    publish(world, b"1", b"2")
    link_id = world.link.plan.link_id
    world.links.drain(link_id, world.now + 5.0, world.now)
    assert world.links.end(link_id, world.now, keeps_queue=is_alone) == (0 if is_alone else 2)
    assert len(world.broker.sessions) == is_alone
    assert world.links.queues_left() == [link_id] * is_alone
    for link_id in world.links.queues_left():
        assert world.links.drop_queue(link_id, world.now) == 2
    assert world.broker.sessions == {}


def test_a_queue_is_not_left_while_its_link_runs() -> None:
    world = World(OUT)
    world.run()
    assert world.links.queues_left() == []


def test_an_expiry_below_a_second_is_a_second() -> None:
    world = World({"expires": 100})
    world.want()
    connect = world.connect()[0]
    assert connect.properties[props.SESSION_EXPIRY_INTERVAL] == 1  # type: ignore[attr-defined]


def test_a_message_that_comes_again_is_acknowledged_when_the_first_copy_is_stored() -> None:
    """The upstream lets it go with the acknowledgement."""
    world = World()
    world.want()
    world.run(properties=OF_OURS)
    journal = Journal()
    world.broker.set_journal(journal)
    number = Origin((b"paris",)).numbered(b"n1", 5)
    numbered = Publish(b"s/a", b"x", 1, retain=True, packet_id=1, properties=header(number.encode()))
    world.receive(numbered)
    world.lose()
    world.until_next_try()
    world.connect(session_present=True, properties=OF_OURS)
    numbered.dup = True
    world.receive(numbered)
    assert [packet for packet in world.sent() if isinstance(packet, PubAck)] == []
    assert status(world).dropped == {"link_duplicate": 1}
    journal.take()
    for commit in range(1, world.broker.commits.begun() + 1):
        world.broker.commits.finish(commit)
    assert [packet.packet_id for packet in world.sent() if isinstance(packet, PubAck)] == [1]
