"""QoS 0, 1 and 2 in both directions [MQTT5 4.3], packet identifiers, flow control [MQTT5 4.9], delivery again [MQTT5 4.4]."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec import properties as props
from broker.codec.packets import (
    Disconnect,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    UnsubAck,
)
from broker.session.incoming import ReceivingSession

VERSIONS = (3, 4, 5)


@pytest.mark.parametrize("sender", VERSIONS)
@pytest.mark.parametrize("receiver", VERSIONS)
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("subscribed", [0, 1, 2])
def test_the_lower_qos_rules(world: Any, sender: int, receiver: int, published: int, subscribed: int) -> None:
    """[MQTT-3.8.4-8]: the minimum of the message's and the subscription's QoS."""
    client = world.connect("c", receiver)
    assert client.subscribe(b"a/+", qos=subscribed) == [subscribed]
    publisher = world.connect("p", sender)
    for payload in (b"1", b"2", b""):
        publisher.publish(b"a/b", payload, published)
    qos = min(published, subscribed)
    assert [(p.topic, p.payload, p.qos, p.retain, p.dup) for p in client.take_publishes()] == [
        (b"a/b", payload, qos, False, False) for payload in (b"1", b"2", b"")
    ]
    assert world.broker.counters.messages_received[published] == 3
    assert world.broker.counters.messages_sent[qos] == 3
    answers = [type(p) for p in publisher.take_packets()]
    assert answers == {0: [], 1: [PubAck] * 3, 2: [PubRec, PubComp] * 3}[published]
    assert world.broker.sessions["c"].inflight_length() == 0
    assert not world.broker.sessions["p"].incoming


@pytest.mark.parametrize(
    ("version", "qos", "topic", "reason_code"),
    [(5, 1, b"a", 0), (5, 1, b"b", 0x10), (5, 2, b"a", 0), (5, 2, b"b", 0x10), (4, 1, b"b", 0), (4, 2, b"b", 0)],
)
def test_no_matching_subscribers(world: Any, version: int, qos: int, topic: bytes, reason_code: int) -> None:
    """Reason code 0x10 [MQTT5 3.4.2.1, 3.5.2.1], in MQTT 5 only."""
    world.connect("c").subscribe(b"a")
    publisher = world.connect("p", version, auto=False)
    publisher.publish(topic, qos=qos, packet_id=7)
    publisher.publish(topic, qos=qos, packet_id=8, retain=True)
    answer = PubAck if qos == 1 else PubRec
    assert publisher.packets == [answer(7, reason_code), answer(8, reason_code)]


def test_qos_2_is_routed_once(world: Any) -> None:
    """[MQTT-4.3.3-10]: until PUBREL the packet identifier means the same message, also after a reconnect."""
    receiver = world.connect("c")
    receiver.subscribe(b"a")
    publisher = world.connect("p", clean_start=False, expiry=100, auto=False)
    publisher.publish(b"a", b"1", 2, packet_id=5)
    publisher.publish(b"a", b"1", 2, packet_id=5, dup=True)
    publisher.cut()
    publisher = world.connect("p", clean_start=False, expiry=100, auto=False)
    publisher.publish(b"a", b"1", 2, packet_id=5, dup=True)
    assert publisher.packets == [PubRec(5)]
    publisher.send(PubRel(5))
    publisher.send(PubRel(5))
    assert publisher.packets == [PubRec(5), PubComp(5), PubComp(5, 0x92)]
    publisher.publish(b"a", b"2", 2, packet_id=5)  # [MQTT-4.3.3-12]: now it is a new one
    assert receiver.take_payloads() == [b"1", b"2"]


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_packet_identifier_without_dup_on_another_connection(world: Any, is_alone: bool) -> None:
    """It is the same message [MQTT-4.3.3-10], as many client libraries send it. Beside other nodes, where the client may have
    had another session meanwhile, it is a new one: what is sent again has DUP [MQTT-3.3.1-1]."""
    receiver = world.connect("c")
    receiver.subscribe(b"a")
    for payload in (b"1", b"2"):
        publisher = world.connect("p", clean_start=False, expiry=100, auto=False)
        world.broker.sessions["p"].note_attached(not is_alone)
        publisher.publish(b"a", payload, 2, packet_id=5)
        publisher.publish(b"a", payload, 2, packet_id=5)
        publisher.publish(b"a", payload, 2, packet_id=5, dup=True)
        assert publisher.packets == [PubRec(5)] * 3
        publisher.cut()
    assert receiver.take_payloads() == ([b"1"] if is_alone else [b"1", b"2"])


@given(
    calls=st.lists(
        st.tuples(st.sampled_from(["publish", "release", "attach", "bring"]), st.integers(1, 4), st.booleans()),
        max_size=30,
    )
)
def test_identifiers_against_a_model(calls: list[tuple[str, int, bool]]) -> None:
    """The model keeps for each packet identifier whether it is of this connection, and whether it may be reused."""
    session = ReceivingSession("p")
    model: dict[int, tuple[bool, bool]] = {}
    for call, packet_id, flag in calls:
        if call == "publish":
            is_here, is_free = model.get(packet_id, (False, True))
            is_repeated = packet_id in model and (is_here or flag or not is_free)
            assert session.is_repeated(packet_id, flag) == is_repeated
            if not is_repeated:
                session.note_received(packet_id)
            model[packet_id] = (True, False)
        elif call == "release":
            assert session.release(packet_id) == (model.pop(packet_id, None) is not None)
        elif call == "attach":
            session.note_attached(flag)
            model = dict.fromkeys(model, (False, flag))
        elif packet_id not in model:
            session.note_received(packet_id)
            session.note_earlier(packet_id)
            model[packet_id] = (False, True)
        assert session.unreleased_length() == sum(is_here for is_here, _ in model.values())


def test_the_receive_maximum_is_of_a_connection(make_world: Any) -> None:
    """[MQTT5 4.9]: what an earlier connection left unreleased takes none of it. Sent again, it does."""
    world = make_world(server_receive_maximum=2)
    world.connect("c").subscribe(b"a")
    for first in (1, 3, 5):
        publisher = world.connect("p", clean_start=False, expiry=100, auto=False)
        publisher.publish(b"a", b"", 2, packet_id=first)
        publisher.publish(b"a", b"", 2, packet_id=first + 1)
        assert publisher.packets == [PubRec(first), PubRec(first + 1)]
        publisher.cut()
    publisher = world.connect("p", clean_start=False, expiry=100, auto=False)
    for packet_id in (1, 2):
        publisher.publish(b"a", b"", 2, packet_id=packet_id, dup=True)
    publisher.publish(b"a", b"", 2, packet_id=7)
    assert [type(packet) for packet in publisher.packets] == [PubRec, PubRec, Disconnect]
    assert publisher.packets[-1].reason_code == 0x93


def test_a_refused_qos_2_message_is_not_acknowledged_later(make_world: Any) -> None:
    """Sent again after the reconnect it is no duplicate of something that was received."""
    world = make_world(max_topic_levels=2)
    for _ in range(2):
        publisher = world.connect("p", clean_start=False, expiry=100, auto=False)
        publisher.publish(b"a/b/c", b"1", 2, packet_id=5)
        assert [type(p) for p in publisher.packets] == [Disconnect]
        assert publisher.packets[0].reason_code == 0x90


def test_mqtt_31_sends_again_with_dup(world: Any) -> None:
    """SUBSCRIBE, UNSUBSCRIBE and PUBREL have a DUP flag in MQTT 3.1, and only there."""
    packets = (b"\x8a\x06\0\1\0\1a\2", b"\x6a\2\0\7", b"\xaa\5\0\2\0\1a")
    client = world.connect("c", 3)
    for packet in packets:
        client.send_bytes(packet)
    assert client.packets == [SubAck(1, [2]), PubComp(7), UnsubAck(2, [])]
    for packet in packets:
        client = world.connect("c", 4)
        client.send_bytes(packet)
        assert client.closed


def test_qos_1_again_is_routed_again(world: Any) -> None:
    """[MQTT-4.3.2-5]; DUP is not passed on [MQTT-3.3.1-3]."""
    receiver = world.connect("c")
    receiver.subscribe(b"a")
    publisher = world.connect("p", 4)
    publisher.publish(b"a", b"1", 1, packet_id=5)
    publisher.publish(b"a", b"1", 1, packet_id=5, dup=True)
    assert publisher.packets == [PubAck(5), PubAck(5)]
    assert [(p.payload, p.dup) for p in receiver.take_publishes()] == [(b"1", False), (b"1", False)]


def test_too_many_qos_2_messages(make_world: Any) -> None:
    """[MQTT-3.3.4-9]: Receive Maximum of the server exceeded, 0x93. MQTT 3.1.1 has none, and 65535 identifiers."""
    world = make_world(server_receive_maximum=3)
    for version in (4, 5):
        client = world.connect("p", version, auto=False)
        for packet_id in range(1, 5):
            client.publish(b"a", b"", 2, packet_id=packet_id)
        assert client.closed is (version == 5)
    assert client.packets[-1].reason_code == 0x93


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [1, 2])
def test_in_flight_window(make_world: Any, version: int, qos: int) -> None:
    """[MQTT-3.3.4-9] towards the client: max_inflight, lowered by the client's Receive Maximum."""
    world = make_world(max_inflight=5)
    properties = {props.RECEIVE_MAXIMUM: 3} if version == 5 else {}
    window = 3 if version == 5 else 5
    client = world.connect("c", version, properties=properties, auto=False)
    client.subscribe(b"a")
    for number in range(8):
        world.publish(b"a", b"%d" % number, qos=qos)
    first = client.take_publishes()
    assert [p.payload for p in first] == [b"%d" % number for number in range(window)]
    world.publish(b"a", b"qos 0", qos=0)
    assert client.take_publishes() == []  # nothing overtakes what is queued
    session = world.broker.sessions["c"]
    assert (session.inflight_length(), session.queue_length()) == (window, 9 - window)
    if qos == 1:
        client.send(PubAck(first[1].packet_id))
    else:
        client.send(PubRec(first[1].packet_id))
        assert client.packets.pop() == PubRel(first[1].packet_id)
        assert client.take_publishes() == []  # the exchange ends with PUBCOMP
        client.send(PubComp(first[1].packet_id))
    assert client.take_payloads() == [b"%d" % window]
    client.auto = True
    client.connection.receive_data(b"", world.now)
    for publish in (first[0], *first[2:]):
        client.send(PubAck(publish.packet_id) if qos == 1 else PubRec(publish.packet_id))
    if qos == 1:
        client.send(PubAck(first[-1].packet_id + 1))
    else:
        client.send(PubRec(first[-1].packet_id + 1))
    assert client.take_payloads()[-1] == b"qos 0"
    assert session.queue_length() == 0
    assert session.inflight_length() == 0


