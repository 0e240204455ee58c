"""CONNECT and CONNACK [MQTT5 3.1, 3.2], session present, take-over, the close and its reason code."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec import properties as props
from broker.codec.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    PingResp,
    Publish,
    SubAck,
    Subscribe,
    SubscribeFilter,
    UnsubAck,
    Unsubscribe,
    Will,
)
from broker.codec.writer import encode_packet
from broker.hooks import ClientObserver

CONNECT_5 = encode_packet(Connect("c", 5), 5)
CONNECT_4 = encode_packet(Connect("c", 4), 4)


@pytest.mark.parametrize(
    ("name", "data", "return_code"),
    [
        ("first packet is not CONNECT [MQTT-3.1.0-1]", b"\xc0\x00", -1),
        ("first packet is PUBLISH [MQTT-3.1.0-1]", b"\x30\x03\x00\x01a", -1),
        ("another protocol, told by its first byte", b"GE", -1),
        ("type 0", b"\0\0", -1),
        ("TLS", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", -1),
        ("level 6 [MQTT-3.1.2-2]", b"\x10\x0d\0\x04MQTT\x06\x02\0\0\0\0\x01c", 0x84),
        ("3.1.1 level 2 [MQTT-3.1.2-2]", b"\x10\x0d\0\x04MQTT\x02\x02\0\0\0\x01c\0", 1),
        ("unknown protocol name [MQTT-3.1.2-1]", b"\x10\x0d\0\x04MQTX\x04\x02\0\0\0\x01c\0", 1),
        ("3.1.1 empty client id with session [MQTT-3.1.3-8]", b"\x10\x0c\0\x04MQTT\x04\0\0\0\0\0", 2),
        ("3.1 empty client id", b"\x10\x0e\0\x06MQIsdp\x03\x02\0\0\0\0", 2),
        ("3.1.1 reserved flag: closed only [MQTT-3.1.2-3]", b"\x10\x0d\0\x04MQTT\x04\x03\0\0\0\x01c", -1),
        ("5 reserved flag [MQTT-3.1.2-3]", b"\x10\x0e\0\x04MQTT\x05\x03\0\0\0\0\x01c", 0x81),
        ("5 receive maximum 0 [MQTT5 3.1.2.11.3]", b"\x10\x11\0\x04MQTT\x05\x02\0\0\x03\x21\0\0\0\x01c", 0x82),
        ("5 maximum packet size 0 [MQTT5 3.1.2.11.4]", b"\x10\x13\0\x04MQTT\x05\x02\0\0\x05\x27\0\0\0\0\0\x01c", 0x82),
        ("5 enhanced authentication [MQTT-4.12.0-1]", b"\x10\x12\0\x04MQTT\x05\x02\0\0\x04\x15\0\x01x\0\x01c", 0x8C),
        ("5 will topic with a wildcard", encode_packet(Connect("c", 5, will=Will(b"a/#", b"")), 5), 0x90),
        ("CONNECT of a megabyte", b"\x10\x80\x80\x40", -1),
    ],
)
def test_a_first_packet_that_is_refused(world: Any, name: str, data: bytes, return_code: int) -> None:
    client = world.open(5 if b"MQTT\x05" in data else 4)
    client.connection.receive_data(data, world.now)
    sent = client.connection.take_output()
    assert client.closed, name
    if return_code < 0:
        assert sent == b""
    else:
        assert (sent[0], sent[2], sent[3]) == (0x20, 0, return_code)
        assert return_code >= 0x80 or len(sent) == 4
    assert world.broker.sessions == {}
    assert world.broker.counters.protocol_errors == 1
    assert world.broker.counters.connections_refused == 1


class Refusals(ClientObserver):
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def client_refused(self, client_id: str, addr: str, username: str, reason: str) -> None:
        self.reasons.append(reason)


def test_a_client_of_tls_is_named_as_one(world: Any) -> None:
    observer = Refusals()
    world.broker.add_observer(observer)
    world.open().connection.receive_data(b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", world.now)
    assert observer.reasons == ["the client speaks TLS, this listener does not"]


def test_a_connection_without_input_does_not_count_as_refused(world: Any) -> None:
    client = world.open(5)
    world.broker.connection_lost(client.connection, world.now)
    assert client.closed
    assert world.broker.counters.connections_refused == 0


@pytest.mark.parametrize(
    ("name", "version", "data", "reason_code"),
    [
        ("second CONNECT [MQTT-3.1.0-2]", 5, CONNECT_5, 0x82),
        ("second CONNECT [MQTT-3.1.0-2]", 4, CONNECT_4, -1),
        ("second CONNECT of another level", 5, b"\x10\x0d\0\x04MQTT\x06\x02\0\0\0\0\x01c", 0x82),
        ("AUTH that nobody asked for [MQTT5 4.12]", 5, encode_packet(Auth(0x19), 5), 0x82),
        ("AUTH in 3.1.1", 4, b"\xf0\x00", -1),
        ("packet of a server", 5, encode_packet(ConnAck(False), 5), 0x82),
        ("packet of a server", 5, b"\xd0\x00", 0x82),
        ("packet of a server", 5, encode_packet(SubAck(1, [0]), 5), 0x82),
        ("packet of a server", 5, encode_packet(UnsubAck(1, [0]), 5), 0x82),
        ("flags of PINGREQ [MQTT-2.1.3-1]", 5, b"\xc1\x00", 0x81),
        ("five bytes of remaining length [MQTT5 1.5.5]", 5, b"\x30\xff\xff\xff\xff\x01", 0x81),
        ("QoS 3 [MQTT-3.3.1-4]", 5, b"\x36\x06\0\x01a\0\x01\0", 0x81),
        ("DUP with QoS 0 [MQTT-3.3.1-2]", 5, b"\x38\x04\0\x01a\0", 0x81),
        ("packet id 0 [MQTT-2.2.1-3]", 5, b"\x32\x07\0\x01a\0\0\0x", 0x82),
        ("packet id 0 in 3.1.1 [MQTT-2.3.1-1]", 4, b"\x32\x06\0\x01a\0\0x", -1),
        ("wildcard in a topic [MQTT-3.3.2-2]", 5, b"\x30\x05\0\x01#\0x", 0x90),
        ("no topic and no alias [MQTT5 3.3.2.1]", 5, b"\x30\x03\0\0\0", 0x82),
        ("subscription identifier from a client [MQTT-3.3.4-6]", 5, b"\x30\x06\0\x01a\x02\x0b\x01", 0x82),
        ("SUBSCRIBE without filter [MQTT-3.8.3-2]", 5, b"\x82\x03\0\x01\0", 0x82),
        ("no local on a shared one [MQTT-3.8.3-4]", 5, b"\x82\x10\0\x01\0\0\x0a$share/g/t\x04", 0x82),
        ("DISCONNECT raises session expiry [MQTT-3.14.2-2]", 5, b"\xe0\x07\0\x05\x11\0\0\0\x05", 0x82),
    ],
)
def test_a_fault_of_a_connected_client(world: Any, name: str, version: int, data: bytes, reason_code: int) -> None:
    """Error handling [MQTT5 4.13]: DISCONNECT with the reason in MQTT 5, only the close in 3.1.1."""
    client = world.connect("c", version)
    client.send_bytes(data + b"\xc0\x00")
    assert client.closed, name
    if reason_code < 0:
        assert client.packets == []
    else:
        assert [p.reason_code for p in client.packets] == [reason_code], client.packets
        assert isinstance(client.packets[0], Disconnect)
        assert client.packets[0].properties[props.REASON_STRING]
    assert "c" not in world.broker.sessions
    client.send_bytes(b"\xc0\x00")  # after the close nothing is looked at


def test_a_ping_is_answered(world: Any) -> None:
    client = world.connect()
    client.send(PingReq())
    assert client.packets == [PingResp()]


@pytest.mark.parametrize("flags", [0x82, 0xC2])
def test_mqtt_31_may_omit_user_name_and_password_that_its_flags_announce(world: Any, flags: int) -> None:
    """The remaining length goes before the flags of user name and password there."""
    client = world.open(3)
    client.send_bytes(b"\x10\x0f\0\x06MQIsdp\x03" + bytes((flags,)) + b"\0\0\0\1c")
    assert client.output == b"\x20\2\0\0"
    client = world.open(3)
    client.send_bytes(b"\x10\x12\0\x06MQIsdp\x03" + bytes((flags,)) + b"\0\0\0\1d\0\1u")
    assert client.output == b"\x20\2\0\0"
    assert world.broker.sessions["d"].username == "u"
    client = world.open(4)
    client.send_bytes(b"\x10\x0d\0\x04MQTT\x04" + bytes((flags,)) + b"\0\0\0\1e")
    assert client.closed


@pytest.mark.parametrize("version", [3, 4, 5])
def test_connack(world: Any, version: int) -> None:
    client = world.connect("c", version)
    assert client.connack is not None
    assert (client.connack.session_present, client.connack.reason_code) == (False, 0)
    if version < 5:
        assert client.output == b"\x20\x02\x00\x00"


def test_limits_are_announced(make_world: Any) -> None:
    """CONNACK tells each limit below that of the protocol [MQTT5 3.2.2.3]."""
    world = make_world(
        server_receive_maximum=7,
        topic_alias_maximum=3,
        max_packet_size=1000,
        maximum_qos=1,
        retain_available=False,
        wildcard_subscription_available=False,
        subscription_identifier_available=False,
        shared_subscription_available=False,
        max_keepalive=30,
        session_expiry=60.0,
    )
    client = world.open()
    connack = client.connect("", keep_alive=100, expiry=3600)
    assert connack.properties == {
        props.ASSIGNED_CLIENT_IDENTIFIER: connack.properties[props.ASSIGNED_CLIENT_IDENTIFIER],
        props.RECEIVE_MAXIMUM: 7,
        props.TOPIC_ALIAS_MAXIMUM: 3,
        props.MAXIMUM_PACKET_SIZE: 1000,
        props.MAXIMUM_QOS: 1,
        props.RETAIN_AVAILABLE: 0,
        props.WILDCARD_SUBSCRIPTION_AVAILABLE: 0,
        props.SUBSCRIPTION_IDENTIFIER_AVAILABLE: 0,
        props.SHARED_SUBSCRIPTION_AVAILABLE: 0,
        props.SERVER_KEEP_ALIVE: 30,
        props.SESSION_EXPIRY_INTERVAL: 60,
    }
    assert connack.properties[props.ASSIGNED_CLIENT_IDENTIFIER] in world.broker.sessions  # [MQTT-3.1.3-6]


@pytest.mark.parametrize(("size", "announced"), [(1000, 1000), (268_435_455, 268_435_455), (268_435_456, None)])
def test_a_maximum_packet_size_near_that_of_the_protocol_is_not_announced(
    make_world: Any, size: int, announced: int | None
) -> None:
    """paho-mqtt takes a larger value than 268435455 for a malformed packet."""
    properties = make_world(max_packet_size=size).connect("c").connack.properties
    assert properties.get(props.MAXIMUM_PACKET_SIZE) == announced


@pytest.mark.parametrize(
    ("name", "packet", "code"),
    [
        ("packet too large [MQTT-3.2.2-15]", Publish(b"a", bytes(1000)), 0x95),
        ("QoS above the maximum [MQTT-3.2.2-11]", Publish(b"a", b"", 1, packet_id=1), 0x9B),
        ("QoS 2 above the maximum [MQTT-3.2.2-11]", Publish(b"a", b"", 2, packet_id=1), 0x9B),
        ("retain off [MQTT-3.2.2-14]", Publish(b"a", b"x", 0, True), 0x9A),
        ("topic alias too high [MQTT-3.3.2-9]", Publish(b"a", b"x", topic_alias=4), 0x94),
        ("topic alias never set [MQTT-3.3.2-7]", Publish(b"", b"x", topic_alias=3), 0x94),
        ("too many levels", Publish(b"a/b/c/d", b"x"), 0x90),
    ],
)
def test_a_limit_that_is_ignored(make_world: Any, name: str, packet: Publish, code: int) -> None:
    limits = {"max_packet_size": 1000, "maximum_qos": 0, "retain_available": False, "topic_alias_maximum": 3}
    world = make_world(**limits, max_topic_levels=3)
    client = world.connect()
    client.send(packet)
    assert [p.reason_code for p in client.packets] == [code], name
    assert client.closed


@pytest.mark.parametrize(
    ("will", "limits", "reason_code", "return_code"),
    [
        (Will(b"w", b"", 2), {"maximum_qos": 1}, 0x9B, 3),
        (Will(b"w", b"", 0, True), {"retain_available": False}, 0x9A, 3),
        (Will(b"a/b/c", b""), {"max_topic_levels": 2}, 0x90, 3),
        (None, {"allow_zero_length_clientid": False}, 0x85, 2),
    ],
)
@pytest.mark.parametrize("version", [4, 5])
def test_a_connect_that_is_refused(
    make_world: Any, version: int, will: Will | None, limits: dict[str, Any], reason_code: int, return_code: int
) -> None:
    """[MQTT-3.2.2-12] [MQTT-3.2.2-13] [MQTT-3.1.3-8] [MQTT3.1.1 table 3.1]."""
    world = make_world(**limits)
    client = world.open(version)
    client.connect("" if will is None else "c", will=will)
    assert client.closed
    assert client.output[3] == (reason_code if version == 5 else return_code)
    assert world.broker.sessions == {}


@pytest.mark.parametrize(
    ("version", "first", "seconds_away", "second", "present"),
    [
        (5, {"clean_start": True}, 1, {"clean_start": False}, False),
        (5, {"expiry": 100}, 1, {"clean_start": False}, True),
        (5, {"expiry": 100}, 99, {"clean_start": False}, True),
        (5, {"expiry": 100}, 100.01, {"clean_start": False}, False),
        (5, {"expiry": 100}, 1, {"clean_start": True}, False),
        (5, {"expiry": 0xFFFFFFFF}, 7000, {"clean_start": False}, True),
        (5, {"expiry": 0xFFFFFFFF}, 7201, {"clean_start": False}, False),  # session_expiry is 2h
        (4, {"clean_start": True}, 1, {"clean_start": False}, False),
        (4, {"clean_start": False}, 1, {"clean_start": False}, True),
        (4, {"clean_start": False}, 7199, {"clean_start": False}, True),
        (4, {"clean_start": False}, 7201, {"clean_start": False}, False),
        (4, {"clean_start": False}, 1, {"clean_start": True}, False),
    ],
)
def test_session_present(
    world: Any, version: int, first: dict[str, Any], seconds_away: float, second: dict[str, Any], present: bool
) -> None:
    """[MQTT-3.1.2-4..6] [MQTT-3.2.2-2] [MQTT-3.2.2-3]; a session is over when its interval has passed [MQTT-3.1.2-23]."""
    client = world.connect("c", version, **first)
    client.subscribe(b"a")
    client.disconnect()
    if seconds_away > 7200:
        world.advance(seconds_away)
    else:
        world.now += seconds_away  # also when no timer came yet
    again = world.connect("c", version, **second)
    assert again.connack is not None
    assert again.connack.session_present is present
    assert (b"a" in world.broker.sessions["c"].subscriptions) is present
    assert len(world.broker.router.tree) == int(present)


def test_session_present_is_no_bit_of_mqtt_31(world: Any) -> None:
    world.connect("c", 3, clean_start=False).disconnect()
    again = world.connect("c", 3, clean_start=False)
    assert again.output == b"\x20\x02\x00\x00"
    assert world.broker.counters.sessions_resumed == 1


@pytest.mark.parametrize(
    ("expiry", "at_disconnect", "seconds_away", "present"),
    [(100, None, 101, False), (100, 0, 0, False), (100, 200, 150, True), (100, 0xFFFFFFFF, 7000, True)],
)
def test_disconnect_changes_the_session_expiry(
    world: Any, expiry: int, at_disconnect: int | None, seconds_away: float, present: bool
) -> None:
    """The server's limit holds here too [MQTT5 3.14.2.2.2]."""
    client = world.connect("c", expiry=expiry)
    client.disconnect(expiry=at_disconnect)
    world.advance(seconds_away)
    assert ("c" in world.broker.sessions) is present
    world.advance(7300 - seconds_away)
    assert "c" not in world.broker.sessions


