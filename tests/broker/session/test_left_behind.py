"""Messages of a shared group whose receiver's session ended before it took them [MQTT5 4.8.2]."""

from __future__ import annotations

from typing import Any

import pytest

from broker.message import Message
from broker.session.left_behind import FILTER_STEPS_MAX, REDELIVERED_MAX, UNKNOWN, take_left_behind


def published(world: Any, qos: int, count: int = 4) -> list[bytes]:
    payloads = [b"%d" % number for number in range(count)]
    for payload in payloads:
        world.publish(b"a", payload, qos=qos)
    return payloads


@pytest.mark.parametrize("version", [4, 5])
def test_other_members_get_the_messages_of_a_session_that_ends(make_world: Any, version: int) -> None:
    """Its session ends: QoS 1 that it did not acknowledge, and what waited for it, goes to others [MQTT5 4.8.2]."""
    world = make_world(max_inflight=2)
    lazy = world.connect("lazy", version, auto=False)
    lazy.subscribe(b"$share/g/a")
    payloads = published(world, 1)
    other = world.connect("other", version)
    other.subscribe(b"$share/g/a")
    lazy.cut()
    publishes = other.take_publishes()
    assert [(publish.payload, publish.dup) for publish in publishes] == [(payload, False) for payload in payloads]
    assert world.drops() == {}
    world.check()


def test_a_session_that_goes_on_keeps_its_messages(world: Any) -> None:
    lazy = world.connect("lazy", auto=False, expiry=100)
    lazy.subscribe(b"$share/g/a")
    payloads = published(world, 1)
    other = world.connect("other", expiry=100)
    other.subscribe(b"$share/g/a")
    lazy.cut()
    world.advance(99.0)
    assert other.take_publishes() == []
    world.advance(2.0)
    assert other.take_payloads() == payloads


def test_qos_2_messages_that_were_sent_are_not_sent_to_another_member(make_world: Any) -> None:
    """[MQTT-4.8.2-5]; what was not sent yet goes on."""
    world = make_world(max_inflight=2)
    lazy = world.connect("lazy", auto=False)
    lazy.subscribe(b"$share/g/a")
    published(world, 2)
    other = world.connect("other")
    other.subscribe(b"$share/g/a")
    lazy.cut()
    assert other.take_payloads() == [b"2", b"3"]


@pytest.mark.parametrize("also", [b"a", b"#"])
def test_the_own_copies_of_a_member_end_with_its_session(make_world: Any, also: bytes) -> None:
    """It has an ordinary subscription, too: those are its own messages, and the others are the group's."""
    world = make_world(max_inflight=2)
    lazy = world.connect("lazy", auto=False)
    lazy.subscribe(b"$share/g/a", also)
    payloads = published(world, 1, 2)
    other = world.connect("other")
    other.subscribe(b"$share/g/a")
    lazy.cut()
    assert other.take_payloads() == payloads
    assert world.drops() == {"session_ended": 2}
    world.check()


def test_a_member_of_two_groups_leaves_a_message_for_each(make_world: Any) -> None:
    world = make_world(max_inflight=2)
    lazy = world.connect("lazy", auto=False)
    lazy.subscribe(b"$share/g/a", b"$share/h/a", b"$share/i/+")
    payloads = published(world, 1, 2)
    other = world.connect("other")
    other.subscribe(b"$share/h/a", b"$share/i/+")
    lazy.cut()
    assert sorted(other.take_payloads()) == sorted(payloads * 2)
    assert world.drops() == {"session_ended": 2}, "of the group without other members"
    world.check()


def test_messages_of_a_group_that_was_left_go_to_its_members(make_world: Any) -> None:
    """After UNSUBSCRIBE the client is still sent what waited for it."""
    world = make_world(max_inflight=1)
    lazy = world.connect("lazy", auto=False)
    lazy.subscribe(b"$share/g/a")
    payloads = published(world, 1, 2)
    other = world.connect("other")
    other.subscribe(b"$share/g/a")
    lazy.unsubscribe(b"$share/g/a")
    assert other.take_payloads() == []
    lazy.cut()
    assert other.take_payloads() == payloads
    world.check()


def test_messages_of_the_last_member_end_with_its_session(make_world: Any) -> None:
    world = make_world(max_inflight=1)
    lazy = world.connect("lazy", auto=False)
    lazy.subscribe(b"$share/g/a")
    published(world, 1)
    lazy.cut()
    assert world.drops() == {"session_ended": 4}


def test_messages_past_message_expiry_are_not_redelivered(make_world: Any) -> None:
    """`message_expiry` of a queue, where the message itself has no end."""
    world = make_world(message_expiry=10.0)
    lazy = world.connect("lazy", expiry=15)
    lazy.subscribe(b"$share/g/a")
    lazy.cut()
    published(world, 1, 2)
    other = world.connect("other")
    other.subscribe(b"$share/g/a")
    world.advance(20.0)
    assert list(world.broker.sessions) == ["other"]
    assert other.take_publishes() == []
    assert world.drops() == {"session_ended": 2}


def test_the_number_of_messages_redelivered_is_bounded(make_world: Any) -> None:
    """A stop of the node hands nothing over: it would wander from one that is closed to the next."""
    world = make_world(max_inflight=10, max_queued_messages=3 * REDELIVERED_MAX)
    for stops in (False, True):
        lazy = world.connect("lazy", auto=False)
        lazy.subscribe(b"$share/g/a")
        published(world, 1, REDELIVERED_MAX + 50)
        other = world.connect("other")
        other.subscribe(b"$share/g/a")
        if stops:
            world.broker.shut_down(world.now)
            world.flush()
            assert other.take_publishes() == []
        else:
            lazy.cut()
            assert len(other.take_publishes()) == REDELIVERED_MAX
            assert world.drops() == {"session_ended": 50}
            other.cut()


def test_the_search_for_groups_is_bounded(make_world: Any) -> None:
    """Records of earlier builds do not tell the group: each topic that waited is matched against all filters of the node, which
    can be many for one topic."""
    world = make_world(max_queued_messages=10_000)
    other = world.connect("other")
    deep = [b"/".join([b"+" if bits >> level & 1 else b"x" for level in range(8)]) + b"/#" for bits in range(256)]
    other.subscribe(*deep, qos=0)
    lazy = world.connect("lazy", expiry=100)
    lazy.subscribe(b"$share/g/x/#")
    lazy.cut()
    topics = [b"x/x/x/x/x/x/x/x/%d" % number for number in range(200)]
    for topic in topics:
        world.broker.publish(Message(topic, b"1", 1, False), world.now)
    second = world.connect("second")
    second.subscribe(b"$share/g/x/#")
    session = world.broker.sessions["lazy"]
    for outgoing in session.queued():
        outgoing.copy = UNKNOWN
    taken = take_left_behind(world.broker.router.tree, session, world.now)
    assert [message.topic for _, message in taken] == topics[: len(taken)], "the oldest"
    steps_for_one = world.broker.router.tree.visited + len(deep) + 1
    assert len(taken) == -(-FILTER_STEPS_MAX // steps_for_one) < len(topics)
    assert session.queue_length() == len(topics) - len(taken)
