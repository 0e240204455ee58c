"""Packets -> bytes. Hot functions take values instead of packets: a message is encoded once for many receivers."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.codec.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    Properties,
    PubAck,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Will,
)
from broker.codec.properties import REASON_STRING, USER_PROPERTY, encode_properties
from broker.codec.reason_codes import CONNACK_V3_CODES, CONNACK_V3_OTHER
from broker.codec.wire import VARINT_MAX, encode_string, encode_varint

PINGREQ: Final = b"\xc0\x00"
PINGRESP: Final = b"\xd0\x00"


def encode_publish(
    version: int,
    topic: bytes,
    payload: bytes,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    properties_block: bytes,
    expiry: int = -1,
    topic_alias: int = 0,
    subscription_identifiers: tuple[int, ...] = (),
) -> bytes:
    """One PUBLISH; b"" above the largest Remaining Length. `expiry` is in seconds, -1 for none; alias 0 is none. MQTT 3.1.1
    ignores the last four."""
    first = 0x30 | qos << 1
    if retain:
        first |= 1
    if dup:
        first |= 8
    topic_size = len(topic)
    size = 2 + topic_size + len(payload)
    packet_id_bytes = b""
    if qos:
        packet_id_bytes = packet_id.to_bytes(2, "big")
        size += 2
    properties = b""
    if version == 5:
        properties = properties_block
        if expiry >= 0 or topic_alias or subscription_identifiers:
            properties = connection_properties(expiry, topic_alias, subscription_identifiers) + properties
        properties = encode_varint(len(properties)) + properties
        size += len(properties)
    if size < 128:
        header = bytes((first, size, topic_size >> 8, topic_size & 255))
    elif size > VARINT_MAX:
        return b""
    else:
        header = bytes((first,)) + encode_varint(size) + topic_size.to_bytes(2, "big")
    return b"".join((header, topic, packet_id_bytes, properties, payload))


def publish_parts(
    version: int, topic: bytes, payload: bytes, qos: int, retain: bool, dup: bool, properties_block: bytes
) -> tuple[bytes, bytes]:
    """(bytes before the packet id, bytes after it) of a PUBLISH with QoS 1 or 2, both b"" above the largest Remaining Length.
    Receivers share both. The block may begin with `connection_properties`."""
    assert qos > 0
    properties = b""
    if version == 5:
        properties = encode_varint(len(properties_block)) + properties_block
    first = 0x30 | qos << 1
    if retain:
        first |= 1
    if dup:
        first |= 8
    topic_size = len(topic)
    size = 4 + topic_size + len(properties) + len(payload)
    if size > VARINT_MAX:
        return b"", b""
    prefix = bytes((first,)) + encode_varint(size) + topic_size.to_bytes(2, "big") + topic
    return prefix, properties + payload


def connection_properties(expiry: int, topic_alias: int, subscription_identifiers: tuple[int, ...]) -> bytes:
    """The PUBLISH properties of one receiver: remaining expiry in seconds (-1 none), alias (0 none), identifiers."""
    block = b""
    if expiry >= 0:
        block = b"\x02" + expiry.to_bytes(4, "big")
    if topic_alias:
        block += b"\x23" + topic_alias.to_bytes(2, "big")
    if not subscription_identifiers:
        return block
    if len(subscription_identifiers) == 1:
        return block + b"\x0b" + encode_varint(subscription_identifiers[0])
    return block + b"".join([b"\x0b" + encode_varint(identifier) for identifier in subscription_identifiers])


def encode_ack(kind: int, packet_id: int, reason_code: int = 0, version: int = 5) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP without properties."""
    first = kind << 4 | 2 if kind == PUBREL else kind << 4
    if reason_code == 0 or version != 5:
        return bytes((first, 2, packet_id >> 8, packet_id & 255))
    return bytes((first, 3, packet_id >> 8, packet_id & 255, reason_code))


def encode_packet(packet: Packet, version: int, maximum_packet_size: int = 0) -> bytes:
    """Any packet for a connection of protocol level `version` (3, 4, 5). CONNECT has its own level.

    A packet above the maximum (0 is none) loses its User Properties, then its Reason String [MQTT-3.2.2-19/20]. Returns b""
    for one that is still too large and must not be sent [MQTT-3.1.2-24].
    """
    data = _encode(packet, version, 0)
    if maximum_packet_size == 0 or len(data) <= maximum_packet_size:
        return data
    if not isinstance(packet, (Publish, Connect, Subscribe, Unsubscribe)):
        for omitted in (1, 2):
            data = _encode(packet, version, omitted)
            if len(data) <= maximum_packet_size:
                return data
    return b""