@pytest.mark.parametrize("version", [4, 5])
def test_take_over(world: Any, version: int) -> None:
    """[MQTT-3.1.4-3]: the old connection gets 0x8E (MQTT 5) and is closed; the new one has the session."""
    old = world.connect("c", version, clean_start=False, **({"expiry": 60} if version == 5 else {}))
    old.subscribe(b"a")
    new = world.connect("c", version, clean_start=False, **({"expiry": 60} if version == 5 else {}))
    assert old.closed
    assert [p.reason_code for p in old.packets] == ([0x8E] if version == 5 else [])
    assert new.connack is not None
    assert new.connack.session_present
    assert world.broker.counters.connections_taken_over == 1
    old.cut()  # the shell reports the end of the old socket later
    world.publish(b"a", b"hello")
    assert new.take_payloads() == [b"hello"]
    assert world.broker.sessions["c"].connection is new.connection


@pytest.mark.parametrize(("version", "code"), [(4, 3), (5, 0x97)])
def test_sessions_are_bounded(make_world: Any, version: int, code: int) -> None:
    """One client under ever new identifiers; who has a session already comes and goes."""
    world = make_world(max_sessions=2)
    for name in ("a", "b"):
        world.connect(name, version, clean_start=False, expiry=60 if version == 5 else None).cut()
    refused = world.open(version)
    refused.connect("c")
    assert refused.output[3] == code
    assert refused.closed
    assert world.connect("a", version, clean_start=False).connack.session_present
    assert world.connect("b", version, clean_start=True).connack.reason_code == 0
    assert list(world.broker.sessions) == ["a", "b"]


