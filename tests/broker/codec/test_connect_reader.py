"""CONNECT: the version of a refusal, and the Connect Flags [MQTT5 3.1.2.3]."""

import pytest

from broker.codec.connect_reader import decode_connect, peek_protocol_version
from broker.errors import MalformedPacket, MqttError


def connect(name: bytes, level: int, flags: int, rest: bytes = b"") -> bytes:
    return len(name).to_bytes(2, "big") + name + bytes((level, flags, 0, 10)) + rest


@pytest.mark.parametrize(
    ("data", "version"),
    [
        (connect(b"MQTT", 5, 2), 5),
        (connect(b"MQTT", 6, 2), 5),
        (connect(b"MQTT", 0x86, 2), 5),
        (connect(b"MQTT", 0x84, 2), 4),
        (connect(b"MQTT", 4, 2), 4),
        (connect(b"MQIsdp", 3, 2), 4),
        (connect(b"XXXX", 3, 2), 4),
        (b"\x00\x04MQTT", 4),
        (b"\xff\xff", 4),
        (b"", 4),
    ],
)
def test_the_version_of_a_refusal(data: bytes, version: int) -> None:
    assert peek_protocol_version(data, 0, len(data)) == version


@pytest.mark.parametrize(
    ("name", "level", "version"),
    [(b"MQIsdp", 0x83, 3), (b"MQTT", 0x84, 4), (b"MQTT", 0x85, 5), (b"MQTT", 0x83, 0), (b"MQIsdp", 0x84, 0)],
)
def test_a_bridge_of_mosquitto_has_a_bit_in_its_protocol_level(name: bytes, level: int, version: int) -> None:
    data = connect(name, level, 2, (b"\x00" if version == 5 else b"") + CLIENT)
    if not version:
        with pytest.raises(MqttError, match=f"level {level};"):
            decode_connect(0x10, data, 0, len(data))
        return
    packet = decode_connect(0x10, data, 0, len(data))
    assert (packet.protocol_version, packet.is_bridge) == (version, True)


CLIENT = b"\x00\x01c"
WILL = b"\x00\x01w\x00\x00"


@pytest.mark.parametrize(
    ("level", "flags", "rest", "reason_code"),
    [
        (4, 0x02, CLIENT, 0),
        (4, 0x03, CLIENT, 0x81),  # the reserved flag
        (4, 0x0A, CLIENT, 0x81),  # Will QoS without a will
        (4, 0x22, CLIENT, 0x81),  # Will Retain without a will
        (4, 0x1E, CLIENT + WILL, 0x81),  # Will QoS 3
        (4, 0x16, CLIENT + WILL, 0),
        (4, 0x42, CLIENT + WILL, 0x81),  # a password without a user name, which MQTT 5 allows
        (5, 0x42, b"\x00" + CLIENT + b"\x00\x01p", 0),
        (4, 0x00, b"\x00\x00", 0x85),  # no client identifier and no Clean Session
        (4, 0x02, b"\x00\x00", 0),
        (5, 0x00, b"\x00\x00\x00", 0),
        (7, 0x02, CLIENT, 0x84),
        (4, 0x02, CLIENT + b"?", 0x81),  # a byte after the last field
    ],
)
def test_flags_and_fields(level: int, flags: int, rest: bytes, reason_code: int) -> None:
    data = connect(b"MQTT", level, flags, rest)
    if reason_code == 0:
        packet = decode_connect(0x10, data, 0, len(data))
        assert (packet.protocol_version, packet.is_bridge) == (level, False)
        assert packet.clean_start is (flags & 2 == 2)
        assert (packet.will is not None) is (flags & 4 == 4)
        return
    with pytest.raises(MqttError) as caught:
        decode_connect(0x10, data, 0, len(data))
    assert caught.value.reason_code == reason_code, caught.value.text


@pytest.mark.parametrize("first", [0x10, 0x11, 0x12, 0x14, 0x18, 0x1F])
@pytest.mark.parametrize("flags", [0x02, 0x03])
@pytest.mark.parametrize("level", [3, 4, 5])
def test_reserved_bits_of_mqtt_31(level: int, flags: int, first: int) -> None:
    """Any value is let in there, and none but zero in the later versions [MQTT-3.1.2-3] [MQTT-2.2.2-2]."""
    data = connect(b"MQIsdp" if level == 3 else b"MQTT", level, flags, (b"\x00" if level == 5 else b"") + CLIENT)
    if level == 3 or (flags == 2 and first == 0x10):
        assert decode_connect(first, data, 0, len(data)).client_id == "c"
        return
    with pytest.raises(MalformedPacket):
        decode_connect(first, data, 0, len(data))
