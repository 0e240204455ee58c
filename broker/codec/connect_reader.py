"""Bytes -> CONNECT and CONNACK [MQTT5 3.1, 3.2]."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.codec.packets import MQTT_5, MQTT_31, MQTT_311, ConnAck, Connect, Properties, Publish, Will
from broker.codec.properties import (
    AUTHENTICATION_DATA,
    AUTHENTICATION_METHOD,
    decode_properties,
    properties_end,
    scan_publish_properties,
)
from broker.codec.reason_codes import (
    CLIENT_IDENTIFIER_NOT_VALID,
    CONNACK_V3_REASONS,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from broker.codec.wire import decode_binary, decode_string, decode_uint16
from broker.errors import MalformedPacket, MqttError, ProtocolViolation
from broker.routing.names import check_topic_name

_BRIDGE: Final = 0x80  # of the protocol level
_CLEAN_START: Final = 0x02
_WILL: Final = 0x04
_WILL_QOS: Final = 0x18
_WILL_RETAIN: Final = 0x20
_PASSWORD: Final = 0x40
_USER_NAME: Final = 0x80

_CONNACK_CODES: Final = (
    b"\x00\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8c\x90\x95\x97\x99\x9a\x9b\x9c\x9d\x9f"  # [MQTT5 table 3-1]
)


def peek_protocol_version(data: bytes, start: int, end: int) -> int:
    """The protocol level for the refusal of a CONNECT that cannot be decoded: 5 for level 5 and above, else 4. Clients of
    every 3.x version read the CONNACK of level 4."""
    if data[start : min(end, start + 6)] == b"\0\4MQTT" and start + 6 < end and data[start + 6] & ~_BRIDGE >= MQTT_5:
        return MQTT_5
    return MQTT_311


def decode_connect(first: int, data: bytes, start: int, end: int) -> Connect:
    """CONNECT [MQTT5 3.1]; `first` is its first byte. The error is 0x84 for an unknown protocol or level, 0x85 for an invalid
    client identifier. Levels 0x83, 0x84 and 0x85 are those of bridges of mosquitto (`try_private`). What is unused or reserved
    in MQTT 3.1 may have any value there: the flags of the fixed header and the lowest Connect Flag [MQTT3.1 3.1]."""
    protocol_name = decode_binary(data, start, end)
    pos = start + 2 + len(protocol_name)
    if pos + 4 > end:
        raise MalformedPacket("CONNECT ends inside its variable header")
    level = data[pos]
    version = level & ~_BRIDGE
    if not (protocol_name == b"MQTT" and version in (MQTT_311, MQTT_5)) and not (
        protocol_name == b"MQIsdp" and version == MQTT_31
    ):
        raise MqttError(
            UNSUPPORTED_PROTOCOL_VERSION,
            f"protocol {protocol_name[:16]!a} level {level}; MQTT 4 and 5 and MQIsdp 3 are supported "
            "[MQTT-3.1.2-1] [MQTT-3.1.2-2]",
        )
    if first & 15 and version != MQTT_31:
        raise MalformedPacket(f"CONNECT with fixed header flags {first & 15:#06b} [MQTT-2.1.3-1] [MQTT-2.2.2-2]")
    flags = data[pos + 1]
    _check_connect_flags(flags, version)
    keep_alive = data[pos + 2] << 8 | data[pos + 3]
    pos += 4
    properties: Properties = {}
    if version == MQTT_5:
        pos, stop = properties_end(data, pos, end)
        properties = decode_properties(data, pos, stop, 1)
        pos = stop
        if AUTHENTICATION_DATA in properties and AUTHENTICATION_METHOD not in properties:
            raise ProtocolViolation("Authentication Data without Authentication Method [MQTT5 3.1.2.11.10]")
    client_id = decode_string(data, pos, end)
    pos += 2 + len(client_id)
    if not client_id and version != MQTT_5 and (version == MQTT_31 or not flags & _CLEAN_START):
        raise MqttError(
            CLIENT_IDENTIFIER_NOT_VALID, "empty client identifier without Clean Session [MQTT-3.1.3-7] [MQTT-3.1.3-8]"
        )
    will: Will | None = None
    if flags & _WILL:
        # Will properties are those of a PUBLISH and the Will Delay Interval.
        publish = Publish(b"", b"", flags >> 3 & 3, flags & _WILL_RETAIN != 0)
        delay_interval = -1
        if version == MQTT_5:
            pos, stop = properties_end(data, pos, end)
            delay_interval = scan_publish_properties(publish, data, pos, stop, True)
            pos = stop
        publish.topic = decode_string(data, pos, end)
        pos += 2 + len(publish.topic)
        check_topic_name(publish.topic)
        publish.payload = decode_binary(data, pos, end)
        pos += 2 + len(publish.payload)
        will = Will(
            publish.topic,
            publish.payload,
            publish.qos,
            publish.retain,
            publish.properties,
            None if publish.message_expiry_interval < 0 else publish.message_expiry_interval,
            max(delay_interval, 0),
        )
    username: str | None = None
    if version == MQTT_31 and pos == end:
        flags &= ~(_USER_NAME | _PASSWORD)  # in MQTT 3.1 the Remaining Length decides, not the flags
    if flags & _USER_NAME:
        name = decode_string(data, pos, end)
        pos += 2 + len(name)
        username = name.decode()
    password: bytes | None = None
    if flags & _PASSWORD and not (version == MQTT_31 and pos == end):
        password = decode_binary(data, pos, end)
        pos += 2 + len(password)
    if pos != end:
        raise MalformedPacket(f"CONNECT with {end - pos} bytes after its last field")
    return Connect(
        client_id.decode(),
        version,
        flags & _CLEAN_START != 0,
        keep_alive,
        username,
        password,
        will,
        properties,
        level & _BRIDGE != 0,
    )


def _check_connect_flags(flags: int, version: int) -> None:
    """The Connect Flags [MQTT5 3.1.2.3]."""
    if flags & 1 and version != MQTT_31:
        raise MalformedPacket("CONNECT with its reserved flag set [MQTT-3.1.2-3]")
    if not flags & _WILL:
        if flags & (_WILL_QOS | _WILL_RETAIN):
            raise MalformedPacket("CONNECT with Will QoS or Will Retain but no will [MQTT-3.1.2-11/13/15]")
    elif flags & _WILL_QOS == _WILL_QOS:
        raise MalformedPacket("CONNECT with Will QoS 3, may be 0, 1 or 2 [MQTT-3.1.2-12] [MQTT-3.1.2-14]")
    if version != MQTT_5 and flags & _PASSWORD and not flags & _USER_NAME:
        raise MalformedPacket("CONNECT with a password but no user name [MQTT-3.1.2-22]")


def decode_connack(data: bytes, start: int, end: int, version: int) -> ConnAck:
    """CONNACK [MQTT5 3.2]; the return codes of MQTT 3.1.1 become reason codes."""
    code = decode_uint16(data, start, end) & 255
    flags = data[start]
    if flags > 1:
        raise MalformedPacket("CONNACK with reserved flags set [MQTT-3.2.2-1]")
    if flags and code:
        raise ProtocolViolation("CONNACK with Session Present and a refusal [MQTT-3.2.2-4] [MQTT-3.2.2-6]")
    if version != MQTT_5:
        if end - start != 2:
            raise MalformedPacket(f"CONNACK of {end - start} bytes, must be 2")
        if code >= len(CONNACK_V3_REASONS):
            raise ProtocolViolation(f"CONNACK with return code {code}, may be 0 to 5 [MQTT3.1.1 table 3.1]")
        return ConnAck(flags == 1, CONNACK_V3_REASONS[code])
    if code not in _CONNACK_CODES:
        raise ProtocolViolation(f"CONNACK with reason code 0x{code:02x}, which it cannot have [MQTT5 table 3-1]")
    pos, stop = properties_end(data, start + 2, end)
    if stop != end:
        raise MalformedPacket(f"CONNACK with {end - stop} bytes after its properties")
    return ConnAck(flags == 1, code, decode_properties(data, pos, stop, 2))
