"""A PUBLISH that a client may not send: its answer, and what is counted."""

from __future__ import annotations

from typing import Any

import pytest

from broker.authorization import ALLOW, PUBLISH_ANSWERS_MAX, Authorization, Authorizer, ClientIdentity, Verdict
from broker.codec.packets import PubAck, PubComp, PubRec, Will
from broker.counters import Counters
from broker.faults import Faults
from broker.message import Message
from broker.slices import Slices
from topic_rights import NOT_AUTHORIZED, TopicRights


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("with_properties", [False, True])
def test_a_publish_that_is_not_allowed(world: Any, version: int, with_properties: bool) -> None:
    """MQTT 5 has a reason code; in MQTT 3.1.1 the message is acknowledged and dropped, as mosquitto does it."""
    TopicRights(world, u="A", reader="abc")
    reader = world.connect("reader", username="reader")
    reader.subscribe(b"#")
    sender = world.connect("c", version, username="u")
    fields = {"properties": b"\x26\0\x01a\0\x01b"} if with_properties and version == 5 else {}
    sender.publish(b"b", b"0", 0, **fields)
    sender.publish(b"b", b"1", 1, **fields)
    sender.publish(b"b", b"2", 2, **fields)
    answers = sender.take_packets()
    code = NOT_AUTHORIZED if version == 5 else 0
    assert [(type(answer), answer.reason_code) for answer in answers[:2]] == [(PubAck, code), (PubRec, code)]
    assert [type(answer) for answer in answers[2:]] == ([] if version == 5 else [PubComp])
    assert reader.take_payloads() == []
    assert world.drops() == {"publish_not_authorized": 1 if version == 5 else 3}
    assert world.broker.counters.publishes_refused == (2 if version == 5 else 0)
    assert not sender.closed
    sender.publish(b"a", b"3", 1)
    assert reader.take_payloads() == [b"3"]


def test_a_retained_message_that_is_not_allowed_is_not_stored(world: Any) -> None:
    TopicRights(world, u="A")
    sender = world.connect("c", username="u")
    for qos in (0, 1, 2):
        sender.publish(b"b", b"x", qos, retain=True)
    assert len(world.broker.retained) == 0


def test_a_run_that_is_not_allowed_is_dropped(world: Any) -> None:
    TopicRights(world, u="A", reader="ab")
    reader = world.connect("reader", username="reader")
    reader.subscribe(b"#")
    sender = world.connect("c", username="u")
    sender.send_bytes(b"\x30\x04\0\x01b\0" * 5 + b"\x30\x04\0\x01a\0" * 3)
    assert len(reader.take_payloads()) == 3
    assert world.drops() == {"publish_not_authorized": 5}
    assert world.broker.counters.qos0_received == 8


def test_a_topic_alias_stands_for_its_topic(world: Any) -> None:
    TopicRights(world, u="A", reader="ab")
    reader = world.connect("reader", username="reader")
    reader.subscribe(b"#")
    sender = world.connect("c", username="u")
    sender.publish(b"b", b"no", topic_alias=1)
    sender.publish(b"", b"no", topic_alias=1)
    sender.publish(b"a", b"yes", topic_alias=1)
    sender.publish(b"", b"yes", topic_alias=1)
    assert reader.take_payloads() == [b"yes", b"yes"]


@pytest.mark.parametrize("topic", [b"$SYS", b"$SYS/", b"$SYS/x", b"$SYS/broker/clients/total"])
@pytest.mark.parametrize("is_authorized", [False, True])
def test_clients_never_publish_to_sys(world: Any, topic: bytes, is_authorized: bool) -> None:
    class Everything(Authorizer):
        def may_publish(self, client: ClientIdentity, topic: bytes) -> Verdict:
            return ALLOW

        def may_read(self, client: ClientIdentity, topic: bytes) -> Verdict:
            return ALLOW

    if is_authorized:
        world.broker.add_authorizer(Everything())
    reader = world.connect("reader")
    reader.subscribe(b"$SYS/#")
    sender = world.connect("c", will=Will(topic, b"will"))
    sender.publish(topic, b"0")
    sender.publish(topic, b"1", 1, retain=True)
    assert [packet.reason_code for packet in sender.take_packets()] == [NOT_AUTHORIZED]
    sender.cut()
    assert reader.take_payloads() == []
    assert len(world.broker.retained) == 0
    assert world.drops() == {"publish_not_authorized": 2}
    world.broker.publish(Message(topic, b"of the server", 0, False), world.now)
    world.flush()
    assert reader.take_payloads() == [b"of the server"]


def test_answers_are_kept_until_the_rules_change(world: Any) -> None:
    users = TopicRights(world, u="A")
    sender = world.connect("c", username="u")
    for _ in range(3):
        sender.publish(b"a", b"", 1)
        sender.publish(b"b", b"", 1)
    assert users.asked == [("c", b"a"), ("c", b"b")]
    sender.take_packets()
    users.change(u="B")
    sender.publish(b"a", b"", 1)
    sender.publish(b"b", b"", 1)
    assert [packet.reason_code for packet in sender.take_packets()] == [NOT_AUTHORIZED, 0x10]
    world.broker.remove_authorizer(users)
    sender.publish(b"a", b"", 1)
    assert [packet.reason_code for packet in sender.take_packets()] == [0x10]


def test_answers_are_bounded(world: Any) -> None:
    users = TopicRights(world)
    authorization = Authorization([users], 1, Counters(), Faults(), Slices())
    somebody = ClientIdentity("c", "u", "127.0.0.1:1")
    for number in range(PUBLISH_ANSWERS_MAX + 10):
        authorization.may_publish(somebody, b"%d" % number)
    asked = len(users.asked)
    authorization.may_publish(somebody, b"0")
    authorization.may_publish(somebody, b"%d" % (PUBLISH_ANSWERS_MAX + 9))
    assert len(users.asked) == asked + 1, "a full cache is cleared"
