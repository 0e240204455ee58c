"""Properties of MQTT 5 [MQTT5 2.2.2]: their table, a dict codec, and a scan for PUBLISH and wills."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.codec.packets import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    Properties,
    PropertyValue,
    Publish,
)
from broker.codec.wire import (
    STRING_BYTES_MAX,
    check_utf8,
    decode_binary,
    decode_string,
    decode_uint16,
    decode_uint32,
    decode_varint,
    encode_string,
    encode_varint,
)
from broker.errors import MalformedPacket, MqttError, ProtocolViolation
from broker.origin import NAME as ORIGIN_NAME

ORIGIN_NAME_BYTES: Final = len(ORIGIN_NAME)
PAYLOAD_FORMAT_INDICATOR: Final = 0x01
MESSAGE_EXPIRY_INTERVAL: Final = 0x02
CONTENT_TYPE: Final = 0x03
RESPONSE_TOPIC: Final = 0x08
CORRELATION_DATA: Final = 0x09
SUBSCRIPTION_IDENTIFIER: Final = 0x0B
SESSION_EXPIRY_INTERVAL: Final = 0x11
ASSIGNED_CLIENT_IDENTIFIER: Final = 0x12
SERVER_KEEP_ALIVE: Final = 0x13
AUTHENTICATION_METHOD: Final = 0x15
AUTHENTICATION_DATA: Final = 0x16
REQUEST_PROBLEM_INFORMATION: Final = 0x17
WILL_DELAY_INTERVAL: Final = 0x18
REQUEST_RESPONSE_INFORMATION: Final = 0x19
RESPONSE_INFORMATION: Final = 0x1A
SERVER_REFERENCE: Final = 0x1C
REASON_STRING: Final = 0x1F
RECEIVE_MAXIMUM: Final = 0x21
TOPIC_ALIAS_MAXIMUM: Final = 0x22
TOPIC_ALIAS: Final = 0x23
MAXIMUM_QOS: Final = 0x24
RETAIN_AVAILABLE: Final = 0x25
USER_PROPERTY: Final = 0x26
MAXIMUM_PACKET_SIZE: Final = 0x27
WILDCARD_SUBSCRIPTION_AVAILABLE: Final = 0x28
SUBSCRIPTION_IDENTIFIER_AVAILABLE: Final = 0x29
SHARED_SUBSCRIPTION_AVAILABLE: Final = 0x2A

_BOOLEAN: Final = 0  # a byte that may be 0 or 1 only
_UINT16: Final = 1
_UINT32: Final = 2
_VARINT: Final = 3
_STRING: Final = 4
_BINARY: Final = 5
_PAIR: Final = 6
_POSITIVE_UINT16: Final = 7
_POSITIVE_UINT32: Final = 8
_POSITIVE_VARINT: Final = 9

_WILL: Final = 0  # will properties; no packet has type 0
_ACKS: Final = (PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK)

# id: (name, type, where it is allowed) [MQTT5 table 2-4]
_TABLE: Final[dict[int, tuple[str, int, tuple[int, ...]]]] = {
    PAYLOAD_FORMAT_INDICATOR: ("Payload Format Indicator", _BOOLEAN, (PUBLISH, _WILL)),
    MESSAGE_EXPIRY_INTERVAL: ("Message Expiry Interval", _UINT32, (PUBLISH, _WILL)),
    CONTENT_TYPE: ("Content Type", _STRING, (PUBLISH, _WILL)),
    RESPONSE_TOPIC: ("Response Topic", _STRING, (PUBLISH, _WILL)),
    CORRELATION_DATA: ("Correlation Data", _BINARY, (PUBLISH, _WILL)),
    SUBSCRIPTION_IDENTIFIER: ("Subscription Identifier", _POSITIVE_VARINT, (PUBLISH, SUBSCRIBE)),
    SESSION_EXPIRY_INTERVAL: ("Session Expiry Interval", _UINT32, (CONNECT, CONNACK, DISCONNECT)),
    ASSIGNED_CLIENT_IDENTIFIER: ("Assigned Client Identifier", _STRING, (CONNACK,)),
    SERVER_KEEP_ALIVE: ("Server Keep Alive", _UINT16, (CONNACK,)),
    AUTHENTICATION_METHOD: ("Authentication Method", _STRING, (CONNECT, CONNACK, AUTH)),
    AUTHENTICATION_DATA: ("Authentication Data", _BINARY, (CONNECT, CONNACK, AUTH)),
    REQUEST_PROBLEM_INFORMATION: ("Request Problem Information", _BOOLEAN, (CONNECT,)),
    WILL_DELAY_INTERVAL: ("Will Delay Interval", _UINT32, (_WILL,)),
    REQUEST_RESPONSE_INFORMATION: ("Request Response Information", _BOOLEAN, (CONNECT,)),
    RESPONSE_INFORMATION: ("Response Information", _STRING, (CONNACK,)),
    SERVER_REFERENCE: ("Server Reference", _STRING, (CONNACK, DISCONNECT)),
    REASON_STRING: ("Reason String", _STRING, (CONNACK, *_ACKS, DISCONNECT, AUTH)),
    RECEIVE_MAXIMUM: ("Receive Maximum", _POSITIVE_UINT16, (CONNECT, CONNACK)),
    TOPIC_ALIAS_MAXIMUM: ("Topic Alias Maximum", _UINT16, (CONNECT, CONNACK)),
    TOPIC_ALIAS: ("Topic Alias", _POSITIVE_UINT16, (PUBLISH,)),
    MAXIMUM_QOS: ("Maximum QoS", _BOOLEAN, (CONNACK,)),
    RETAIN_AVAILABLE: ("Retain Available", _BOOLEAN, (CONNACK,)),
    USER_PROPERTY: (
        "User Property",
        _PAIR,
        (CONNECT, CONNACK, PUBLISH, _WILL, *_ACKS, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT, AUTH),
    ),
    MAXIMUM_PACKET_SIZE: ("Maximum Packet Size", _POSITIVE_UINT32, (CONNECT, CONNACK)),
    WILDCARD_SUBSCRIPTION_AVAILABLE: ("Wildcard Subscription Available", _BOOLEAN, (CONNACK,)),
    SUBSCRIPTION_IDENTIFIER_AVAILABLE: ("Subscription Identifier Available", _BOOLEAN, (CONNACK,)),
    SHARED_SUBSCRIPTION_AVAILABLE: ("Shared Subscription Available", _BOOLEAN, (CONNACK,)),
}


def property_name(property_id: int) -> str:
    entry = _TABLE.get(property_id)
    return entry[0] if entry is not None else f"property 0x{property_id:02x}"


def property_id(name: str) -> int:
    """The id of a property's name in the specification; KeyError for an unknown one."""
    for number, entry in _TABLE.items():
        if entry[0] == name:
            return number
    raise KeyError(name)