@pytest.mark.parametrize("failed", [0x80, 0x97])
def test_pubrec_with_an_error_ends_the_exchange(make_world: Any, failed: int) -> None:
    """[MQTT-4.3.3-4]: no PUBREL, and the window has room again."""
    world = make_world(max_inflight=1)
    client = world.connect("c", auto=False)
    client.subscribe(b"a")
    world.publish(b"a", b"1", qos=2)
    world.publish(b"a", b"2", qos=2)
    (publish,) = client.take_publishes()
    client.send(PubRec(publish.packet_id, failed))
    assert [p.payload for p in client.packets] == [b"2"]


@pytest.mark.parametrize("version", [4, 5])
def test_acknowledgements_of_unknown_packet_identifiers(world: Any, version: int) -> None:
    """Unknown packet identifiers: 0x92 in MQTT 5 [MQTT5 3.6.2.1, 3.7.2.1], no fault in either version."""
    client = world.connect("c", version, auto=False)
    for packet in (PubAck(1), PubRec(2), PubRel(3), PubComp(4), PubRec(5, 0x80 if version == 5 else 0)):
        client.send(packet)
    code = 0x92 if version == 5 else 0
    expected = [PubRel(2, code), PubComp(3, code)]
    assert client.packets == (expected if version == 5 else [*expected, PubRel(5)])
    assert not client.closed


