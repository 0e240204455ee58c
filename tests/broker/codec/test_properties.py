"""Properties of MQTT 5: where they are allowed, and what the server forwards."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.codec import packets as p
from broker.codec import properties as props
from broker.codec.packets import Publish
from broker.codec.properties import (
    are_user_properties,
    decode_properties,
    encode_publish_properties,
    scan_publish_properties,
)
from broker.codec.reader import PUBLISH_PROPERTIES_BYTES_MAX
from broker.codec.wire import encode_string
from broker.errors import MqttError

PROTOCOL_ERROR = 0x82
MALFORMED = 0x81


@pytest.mark.parametrize(
    ("data", "packet_type", "reason_code"),
    [
        ("210001", p.CONNECT, 0),
        ("210000", p.CONNECT, PROTOCOL_ERROR),  # Receive Maximum 0
        ("2100", p.CONNECT, MALFORMED),
        ("210001210001", p.CONNECT, PROTOCOL_ERROR),  # twice
        ("2600016b000176" * 2, p.CONNECT, 0),  # a User Property may repeat
        ("230001", p.CONNECT, PROTOCOL_ERROR),  # Topic Alias is not allowed in CONNECT
        ("1702", p.CONNECT, PROTOCOL_ERROR),  # a boolean is 0 or 1
        ("0b00", p.SUBSCRIBE, PROTOCOL_ERROR),  # Subscription Identifier 0
        ("7f", p.CONNECT, MALFORMED),
    ],
)
def test_the_table(data: str, packet_type: int, reason_code: int) -> None:
    encoded = bytes.fromhex(data)
    if reason_code == 0:
        decode_properties(encoded, 0, len(encoded), packet_type)
        return
    with pytest.raises(MqttError) as caught:
        decode_properties(encoded, 0, len(encoded), packet_type)
    assert caught.value.reason_code == reason_code, caught.value.text


def test_a_publish_keeps_forwarded_properties() -> None:
    """Topic Alias, Subscription Identifier and Message Expiry Interval belong to this connection."""
    forwarded = bytes.fromhex("0101030001612600016b000176")
    data = bytes.fromhex("0101230007030001610b0502000000092600016b000176")
    publish = Publish(b"t", b"")
    assert scan_publish_properties(publish, data, 0, len(data)) == -1
    assert publish.properties == forwarded
    assert (publish.topic_alias, publish.message_expiry_interval, publish.subscription_identifiers) == (7, 9, (5,))


def test_as_many_subscription_identifiers_as_a_publish_may_have() -> None:
    """They take linear time: copied again for each one, they took minutes."""
    pair = bytes.fromhex("2600016b000176")
    identifiers = tuple(range(1, 128))
    part = b"".join(b"\x0b%c" % identifier for identifier in identifiers)
    times = (PUBLISH_PROPERTIES_BYTES_MAX - 2 * len(pair)) // len(part)
    data = pair + part * times + pair
    publish = Publish(b"t", b"")
    scan_publish_properties(publish, data, 0, len(data))
    assert publish.subscription_identifiers == identifiers * times
    assert publish.properties == pair * 2


@given(
    data=st.lists(
        st.sampled_from(
            [b"\x26", b"\0", b"\1", b"\2", b"k", b"\xc3\xbc", b"\x80", b"\x26\0\1k\0\2vv", b"\x01\1", b"v" * 256]
        ),
        max_size=8,
    ).map(b"".join)
)
@example(b"\x26\0\1k\0\1\0")  # U+0000
@example(b"\x26\0\0\0\0" * 2)
@example(b"\x26\1\0" + b"k" * 256 + b"\0\0")
@example(b"\x26\0\1k")
def test_user_properties_are_checked_alike_alone_and_beside_others(data: bytes) -> None:
    """A Content Type in front changes neither what is refused nor what is forwarded."""
    content_type = b"\x03\0\1t"
    found: list[bytes | None] = []
    for before in (b"", content_type):
        publish = Publish(b"t", b"")
        try:
            scan_publish_properties(publish, before + data, 0, len(before + data))
        except MqttError:
            found.append(None)
        else:
            found.append(publish.properties.removeprefix(before))
    assert found[0] == found[1]


def test_a_header_of_links_is_no_usual_property() -> None:
    def pair(name: bytes) -> bytes:
        return b"\x26" + encode_string(name) + encode_string(b"1")

    for names, expected in ((b"gmqttd-lin gmqttd-lime", True), (b"k gmqttd-link", False)):
        block = b"".join(pair(name) for name in names.split())
        assert are_user_properties(block, 0, len(block)) == expected


def test_the_delay_of_a_will() -> None:
    delay = bytes.fromhex("180000000a")
    assert scan_publish_properties(Publish(b"t", b""), delay, 0, 5, is_will=True) == 10
    with pytest.raises(MqttError):
        scan_publish_properties(Publish(b"t", b""), delay, 0, 5)


@pytest.mark.parametrize(
    "values",
    [
        {"payload_format": 2},
        {"response_topic": b"a/#"},
        {"content_type": "a\0"},
        {"content_type": "\ud800"},
        {"content_type": "x" * 65_536},
        {"correlation_data": bytes(65_536)},
        {"user_properties": [("k", "\0")]},
    ],
)
def test_values_that_mqtt_cannot_carry(values: dict[str, object]) -> None:
    with pytest.raises(MqttError):
        encode_publish_properties(**values)  # type: ignore[arg-type]


def test_names() -> None:
    assert props.property_id(props.property_name(props.REASON_STRING)) == props.REASON_STRING
    assert props.property_name(0x7F) == "property 0x7f"
    with pytest.raises(KeyError):
        props.property_id("Reason")