def get_int(properties: Properties | None, property_id: int, default: int) -> int:
    """The value of a numeric property; booleans are 0 or 1."""
    value = properties.get(property_id) if properties else None
    return value if isinstance(value, int) else default


def get_str(properties: Properties | None, property_id: int) -> str | None:
    value = properties.get(property_id) if properties else None
    return value if isinstance(value, str) else None


def get_bytes(properties: Properties | None, property_id: int) -> bytes | None:
    value = properties.get(property_id) if properties else None
    return value if isinstance(value, bytes) else None


def get_user_properties(properties: Properties | None) -> list[tuple[str, str]]:
    value = properties.get(USER_PROPERTY) if properties else None
    return value if isinstance(value, list) else []


def properties_end(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """(start, end) of the properties whose length field is at `pos`."""
    size, start = decode_varint(data, pos, end)
    if size < 0:
        raise MalformedPacket("packet ends inside or before the property length")
    if start + size > end:
        raise MalformedPacket(f"properties of {size} bytes in a packet that has {end - start} left")
    return start, start + size


def decode_properties(data: bytes, pos: int, end: int, packet_type: int) -> Properties:
    """Properties in data[pos:end], without their length field, checked for `packet_type`. Not for PUBLISH and wills."""
    properties: Properties = {}
    while pos < end:
        number = data[pos]
        pos += 1
        entry = _TABLE.get(number)
        if entry is None:
            raise MalformedPacket(f"unknown property 0x{number:02x} [MQTT5 2.2.2.2]")
        name, kind, allowed = entry
        if packet_type not in allowed:
            raise ProtocolViolation(f"{name} is not allowed in packet type {packet_type} [MQTT5 table 2-4]")
        if kind == _PAIR:
            key = decode_string(data, pos, end)
            pos += 2 + len(key)
            text = decode_string(data, pos, end)
            pos += 2 + len(text)
            pairs = properties.setdefault(number, [])
            assert isinstance(pairs, list)
            pairs.append((key.decode(), text.decode()))
            continue
        if number in properties:
            raise ProtocolViolation(f"{name} is given twice")
        value: PropertyValue
        if kind == _BOOLEAN:
            if pos >= end:
                raise MalformedPacket(f"packet ends inside {name}")
            value = data[pos]
            pos += 1
            if value > 1:
                raise ProtocolViolation(f"{name} is {value}, may be 0 or 1")
        elif kind in (_UINT16, _POSITIVE_UINT16):
            value = decode_uint16(data, pos, end)
            pos += 2
            if value == 0 and kind == _POSITIVE_UINT16:
                raise ProtocolViolation(f"{name} is 0, must be 1 to 65535")
        elif kind in (_UINT32, _POSITIVE_UINT32):
            value = decode_uint32(data, pos, end)
            pos += 4
            if value == 0 and kind == _POSITIVE_UINT32:
                raise ProtocolViolation(f"{name} is 0, must be at least 1")
        elif kind in (_VARINT, _POSITIVE_VARINT):
            value, pos = decode_varint(data, pos, end)
            if value < 0:
                raise MalformedPacket(f"packet ends inside {name}")
            if value == 0 and kind == _POSITIVE_VARINT:
                raise ProtocolViolation(f"{name} is 0, must be 1 to 268435455")
        elif kind == _STRING:
            string = decode_string(data, pos, end)
            pos += 2 + len(string)
            value = string.decode()
        else:
            value = decode_binary(data, pos, end)
            pos += 2 + len(value)
        properties[number] = value
    return properties


def encode_properties(properties: Properties) -> bytes:
    """Length field and properties, in the dict's order. Asserts that values fit their types."""
    if not properties:
        return b"\0"
    parts: list[bytes] = []
    for number, value in properties.items():
        kind = _TABLE[number][1]
        prefix = bytes((number,))
        if isinstance(value, list):
            assert kind == _PAIR
            for key, text in value:
                parts.append(prefix + encode_string(key.encode()) + encode_string(text.encode()))
        elif isinstance(value, str):
            assert kind == _STRING
            parts.append(prefix + encode_string(value.encode()))
        elif isinstance(value, bytes):
            assert kind == _BINARY
            parts.append(prefix + encode_string(value))
        elif kind == _BOOLEAN:
            parts.append(prefix + (b"\1" if value else b"\0"))
        elif kind in (_UINT16, _POSITIVE_UINT16):
            parts.append(prefix + value.to_bytes(2, "big"))
        elif kind in (_UINT32, _POSITIVE_UINT32):
            parts.append(prefix + value.to_bytes(4, "big"))
        else:
            parts.append(prefix + encode_varint(value))
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def scan_publish_properties(publish: Publish, data: bytes, pos: int, end: int, is_will: bool = False) -> int:
    """Set the properties of `publish` from data[pos:end] (without length field). Returns the Will Delay Interval, -1
    when absent.

    The forwardable block keeps the bytes that the server must forward. Properties of this connection are not in it.
    """
    if are_user_properties(data, pos, end):
        publish.properties = data[pos:end]
        return -1
    seen = 0
    kept_from = pos
    kept: list[bytes] = []  # one join for all of them: a client may send half a million
    identifiers: list[int] = []
    will_delay_interval = -1
    while pos < end:
        property_at = pos
        number = data[pos]
        pos += 1
        if number == USER_PROPERTY:
            key = decode_string(data, pos, end)
            pos += 2 + len(key)
            pos += 2 + len(decode_string(data, pos, end))
            continue
        if number >= 64:
            raise MalformedPacket(f"unknown property 0x{number:02x} [MQTT5 2.2.2.2]")
        bit = 1 << number
        if seen & bit and (number != SUBSCRIPTION_IDENTIFIER or is_will):
            raise ProtocolViolation(f"{property_name(number)} is given twice")
        seen |= bit
        if number == CONTENT_TYPE:
            pos += 2 + len(decode_string(data, pos, end))
            continue
        if number == RESPONSE_TOPIC:
            response_topic = decode_string(data, pos, end)
            pos += 2 + len(response_topic)
            if b"+" in response_topic or b"#" in response_topic:
                raise ProtocolViolation("Response Topic has a wildcard [MQTT-3.3.2-14]")
            continue
        if number == CORRELATION_DATA:
            pos += 2 + len(decode_binary(data, pos, end))
            continue
        if number == PAYLOAD_FORMAT_INDICATOR:
            if pos >= end:
                raise MalformedPacket("packet ends inside Payload Format Indicator")
            if data[pos] > 1:
                raise ProtocolViolation(f"Payload Format Indicator is {data[pos]}, may be 0 or 1")
            pos += 1
            continue
        # The properties below are not part of the forwardable block.
        if number == MESSAGE_EXPIRY_INTERVAL:
            publish.message_expiry_interval = decode_uint32(data, pos, end)
            pos += 4
        elif number == TOPIC_ALIAS and not is_will:
            publish.topic_alias = decode_uint16(data, pos, end)
            pos += 2
            if publish.topic_alias == 0:
                raise MqttError(0x94, "Topic Alias is 0, must be 1 to 65535 [MQTT-3.3.2-8]")
        elif number == SUBSCRIPTION_IDENTIFIER and not is_will:
            identifier, pos = decode_varint(data, pos, end)
            if identifier < 0:
                raise MalformedPacket("packet ends inside Subscription Identifier")
            if identifier == 0:
                raise ProtocolViolation("Subscription Identifier is 0, must be 1 to 268435455 [MQTT5 3.3.2.3.8]")
            identifiers.append(identifier)
        elif number == WILL_DELAY_INTERVAL and is_will:
            will_delay_interval = decode_uint32(data, pos, end)
            pos += 4
        elif number in _TABLE:
            where = "a will" if is_will else "PUBLISH"
            raise ProtocolViolation(f"{property_name(number)} is not allowed in {where} [MQTT5 table 2-4]")
        else:
            raise MalformedPacket(f"unknown property 0x{number:02x} [MQTT5 2.2.2.2]")
        if property_at > kept_from:
            kept.append(data[kept_from:property_at])
        kept_from = pos
    if identifiers:
        publish.subscription_identifiers = tuple(identifiers)
    last = data[kept_from:end]
    publish.properties = b"".join([*kept, last]) if kept else last
    return will_delay_interval


def are_user_properties(data: bytes, pos: int, end: int) -> bool:
    """Return whether data[pos:end] are User Properties of ASCII only, none of them an origin: the usual ones, checked
    without a copy of each string. All zero bytes belong to lengths, so no string contains U+0000 [MQTT-1.5.4-2]."""
    at = pos
    zeros = 0
    is_name = True
    while at < end:
        if is_name:
            if data[at] != USER_PROPERTY:
                return False
            at += 1
        if at + 2 > end:
            return False
        high = data[at]
        low = data[at + 1]
        if is_name and low == ORIGIN_NAME_BYTES and data.startswith(ORIGIN_NAME, at + 2):
            return False
        if high == 0:
            zeros += 1
        if low == 0:
            zeros += 1
        at += 2 + (high << 8) + low
        is_name = not is_name
    if at != end or not is_name:
        return False
    block = data[pos:end]
    return block.isascii() and block.count(0) == zeros


def publish_properties_to_dict(block: bytes) -> Properties:
    """A forwardable block (broker.message.Message.properties) as a dict by id. Raises MqttError."""
    return decode_properties(block, 0, len(block), PUBLISH)


def encode_publish_properties(
    payload_format: int | None = None,
    content_type: str | None = None,
    response_topic: bytes | None = None,
    correlation_data: bytes | None = None,
    user_properties: list[tuple[str, str]] | None = None,
) -> bytes:
    """The forwardable block, without length field; None is absent. Raises MqttError for values that MQTT cannot carry:
    they come from the API and from other nodes."""
    parts: list[bytes] = []
    if payload_format is not None:
        if not 0 <= payload_format <= 1:
            raise ProtocolViolation(f"payload format is {payload_format}, may be 0 or 1")
        parts.append(bytes((PAYLOAD_FORMAT_INDICATOR, payload_format)))
    if content_type is not None:
        parts.append(b"\x03" + _encode_text(content_type, "content type"))
    if response_topic is not None:
        check_utf8(response_topic)
        if b"+" in response_topic or b"#" in response_topic:
            raise ProtocolViolation("response topic has a wildcard [MQTT-3.3.2-14]")
        parts.append(b"\x08" + _encode_bounded(response_topic, "response topic"))
    if correlation_data is not None:
        parts.append(b"\x09" + _encode_bounded(correlation_data, "correlation data"))
    if user_properties is not None:
        for key, text in user_properties:
            parts.append(b"\x26" + _encode_text(key, "user property name") + _encode_text(text, "user property value"))
    return b"".join(parts)


def _encode_text(text: str, what: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise MalformedPacket(f"{what} has surrogates [MQTT-1.5.4-1]") from None
    check_utf8(data)
    return _encode_bounded(data, what)


def _encode_bounded(data: bytes, what: str) -> bytes:
    if len(data) > STRING_BYTES_MAX:
        raise ProtocolViolation(f"{what} of {len(data)} bytes, at most {STRING_BYTES_MAX}")
    return encode_string(data)