WRONG_KIND = [
    (1, PubRec, ""),
    (1, PubComp, ""),
    (2, PubAck, ""),
    (2, PubComp, ""),
    (2, PubAck, "after PUBREC"),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("qos", "answer", "when"), WRONG_KIND)
def test_an_acknowledgement_of_the_wrong_kind_ends_the_connection(
    world: Any, version: int, qos: int, answer: Any, when: str
) -> None:
    """The message is sent again on the next connection [MQTT-4.3.2-3] [MQTT-4.3.3-4]."""
    options = {"clean_start": False} | ({"expiry": 100} if version == 5 else {})
    client = world.connect("c", version, auto=False, **options)
    client.subscribe(b"a")
    world.publish(b"a", b"1", qos=qos)
    (publish,) = client.take_publishes()
    if when:
        client.send(PubRec(publish.packet_id))
        client.take_packets()
    client.send(answer(publish.packet_id))
    assert client.closed
    assert [p.reason_code for p in client.packets] == ([0x82] if version == 5 else [])
    assert world.broker.counters.protocol_errors == 1
    again = world.connect("c", version, auto=False, **options)
    (packet,) = again.packets
    assert (packet.packet_id, type(packet)) == (publish.packet_id, PubRel if when else Publish)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("first", [b"\x40", b"\x50", b"\x62", b"\x70"])