def test_take_over_ends_a_session_without_expiry(world: Any) -> None:
    old = world.connect("c", expiry=0)
    old.subscribe(b"a")
    new = world.connect("c", clean_start=False, expiry=60)
    assert new.connack is not None
    assert not new.connack.session_present
    assert world.broker.local_interest() == []


def test_an_administrator_disconnects(world: Any) -> None:
    client = world.connect("c", expiry=60)
    assert world.broker.close_client("c", False, world.now)
    world.flush()
    assert [p.reason_code for p in client.packets] == [0x98]
    assert "c" in world.broker.sessions
    assert world.broker.close_client("c", True, world.now)
    assert "c" not in world.broker.sessions
    assert not world.broker.close_client("c", True, world.now)


def test_shut_down(world: Any) -> None:
    clients = [world.connect(name, version, clean_start=False) for name, version in (("a", 4), ("b", 5))]
    world.broker.shut_down(world.now)
    world.flush()
    assert all(client.closed for client in clients)
    assert [[p.reason_code for p in client.packets] for client in clients] == [[], [0x8B]]
    assert list(world.broker.sessions) == ["a"]


@pytest.mark.parametrize(
    ("maximum", "answer"), [(1, b""), (4, b""), (5, b"\x20\x03\0\x95\0"), (13, b"\x20\x03\0\x95\0")]
)
def test_a_client_that_cannot_take_its_connack(world: Any, maximum: int, answer: bytes) -> None:
    """[MQTT-3.1.2-24] and [MQTT-3.2.0-1]: it would get messages and acknowledgements before, or instead of, a CONNACK."""
    world.connect("c", clean_start=False, expiry=100).subscribe(b"a")
    client = world.open()
    client.connect("c", clean_start=False, expiry=100, properties={props.MAXIMUM_PACKET_SIZE: maximum})
    assert client.output == answer
    assert client.closed
    assert world.broker.sessions["c"].connection is not None  # nothing was taken over
    assert world.connect("d", properties={props.MAXIMUM_PACKET_SIZE: 14}).connack.reason_code == 0


