"""Messages that wait for a client that may not read their topics, or not any more."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec.packets import PubAck, PubRec, Will
from broker.message import Message
from topic_rights import TopicRights


def test_retained_messages_are_judged_before_they_are_sent(world: Any) -> None:
    for topic in (b"a", b"b", b"c"):
        world.publish(topic, topic, retain=True)
    users = TopicRights(world, u="ac")
    reader = world.connect("c", username="u")
    reader.subscribe(b"#")
    assert reader.take_payloads() == [b"a", b"c"]
    users.change(u="b")
    reader.subscribe(b"+")
    assert reader.take_payloads() == [b"b"]


def away_with_messages(world: Any, *topics: bytes) -> Any:
    """A client of user `u` that left while messages of these topics came; in-flight and queued."""
    away = world.connect("c", username="u", clean_start=False, expiry=1000, auto=False)
    away.subscribe(b"#", qos=2)
    for topic in topics:
        world.broker.publish(Message(topic, topic + b"-inflight", 1, False), world.now)
    world.flush()
    away.take_publishes()
    away.cut()
    for qos in (0, 1, 2):
        for topic in topics:
            world.broker.publish(Message(topic, topic + b"%d" % qos, qos, False), world.now)


def test_queued_messages_are_judged_when_another_user_takes_the_session_over(world: Any) -> None:
    TopicRights(world, u="ab", v="b")
    away_with_messages(world, b"a", b"b")
    again = world.connect("c", username="v", clean_start=False, expiry=1000)
    assert again.connack.session_present
    assert again.take_payloads() == [b"b-inflight", b"b0", b"b1", b"b2"]
    assert world.drops() == {"read_not_authorized": 4}
    world.check()
    world.broker.publish(Message(b"a", b"late", 1, False), world.now)
    world.broker.publish(Message(b"b", b"late", 1, False), world.now)
    world.flush()
    assert again.take_payloads() == [b"late"], "the routes are those of the new user"


def test_queued_messages_of_the_same_user_stay(world: Any) -> None:
    TopicRights(world, u="ab")
    away_with_messages(world, b"a", b"b")
    again = world.connect("c", username="u", clean_start=False, expiry=1000)
    assert len(again.take_payloads()) == 8
    assert world.drops() == {}


def test_queued_messages_are_judged_after_a_reload(world: Any) -> None:
    users = TopicRights(world, u="ab")
    away_with_messages(world, b"a", b"b")
    users.change(u="a")
    again = world.connect("c", username="u", clean_start=False, expiry=1000)
    assert again.take_payloads() == [b"a-inflight", b"a0", b"a1", b"a2"]
    assert world.drops() == {"read_not_authorized": 4}


def test_messages_that_wait_for_a_connected_client_are_judged_after_a_reload(make_world: Any) -> None:
    world = make_world(max_inflight=1)
    users = TopicRights(world, u="ab")
    reader = world.connect("c", username="u", auto=False)
    reader.subscribe(b"#", qos=1)
    for topic in (b"a", b"a", b"b"):
        world.broker.publish(Message(topic, topic, 1, False), world.now)
    world.flush()
    users.change(u="b")
    (first,) = reader.take_publishes()
    reader.auto = True
    reader.send(PubAck(first.packet_id))
    assert reader.take_payloads() == [b"b"]
    assert world.drops() == {"read_not_authorized": 1}


def test_a_qos_2_exchange_goes_on_after_pubrec(world: Any) -> None:
    """The client has the message: PUBREL follows, whoever it is [MQTT-4.4.0-1]."""
    TopicRights(world, u="a", v="b")
    away = world.connect("c", username="u", clean_start=False, expiry=1000, auto=False)
    away.subscribe(b"a", qos=2)
    world.broker.publish(Message(b"a", b"x", 2, False), world.now)
    world.flush()
    (publish,) = away.take_publishes()
    away.send(PubRec(publish.packet_id))
    away.cut()
    again = world.connect("c", username="v", clean_start=False, expiry=1000, auto=False)
    assert [type(packet).__name__ for packet in again.packets] == ["PubRel"]


@pytest.mark.parametrize("username", ["u", "v"])
@pytest.mark.parametrize("delay", [0, 10])
def test_wills_are_judged_when_they_are_published(world: Any, username: str, delay: int) -> None:
    users = TopicRights(world, u="A", v="B", reader="ab")
    reader = world.connect("reader", username="reader")
    reader.subscribe(b"#")
    leaving = world.connect("c", username=username, will=Will(b"a", b"will", delay_interval=delay), expiry=100)
    leaving.cut()
    if delay:
        users.change(v="A", reader="ab")
    world.advance(delay + 1.0)
    allowed = username == ("v" if delay else "u")
    assert reader.take_payloads() == ([b"will"] if allowed else [])
    assert world.drops() == ({} if allowed else {"publish_not_authorized": 1})
    assert world.broker.counters.wills_published == allowed