def test_an_acknowledgement_of_packet_identifier_0_ends_the_connection(world: Any, version: int, first: bytes) -> None:
    """There is none [MQTT-2.2.1-3] [MQTT-2.3.1-1]."""
    client = world.connect("c", version)
    client.send_bytes(first + b"\x02\0\0")
    assert client.closed
    assert [p.reason_code for p in client.packets] == ([0x82] if version == 5 else [])


def test_packet_identifiers_wrap_around(world: Any) -> None:
    """1 to 65535, none that is in use [MQTT-2.2.1-4]."""
    client = world.connect("c", auto=False)
    client.subscribe(b"a")
    world.publish(b"a", b"stays", qos=1)
    (stays,) = client.take_publishes()
    session = world.broker.sessions["c"]
    session.inflight.next_packet_id = 65534
    client.auto = True
    publisher = world.connect("p")
    for _ in range(5):
        publisher.publish(b"a", qos=1)
    assert stays.packet_id == 1
    assert [p.packet_id for p in client.take_publishes()] == [65534, 65535, 2, 3, 4]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(("clean_start", "delivered"), [(False, True), (True, False)])
def test_delivery_again(world: Any, version: int, clean_start: bool, delivered: bool) -> None:
    """[MQTT-4.4.0-1]: PUBLISH with DUP and PUBREL, same identifiers, same order [MQTT-4.6.0-1]; then the queue."""
    options: dict[str, Any] = {"expiry": 100} if version == 5 else {}
    client = world.connect("c", version, clean_start=False, auto=False, **options)
    client.subscribe(b"a")
    for number, qos in enumerate((1, 2, 1, 2)):
        world.publish(b"a", b"%d" % number, qos=qos)
    sent = client.take_publishes()
    client.send(PubRec(sent[1].packet_id))
    client.send(PubAck(sent[2].packet_id))
    client.take_packets()
    client.cut()
    world.publish(b"a", b"queued", qos=1)
    assert world.broker.sessions["c"].queue_length() == 1
    again = world.connect("c", version, clean_start=clean_start, auto=False, **options)
    packets = again.take_packets()
    if not delivered:
        assert packets == []
        return
    assert [p.packet_id for p in packets[:3]] == [sent[0].packet_id, sent[1].packet_id, sent[3].packet_id]
    assert isinstance(packets[1], PubRel)
    publishes = [p for p in packets if isinstance(p, Publish)]
    assert [(p.payload, p.dup, p.qos) for p in publishes] == [
        (b"0", True, 1),
        (b"3", True, 2),
        (b"queued", False, 1),
    ]