def test_answers_above_the_maximum_packet_size_of_the_client(world: Any) -> None:
    """Nothing is subscribed or unsubscribed that the client is not told of; the close says why."""
    few, many = [b"%d" % number for number in range(10)], [b"%d" % number for number in range(50)]
    client = world.connect("c", expiry=100, properties={props.MAXIMUM_PACKET_SIZE: 40})
    assert client.subscribe(*few) == [2] * 10
    client.send(Subscribe(1, [SubscribeFilter(topic_filter) for topic_filter in many]))
    assert [p.reason_code for p in client.packets] == [0x95]
    assert client.closed
    assert list(world.broker.sessions["c"].subscriptions) == few
    client = world.connect("c", clean_start=False, expiry=100, properties={props.MAXIMUM_PACKET_SIZE: 40})
    client.send(Unsubscribe(1, many))
    assert [p.reason_code for p in client.packets] == [0x95]
    assert list(world.broker.sessions["c"].subscriptions) == few


@pytest.mark.parametrize(("version", "code"), [(4, 0x80), (5, 0x8F)])
def test_suback_codes(make_world: Any, version: int, code: int) -> None:
    """[MQTT-3.8.4-6]: a code for each filter, in order; 0x80 is the only failure of 3.1.1."""
    world = make_world(max_topic_levels=2, max_subscriptions_per_client=2, maximum_qos=1)
    client = world.connect("c", version)
    filters = [SubscribeFilter(f, 2) for f in (b"a/b/c", b"a", b"b", b"c", b"a")]
    assert client.subscribe(*filters) == [code, 1, 1, 0x97 if version == 5 else 0x80, 1]
    assert client.subscribe(b"a", qos=0) == [0]
    assert world.broker.counters.subscriptions_refused == 2
    assert client.unsubscribe(b"a", b"nobody") == ([0, 0x11] if version == 5 else [])
    assert client.subscribe(b"c") == [1]


