"""Statements of the specification that no rule of a single module shows (tests/conformance has the table of all)."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec import properties as props
from broker.codec.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    UnsubAck,
    Unsubscribe,
    Will,
)
from broker.codec.writer import encode_packet

VERSIONS = (3, 4, 5)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [1, 23])
def test_client_identifiers_that_each_server_takes(world: Any, version: int, size: int) -> None:
    """1 to 23 digits and letters [MQTT-3.1.3-5]."""
    characters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    for at in range(0, len(characters), size):
        client_id = (characters + characters)[at : at + size]
        assert world.connect(client_id, version).connack.reason_code == 0
        assert client_id in world.broker.sessions


@pytest.mark.parametrize("version", [4, 5])
def test_input_behind_a_refused_connect_is_not_handled(make_world: Any, version: int) -> None:
    """One chunk has both [MQTT-3.1.4-6] [MQTT-3.1.4-5]."""
    world = make_world(allow_zero_length_clientid=False)
    watcher = world.connect("watcher")
    watcher.subscribe(b"a")
    client = world.open(version)
    client.send_bytes(
        encode_packet(Connect("", version), version) + encode_packet(Publish(b"a", b"x", retain=True), version)
    )
    assert client.closed
    assert [type(packet) for packet in client.packets] == [ConnAck]
    assert watcher.take_publishes() == []
    assert len(world.broker.retained) == 0


@pytest.mark.parametrize("wanted", [0, 1])
def test_reason_strings(world: Any, wanted: int) -> None:
    """The server sends them in CONNACK and DISCONNECT only, whatever the client asks for [MQTT-3.1.2-29]. A DISCONNECT of the
    server has no Session Expiry Interval [MQTT-3.14.2-2]."""
    client = world.connect("c", auto=False, properties={props.REQUEST_PROBLEM_INFORMATION: wanted})
    client.subscribe(b"a")
    client.unsubscribe(b"b")
    for packet in (
        Publish(b"b", b"", 1, packet_id=1),
        Publish(b"b", b"", 2, packet_id=2),
        PubRel(2),
        PubRel(9),
        PubRec(8),
        Publish(b"a#", b""),
    ):
        client.send(packet)
    *answers, disconnect = client.packets
    assert [type(answer) for answer in answers] == [PubAck, PubRec, PubComp, PubComp, PubRel]
    assert all(not answer.properties for answer in answers)
    assert isinstance(disconnect, Disconnect)
    assert list(disconnect.properties) == ([props.REASON_STRING] if wanted else [])


def test_other_packets_are_answered_while_the_window_is_full(make_world: Any) -> None:
    """[MQTT-3.3.4-10] [MQTT-4.9.0-3], in both directions."""
    world = make_world(server_receive_maximum=1)
    client = world.connect("c", properties={props.RECEIVE_MAXIMUM: 1}, auto=False)
    client.subscribe(b"a")
    for _ in range(2):
        world.publish(b"a", qos=1)
    client.publish(b"b", qos=2, packet_id=5)
    client.take_packets()
    client.send(PingReq())
    client.publish(b"c", qos=0)
    assert client.packets == [PingResp()]
    assert client.subscribe(b"d") == [2]
    client.send(PubRel(5))
    assert PubComp(5) in client.packets


@pytest.mark.parametrize("version", VERSIONS)
def test_unsubscribe(world: Any, version: int) -> None:
    """Filters are compared by their characters [MQTT-3.10.4-1]; new messages stop [MQTT-3.10.4-2]; those that were sent are
    completed [MQTT-3.10.4-3]; each UNSUBSCRIBE gets one UNSUBACK with its identifier [MQTT-3.10.4-4..6]."""
    options = {"clean_start": False} | ({"expiry": 100} if version == 5 else {})
    client = world.connect("c", version, auto=False, **options)
    client.subscribe(b"a/+", b"b")
    world.publish(b"a/b", b"before", qos=1)
    client.take_packets()
    client.send(Unsubscribe(7, [b"a/b", b"A/+", b"a/#"]))
    client.send(Unsubscribe(8, [b"a/+", b"b", b"c"]))
    codes = ([0x11] * 3, [0, 0, 0x11]) if version == 5 else ([], [])
    assert client.packets == [UnsubAck(7, codes[0]), UnsubAck(8, codes[1])]
    client.take_packets()
    world.publish(b"a/b", b"after", qos=1)
    world.publish(b"b", b"after", qos=1)
    assert client.packets == []
    client.cut()
    again = world.connect("c", version, **options)
    assert [(p.payload, p.dup) for p in again.take_publishes()] == [(b"before", True)]
    assert world.broker.sessions["c"].inflight_length() == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_stays_while_its_connection_is_open(world: Any, version: int) -> None:
    """Whatever its expiry interval is [MQTT-4.1.0-1]."""
    options = {"expiry": 1} if version == 5 else {}
    client = world.connect("c", version, clean_start=False, **options)
    client.subscribe(b"a")
    world.advance(200.0)
    world.publish(b"a", b"x")
    assert client.take_payloads() == [b"x"]


def test_a_message_that_was_sent_does_not_expire(world: Any) -> None:
    """Neither towards a client [MQTT-4.3.3-7] nor from one [MQTT-4.3.3-13]: the exchange goes on."""
    client = world.connect("c", expiry=100, auto=False)
    client.subscribe(b"a")
    publisher = world.connect("p", auto=False)
    publisher.publish(b"a", b"x", 2, packet_id=1, message_expiry_interval=1)
    world.advance(10.0)
    publisher.send(PubRel(1))
    assert publisher.packets == [PubRec(1), PubComp(1)]
    client.cut()
    again = world.connect("c", clean_start=False)
    assert [(p.payload, p.dup) for p in again.take_publishes()] == [(b"x", True)]


@pytest.mark.parametrize(("qos", "answer"), [(1, PubAck), (2, PubRec)])
@pytest.mark.parametrize("shared", [False, True])
def test_a_message_that_the_client_refuses_is_not_sent_again(world: Any, qos: int, answer: Any, shared: bool) -> None:
    """Not to it [MQTT-4.4.0-2], and not to another member of its group [MQTT-4.8.2-6]."""
    topic_filter = b"$share/g/a" if shared else b"a"
    clients = [world.connect(name, expiry=100, auto=False) for name in ("c", "d")][: 2 if shared else 1]
    for client in clients:
        client.subscribe(topic_filter)
    world.publish(b"a", qos=qos)
    (receiver,) = [client for client in clients if client.packets]
    (publish,) = receiver.take_publishes()
    receiver.send(answer(publish.packet_id, 0x80))
    receiver.cut()
    assert [client.packets for client in clients] == [[]] * len(clients)
    assert world.connect(receiver.connection.client_id, clean_start=False).packets == []


@pytest.mark.parametrize(
    ("topic_filter", "topic"), [(b"a", b"A"), (b"a/b", b"a//b"), (b"/a", b"a"), ("é".encode(), "e\u0301".encode())]
)
def test_topics_are_not_normalized(world: Any, topic_filter: bytes, topic: bytes) -> None:
    """Topics are equal when their bytes are [MQTT-4.7.3-4]."""
    client = world.connect("c")
    client.subscribe(topic_filter)
    world.publish(topic)
    world.publish(topic_filter)
    assert [publish.topic for publish in client.take_publishes()] == [topic_filter]


@pytest.mark.parametrize(
    ("name", "version", "data"),
    [
        ("will topic", 5, b"\x10\x14\0\x04MQTT\x05\x06\0\0\0\0\x01c\0\0\x01\xff\0\x00"),
        ("response topic", 5, b"\x30\x08\0\x01a\x04\x08\0\x01\xff"),
        ("user property", 5, b"\x30\x0b\0\x01a\x07\x26\0\x01k\0\x01\xff"),
        ("filter of UNSUBSCRIBE", 5, b"\xa2\x06\0\x01\0\0\x01\xff"),
        ("filter of SUBSCRIBE", 5, b"\x82\x07\0\x01\0\0\x01\xff\0"),
        ("will topic", 4, b"\x10\x12\0\x04MQTT\x04\x06\0\0\0\x01c\0\x01\xff\0\x00"),
        ("topic", 4, b"\x30\x03\0\x01\xff"),
        ("filter of UNSUBSCRIBE", 4, b"\xa2\x05\0\x01\0\x01\xff"),
        ("filter of SUBSCRIBE", 4, b"\x82\x06\0\x01\0\x01\xff\0"),
    ],
)
def test_strings_of_ill_formed_utf8(world: Any, name: str, version: int, data: bytes) -> None:
    """[MQTT-1.5.4-1] [MQTT-1.5.7-1] [MQTT-1.5.3-1]: Malformed Packet, in each packet that has a string. The same packet with
    a good string is accepted."""
    for damaged in (True, False):
        client = world.open(version) if data[0] == 0x10 else world.connect("c", version)
        client.send_bytes(data if damaged else data.replace(b"\xff", b"x"))
        assert client.closed is damaged, name
        codes = [packet.reason_code for packet in client.packets if isinstance(packet, ConnAck | Disconnect)]
        expected = [0x81] if version == 5 else []
        assert codes == (expected if damaged else [0] * (data[0] == 0x10)), name


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("retain", [False, True])
def test_a_will_is_retained_when_it_says_so(world: Any, version: int, retain: bool) -> None:
    """Will Retain [MQTT-3.1.2-14] [MQTT-3.1.2-15], in MQTT 3.1.1 [MQTT-3.1.2-16] [MQTT-3.1.2-17]."""
    world.connect("c", version, will=Will(b"w", b"gone", retain=retain)).cut()
    assert world.broker.counters.wills_published == 1
    assert len(world.broker.retained) == int(retain)


def test_user_properties_of_a_will_keep_their_order(world: Any) -> None:
    """As they came [MQTT-3.1.3-10]."""
    block = b"".join(b"\x26\0\x01" + key + b"\0\x01v" for key in (b"b", b"a", b"b"))
    watcher = world.connect("watcher")
    watcher.subscribe(b"w")
    world.connect("c", will=Will(b"w", b"", properties=block)).cut()
    assert [publish.properties for publish in watcher.take_publishes()] == [block]


@pytest.mark.parametrize("version", VERSIONS)
def test_retained_messages_outlive_the_session_of_their_publisher(world: Any, version: int) -> None:
    """[MQTT-3.1.2-7] of MQTT 3.1.1: they are no part of the Session State."""
    client = world.connect("c", version)
    client.publish(b"a", b"kept", retain=True)
    client.disconnect()
    assert "c" not in world.broker.sessions
    watcher = world.connect("watcher", version)
    watcher.subscribe(b"a")
    packets: list[Packet] = watcher.take_publishes()
    assert [(p.payload, p.retain) for p in packets if isinstance(p, Publish)] == [(b"kept", True)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_without_a_will_leaves_none(world: Any, version: int) -> None:
    """Will Flag 0 [MQTT-3.1.2-12]."""
    watcher = world.connect("watcher")
    watcher.subscribe(b"#", b"$SYS/#")
    world.connect("c", version).cut()
    world.advance(100.0)
    assert watcher.packets == []
    assert world.broker.counters.wills_published == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_the_retain_flag(world: Any, version: int) -> None:
    """1 for a new subscription, 0 for one that is there; MQTT 3.1.1 has no Retain As Published [MQTT-3.3.1-8]
    [MQTT-3.3.1-9]."""
    established = world.connect("established", version)
    established.subscribe(b"a")
    world.publish(b"a", b"x", retain=True)
    late = world.connect("late", version)
    late.subscribe(b"a")
    assert [publish.retain for publish in established.take_publishes()] == [False]
    assert [publish.retain for publish in late.take_publishes()] == [True]


@pytest.mark.parametrize("version", VERSIONS)
def test_acknowledgements_keep_the_order_of_their_packets(world: Any, version: int) -> None:
    """PUBACK [MQTT-4.6.0-2], PUBREC [MQTT-4.6.0-3] and PUBREL [MQTT-4.6.0-4], whatever the packet identifiers are."""
    world.connect("receiver").subscribe(b"t")
    client = world.connect("c", version, auto=False)
    client.subscribe(b"a")
    for number in range(5):
        world.publish(b"a", b"%d" % number, qos=2)
    sent = [publish.packet_id for publish in client.take_publishes()]
    packets: list[Packet] = [Publish(b"t", b"", 1 + number % 2, packet_id=100 - number) for number in range(10)]
    packets += [PubRec(packet_id) for packet_id in reversed(sent)]
    client.send_bytes(b"".join(encode_packet(packet, version) for packet in packets))
    kinds = (PubAck, PubRec)
    assert client.packets == [
        *(kinds[number % 2](100 - number) for number in range(10)),
        *(PubRel(packet_id) for packet_id in reversed(sent)),
    ]


@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_shared_subscription_has_the_granted_qos(world: Any, granted: int) -> None:
    """It is respected [MQTT-4.8.2-3]."""
    client = world.connect("c")
    assert client.subscribe(b"$share/g/a", qos=granted) == [granted]
    for qos in (0, 1, 2):
        world.publish(b"a", qos=qos)
    assert [publish.qos for publish in client.take_publishes()] == [min(qos, granted) for qos in (0, 1, 2)]