def test_delivery_again_keeps_to_a_smaller_receive_maximum(world: Any) -> None:
    """Also what is acknowledged before it was sent again, by a client that still knows it, is not sent again."""
    client = world.connect("c", expiry=100, auto=False)
    client.subscribe(b"a")
    for number in range(6):
        world.publish(b"a", b"%d" % number, qos=1)
    sent = client.take_publishes()
    client.cut()
    world.publish(b"a", b"6", qos=1)
    again = world.connect("c", clean_start=False, auto=False, properties={props.RECEIVE_MAXIMUM: 2})
    assert again.take_payloads() == [b"0", b"1"]
    again.send(PubAck(sent[4].packet_id))  # each PUBACK gives room [MQTT5 4.9]
    assert again.take_payloads() == [b"2"]
    for number in (0, 1, 2, 3, 5):
        again.send(PubAck(sent[number].packet_id))
    assert again.take_payloads() == [b"3", b"5", b"6"]


def test_maximum_packet_size_of_the_client(world: Any) -> None:
    """[MQTT-3.1.2-24] [MQTT-3.1.2-25]: not sent, counted, and as if it had been."""
    client = world.connect("c", expiry=100, properties={props.MAXIMUM_PACKET_SIZE: 100})
    client.subscribe(b"a")
    publisher = world.connect("p")
    for qos in (0, 1, 2):
        publisher.publish(b"a", bytes(100), qos)
        publisher.publish(b"a", bytes(90), qos)
    publisher.send_bytes((b"\x30\x64\0\x01a\0" + bytes(96)) * 3)  # a run
    assert [len(p.payload) for p in client.take_publishes()] == [90, 90, 90]
    assert world.drops() == {"packet_too_large": 6}
    assert world.broker.sessions["c"].messages_dropped == 6
    client.cut()
    world.publish(b"a", bytes(100), qos=1)
    again = world.connect("c", clean_start=False, properties={props.MAXIMUM_PACKET_SIZE: 100})
    assert again.take_publishes() == []


def test_in_flight_message_too_large_for_the_next_connection(world: Any) -> None:
    client = world.connect("c", expiry=100, auto=False)
    client.subscribe(b"a")
    world.publish(b"a", bytes(100), qos=1)
    client.cut()
    again = world.connect("c", clean_start=False, properties={props.MAXIMUM_PACKET_SIZE: 100})
    assert again.take_publishes() == []
    assert world.broker.sessions["c"].inflight_length() == 0
    assert world.drops() == {"packet_too_large": 1}


def test_properties_are_passed_on(world: Any) -> None:
    """[MQTT-3.3.2-15/17/18/20]: as received, in order; not to MQTT 3.1.1."""
    block = b"\x26\0\x01k\0\x01v\x01\x01\x03\0\x04text\x08\0\x05reply\x09\0\x02\0\x01\x26\0\x01k\0\x01w"
    five, four = world.connect("c5"), world.connect("c4", 4)
    for client in (five, four):
        client.subscribe(b"a")
    world.publish(b"a", b"x", qos=1, properties=block)
    assert [p.properties for p in five.take_publishes()] == [block]
    assert four.take_payloads() == [b"x"]