@pytest.mark.parametrize(
    ("limits", "topic_filter", "code"),
    [
        ({"wildcard_subscription_available": False}, b"a/#", 0xA2),
        ({"shared_subscription_available": False}, b"$share/g/a", 0x9E),
    ],
)
def test_filters_that_the_settings_do_not_offer_are_refused(
    make_world: Any, limits: dict[str, bool], topic_filter: bytes, code: int
) -> None:
    world = make_world(**limits)
    assert world.connect("c").subscribe(topic_filter) == [code]
    assert world.connect("d", 4).subscribe(topic_filter) == [0x80]
    assert world.broker.local_interest() == []


def test_a_subscription_identifier_that_the_settings_do_not_offer_is_refused(make_world: Any) -> None:
    world = make_world(subscription_identifier_available=False)
    client = world.connect("c")
    client.send(Subscribe(1, [SubscribeFilter(b"a")], {props.SUBSCRIPTION_IDENTIFIER: 1}))
    assert [p.reason_code for p in client.packets] == [0xA1]


@pytest.mark.parametrize(("level", "is_bridge"), [(4, False), (0x84, True)])
def test_a_bridge_of_mosquitto_gets_retain_as_published_and_nothing_back(
    world: Any, level: int, is_bridge: bool
) -> None:
    data = bytearray(encode_packet(Connect("bridge", 4), 4))
    data[8] = level
    client = world.open(4)
    client.send_bytes(bytes(data))
    assert client.subscribe(b"a", b"$share/g/b", qos=1) == [1, 1]
    client.take_packets()
    client.publish(b"a", b"own")
    assert client.take_payloads() == ([] if is_bridge else [b"own"])
    world.publish(b"a", b"of another", retain=True)
    assert [(message.payload, message.retain) for message in client.take_publishes()] == [(b"of another", is_bridge)]
    client.publish(b"b", b"own")
    assert client.take_payloads() == [b"own"]  # shared filters have no No Local