def _encode(packet: Packet, version: int, omitted: int) -> bytes:
    """`omitted`: 0 nothing, 1 User Properties, 2 also the Reason String."""
    if isinstance(packet, Publish):
        return encode_publish(
            version,
            packet.topic,
            packet.payload,
            packet.qos,
            packet.retain,
            packet.dup,
            packet.packet_id,
            packet.properties,
            packet.message_expiry_interval,
            packet.topic_alias,
            packet.subscription_identifiers,
        )
    if isinstance(packet, Ack):
        if isinstance(packet, PubAck):
            kind = PUBACK
        elif isinstance(packet, PubRec):
            kind = PUBREC
        elif isinstance(packet, PubRel):
            kind = PUBREL
        else:
            kind = PUBCOMP
        return _encode_ack(kind, packet, version, omitted)
    if isinstance(packet, PingReq):
        return PINGREQ
    if isinstance(packet, PingResp):
        return PINGRESP
    if isinstance(packet, ConnAck):
        session_present = b"\1" if packet.session_present else b"\0"
        if version != 5:
            return_code = CONNACK_V3_CODES.get(packet.reason_code, CONNACK_V3_OTHER)
            return _packet(0x20, session_present + bytes((return_code,)))
        properties = _encode_some(packet.properties, omitted)
        return _packet(0x20, session_present + bytes((packet.reason_code,)) + properties)
    if isinstance(packet, Connect):
        return _encode_connect(packet)
    if isinstance(packet, Subscribe):
        return _encode_subscribe(packet, version)
    if isinstance(packet, SubAck):
        body = packet.packet_id.to_bytes(2, "big")
        if version != 5:
            return _packet(0x90, body + bytes([min(code, 0x80) for code in packet.reason_codes]))
        return _packet(0x90, body + _encode_some(packet.properties, omitted) + bytes(packet.reason_codes))
    if isinstance(packet, Unsubscribe):
        body = packet.packet_id.to_bytes(2, "big")
        if version == 5:
            body += encode_properties(packet.properties)
        return _packet(0xA2, body + b"".join([encode_string(topic_filter) for topic_filter in packet.topic_filters]))
    if isinstance(packet, UnsubAck):
        body = packet.packet_id.to_bytes(2, "big")
        if version == 5:
            body += _encode_some(packet.properties, omitted) + bytes(packet.reason_codes)
        return _packet(0xB0, body)
    if isinstance(packet, Disconnect):
        if version != 5:
            return b"\xe0\x00"
        return _encode_reason(0xE0, packet.reason_code, packet.properties, omitted)
    assert isinstance(packet, Auth), packet
    assert version == 5, "AUTH exists in MQTT 5 only"
    return _encode_reason(0xF0, packet.reason_code, packet.properties, omitted)


def _packet(first: int, body: bytes) -> bytes:
    return bytes((first,)) + encode_varint(len(body)) + body


def _encode_some(properties: Properties, omitted: int) -> bytes:
    if omitted == 0 or not properties:
        return encode_properties(properties)
    some: Properties = {}
    for number, value in properties.items():
        if number != USER_PROPERTY and (number != REASON_STRING or omitted == 1):
            some[number] = value
    return encode_properties(some)


def _encode_ack(kind: int, ack: Ack, version: int, omitted: int) -> bytes:
    plain = encode_ack(kind, ack.packet_id, ack.reason_code, version)
    if version == 5 and ack.properties:
        properties = _encode_some(ack.properties, omitted)
        if properties != b"\0":
            return _packet(plain[0], ack.packet_id.to_bytes(2, "big") + bytes((ack.reason_code,)) + properties)
    return plain


def _encode_reason(first: int, reason_code: int, properties: Properties, omitted: int) -> bytes:
    """DISCONNECT and AUTH, whose two fields may be omitted [MQTT5 3.14.2, 3.15.2]."""
    encoded = _encode_some(properties, omitted)
    if encoded != b"\0":
        return _packet(first, bytes((reason_code,)) + encoded)
    if reason_code == 0:
        return bytes((first, 0))
    if first == 0xF0:
        return bytes((first, 2, reason_code, 0))  # AUTH may omit both fields only [MQTT5 3.15.2.2]
    return bytes((first, 1, reason_code))


def _encode_connect(packet: Connect) -> bytes:
    version = packet.protocol_version
    flags = 2 if packet.clean_start else 0
    payload = encode_string(packet.client_id.encode())
    will = packet.will
    if will is not None:
        flags |= 4 | will.qos << 3
        if will.retain:
            flags |= 32
        if version == 5:
            payload += _encode_will_properties(will)
        payload += encode_string(will.topic) + encode_string(will.payload)
    if packet.username is not None:
        flags |= 128
        payload += encode_string(packet.username.encode())
    if packet.password is not None:
        flags |= 64
        payload += encode_string(packet.password)
    body = encode_string(b"MQIsdp" if version == 3 else b"MQTT")
    level = version | 0x80 if packet.is_bridge else version
    body += bytes((level, flags, packet.keep_alive >> 8, packet.keep_alive & 255))
    if version == 5:
        body += encode_properties(packet.properties)
    return _packet(0x10, body + payload)


def _encode_will_properties(will: Will) -> bytes:
    block = b""
    if will.delay_interval:
        block = b"\x18" + will.delay_interval.to_bytes(4, "big")
    if will.message_expiry_interval is not None:
        block += b"\x02" + will.message_expiry_interval.to_bytes(4, "big")
    block += will.properties
    return encode_varint(len(block)) + block


def _encode_subscribe(packet: Subscribe, version: int) -> bytes:
    body = packet.packet_id.to_bytes(2, "big")
    if version == 5:
        body += encode_properties(packet.properties)
    parts = [body]
    for entry in packet.filters:
        options = entry.qos
        if version == 5:
            options |= entry.retain_handling << 4
            if entry.no_local:
                options |= 4
            if entry.retain_as_published:
                options |= 8
        parts.append(encode_string(entry.topic_filter))
        parts.append(bytes((options,)))
    return _packet(0x82, b"".join(parts))
