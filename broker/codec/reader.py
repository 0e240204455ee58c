"""Bytes -> packets, for both directions.

The connection refuses packets that are wrong in its direction only: a CONNACK from a client, a Subscription Identifier
in a client's PUBLISH.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.codec.connect_reader import decode_connack, decode_connect
from broker.codec.packets import (
    Auth,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscribeFilter,
    UnsubAck,
    Unsubscribe,
)
from broker.codec.properties import decode_properties, properties_end, scan_publish_properties
from broker.codec.reason_codes import DISCONNECT_CODES, QUOTA_EXCEEDED
from broker.codec.wire import decode_binary, decode_uint16, decode_varint
from broker.errors import MalformedPacket, MqttError, ProtocolViolation
from broker.routing.names import check_topic_filter, check_topic_name

# Properties are read one by one, in one turn. Those of other packets are bounded with the packet.
PUBLISH_PROPERTIES_BYTES_MAX: Final = 1024 * 1024
PACKET_NAMES: Final = (  # by packet type
    "packet type 0",
    "CONNECT",
    "CONNACK",
    "PUBLISH",
    "PUBACK",
    "PUBREC",
    "PUBREL",
    "PUBCOMP",
    "SUBSCRIBE",
    "SUBACK",
    "UNSUBSCRIBE",
    "UNSUBACK",
    "PINGREQ",
    "PINGRESP",
    "DISCONNECT",
    "AUTH",
)

# Reason codes that a packet may have [MQTT5 table 2-6]. Bytes, because `in` takes an int there.
_PUBACK_CODES: Final = b"\x00\x10\x80\x83\x87\x90\x91\x97\x99"
_PUBREL_CODES: Final = b"\x00\x92"
_SUBACK_CODES: Final = b"\x00\x01\x02\x80\x83\x87\x8f\x91\x97\x9e\xa1\xa2"
_UNSUBACK_CODES: Final = b"\x00\x11\x80\x83\x87\x8f\x91"
_AUTH_CODES: Final = b"\x00\x18\x19"


def decode_packet(first: int, data: bytes, start: int, end: int, version: int) -> Packet:
    """One whole packet. `first` is its first byte, data[start:end] the packet after its Remaining Length.

    `version` is the connection's protocol level (3, 4, 5). CONNECT has its own. Raises MqttError.
    """
    kind = first >> 4
    if kind == 3:
        return decode_publish(first, data, start, end, version)
    if 4 <= kind <= 7:
        return decode_ack(first, data, start, end, version)
    if kind == 1:
        return decode_connect(first, data, start, end)
    flags = first & 15
    if flags != (2 if kind in (8, 10) else 0) and not (version == 3 and flags == 10 and kind in (8, 10)):
        # MQTT 3.1 sends SUBSCRIBE and UNSUBSCRIBE again, with DUP.
        raise MalformedPacket(
            f"{PACKET_NAMES[kind]} with fixed header flags {flags:#06b} [MQTT-2.1.3-1] [MQTT-2.2.2-2]"
        )
    if kind in (12, 13):
        if start != end:
            raise MalformedPacket(f"{PACKET_NAMES[kind]} with {end - start} bytes after its header, must have none")
        return PingReq() if kind == 12 else PingResp()
    if kind == 2:
        return decode_connack(data, start, end, version)
    if kind == 8:
        return _decode_subscribe(data, start, end, version)
    if kind == 9:
        return _decode_suback(data, start, end, version)
    if kind == 10:
        return _decode_unsubscribe(data, start, end, version)
    if kind == 11:
        return _decode_unsuback(data, start, end, version)
    if kind == 14:
        return _decode_disconnect(data, start, end, version)
    if kind == 15 and version == 5:
        return _decode_auth(data, start, end)
    raise MalformedPacket(f"{PACKET_NAMES[kind]} does not exist in this protocol version [MQTT5 2.1.2]")


def decode_publish(first: int, data: bytes, start: int, end: int, version: int) -> Publish:
    """PUBLISH [MQTT5 3.3]. Hot path."""
    qos = first >> 1 & 3
    if qos == 3:
        raise MalformedPacket("PUBLISH with QoS 3, may be 0, 1 or 2 [MQTT-3.3.1-4]")
    if qos == 0 and first & 8:
        raise MalformedPacket("PUBLISH with DUP and QoS 0 [MQTT-3.3.1-2]")
    pos = start + 2
    if pos > end:
        raise MalformedPacket("PUBLISH ends inside the length of its topic")
    topic_end = pos + (data[start] << 8) + data[start + 1]
    if topic_end > end:
        raise MalformedPacket(f"PUBLISH with a topic of {topic_end - pos} bytes, {end - pos} are left")
    topic = data[pos:topic_end]
    pos = topic_end
    if topic:
        check_topic_name(topic)
    packet_id = 0
    if qos:
        pos += 2
        if pos > end:
            raise MalformedPacket("PUBLISH ends inside its packet identifier")
        packet_id = data[pos - 2] << 8 | data[pos - 1]
        if packet_id == 0:
            raise ProtocolViolation("PUBLISH with packet identifier 0 [MQTT-2.2.1-3] [MQTT-2.3.1-1]")
    publish = Publish(topic, b"", qos, first & 1 == 1, first & 8 == 8, packet_id)
    if version == 5:
        if pos < end and data[pos] == 0:
            pos += 1
        else:
            pos, properties_stop = properties_end(data, pos, end)
            size = properties_stop - pos
            if size > PUBLISH_PROPERTIES_BYTES_MAX:
                text = f"PUBLISH with properties of {size} bytes, at most {PUBLISH_PROPERTIES_BYTES_MAX} are read"
                raise MqttError(QUOTA_EXCEEDED, text)
            scan_publish_properties(publish, data, pos, properties_stop)
            pos = properties_stop
    if not topic and not publish.topic_alias:
        raise ProtocolViolation("PUBLISH without topic name and topic alias [MQTT-4.7.3-1] [MQTT5 3.3.2.1]")
    publish.payload = data[pos:end]
    return publish


def decode_ack(first: int, data: bytes, start: int, end: int, version: int) -> PubAck | PubRec | PubRel | PubComp:
    """PUBACK, PUBREC, PUBREL, PUBCOMP [MQTT5 3.4 to 3.7]. Hot path."""
    kind = first >> 4
    if first & 15 != (2 if kind == 6 else 0) and not (version == 3 and first == 0x6A):  # PUBREL with DUP in MQTT 3.1
        raise MalformedPacket(
            f"{PACKET_NAMES[kind]} with fixed header flags {first & 15:#06b} [MQTT-2.1.3-1] [MQTT-2.2.2-2]"
        )
    size = end - start
    if size < 2 or (size > 2 and version != 5):
        raise MalformedPacket(f"{PACKET_NAMES[kind]} of {size} bytes, must be 2")
    packet_id = data[start] << 8 | data[start + 1]
    if packet_id == 0:
        raise ProtocolViolation(f"{PACKET_NAMES[kind]} with packet identifier 0 [MQTT-2.2.1-3] [MQTT-2.3.1-1]")
    reason_code = 0
    properties: Properties | None = None
    if size > 2:
        reason_code = data[start + 2]
        if reason_code:
            _check_reason_code(kind, reason_code, _PUBACK_CODES if kind < 6 else _PUBREL_CODES)
        if size > 3:
            properties = _decode_last_properties(data, start + 3, end, kind)
            if not properties:
                properties = None
    if kind == 4:
        return PubAck(packet_id, reason_code, properties)
    if kind == 5:
        return PubRec(packet_id, reason_code, properties)
    if kind == 6:
        return PubRel(packet_id, reason_code, properties)
    return PubComp(packet_id, reason_code, properties)


def _check_reason_code(kind: int, reason_code: int, allowed: bytes) -> None:
    if reason_code not in allowed:
        raise ProtocolViolation(
            f"{PACKET_NAMES[kind]} with reason code 0x{reason_code:02x}, which it cannot have [MQTT5 table 2-6]"
        )


def _decode_last_properties(data: bytes, pos: int, end: int, kind: int) -> Properties:
    """Properties at the end of their packet."""
    pos, stop = properties_end(data, pos, end)
    if stop != end:
        raise MalformedPacket(f"{PACKET_NAMES[kind]} with {end - stop} bytes after its properties")
    return decode_properties(data, pos, stop, kind)


def _decode_head(data: bytes, start: int, end: int, kind: int, version: int) -> tuple[int, Properties, int]:
    """(packet identifier, properties, position after them)."""
    packet_id = decode_uint16(data, start, end)
    if packet_id == 0:
        raise ProtocolViolation(f"{PACKET_NAMES[kind]} with packet identifier 0 [MQTT-2.2.1-3] [MQTT-2.3.1-1]")
    if version != 5:
        return packet_id, {}, start + 2
    pos, stop = properties_end(data, start + 2, end)
    return packet_id, decode_properties(data, pos, stop, kind), stop


def _decode_subscribe(data: bytes, start: int, end: int, version: int) -> Subscribe:
    """SUBSCRIBE [MQTT5 3.8]."""
    packet_id, properties, pos = _decode_head(data, start, end, 8, version)
    if pos == end:
        raise ProtocolViolation("SUBSCRIBE without a topic filter [MQTT-3.8.3-2] [MQTT-3.8.3-3]")
    filters: list[SubscribeFilter] = []
    while pos < end:
        topic_filter = decode_binary(data, pos, end)
        pos += 2 + len(topic_filter)
        check_topic_filter(topic_filter)
        if pos >= end:
            raise MalformedPacket("SUBSCRIBE ends before the options of its last filter")
        options = data[pos]
        pos += 1
        qos = options & 3
        if qos == 3:
            raise MalformedPacket("SUBSCRIBE with QoS 3, may be 0, 1 or 2 [MQTT5 3.8.3.1] [MQTT-3-8.3-4]")
        if version != 5:
            if options > 2:
                raise MalformedPacket("SUBSCRIBE with reserved option bits [MQTT-3-8.3-4]")
            filters.append(SubscribeFilter(topic_filter, qos))
            continue
        if options & 0xC0:
            raise MalformedPacket("SUBSCRIBE with reserved option bits [MQTT-3.8.3-5]")
        retain_handling = options >> 4
        if retain_handling == 3:
            raise ProtocolViolation("SUBSCRIBE with Retain Handling 3, may be 0, 1 or 2 [MQTT5 3.8.3.1]")
        no_local = options & 4 == 4
        if no_local and topic_filter.startswith(b"$share/"):
            raise ProtocolViolation("SUBSCRIBE with No Local on a shared subscription [MQTT-3.8.3-4]")
        filters.append(SubscribeFilter(topic_filter, qos, no_local, options & 8 == 8, retain_handling))
    return Subscribe(packet_id, filters, properties)


def _decode_suback(data: bytes, start: int, end: int, version: int) -> SubAck:
    """SUBACK [MQTT5 3.9]."""
    packet_id, properties, pos = _decode_head(data, start, end, 9, version)
    allowed = _SUBACK_CODES if version == 5 else b"\x00\x01\x02\x80"
    return SubAck(packet_id, _decode_reason_codes(data, pos, end, 9, allowed), properties)


def _decode_unsubscribe(data: bytes, start: int, end: int, version: int) -> Unsubscribe:
    """UNSUBSCRIBE [MQTT5 3.10]."""
    packet_id, properties, pos = _decode_head(data, start, end, 10, version)
    if pos == end:
        raise ProtocolViolation("UNSUBSCRIBE without a topic filter [MQTT-3.10.3-2]")
    topic_filters: list[bytes] = []
    while pos < end:
        topic_filter = decode_binary(data, pos, end)
        pos += 2 + len(topic_filter)
        check_topic_filter(topic_filter)
        topic_filters.append(topic_filter)
    return Unsubscribe(packet_id, topic_filters, properties)


def _decode_unsuback(data: bytes, start: int, end: int, version: int) -> UnsubAck:
    """UNSUBACK [MQTT5 3.11]."""
    packet_id, properties, pos = _decode_head(data, start, end, 11, version)
    if version != 5:
        if pos != end:
            raise MalformedPacket(f"UNSUBACK of {end - start} bytes, must be 2")
        return UnsubAck(packet_id, [])
    return UnsubAck(packet_id, _decode_reason_codes(data, pos, end, 11, _UNSUBACK_CODES), properties)


def _decode_reason_codes(data: bytes, pos: int, end: int, kind: int, allowed: bytes) -> list[int]:
    if pos == end:
        raise ProtocolViolation(f"{PACKET_NAMES[kind]} without a reason code [MQTT5 3.9.3, 3.11.3]")
    reason_codes = list(data[pos:end])
    for reason_code in reason_codes:
        _check_reason_code(kind, reason_code, allowed)
    return reason_codes


def _decode_disconnect(data: bytes, start: int, end: int, version: int) -> Disconnect:
    """DISCONNECT [MQTT5 3.14]."""
    if start == end:
        return Disconnect()
    if version != 5:
        raise MalformedPacket(f"DISCONNECT with {end - start} bytes after its header, must have none in MQTT 3.1.1")
    _check_reason_code(14, data[start], DISCONNECT_CODES)
    if start + 1 == end:
        return Disconnect(data[start])
    return Disconnect(data[start], _decode_last_properties(data, start + 1, end, 14))


def _decode_auth(data: bytes, start: int, end: int) -> Auth:
    """AUTH [MQTT5 3.15]."""
    if start == end:
        return Auth()
    _check_reason_code(15, data[start], _AUTH_CODES)
    return Auth(data[start], _decode_last_properties(data, start + 1, end, 15))


class PacketReader:
    """Decodes a byte stream that comes in chunks of any size. For clients and the packet dump; `Connection` decodes
    its chunks itself.

    version          protocol level; a CONNECT in the stream sets it
    max_packet_size  bytes of one packet with its header; a larger one is refused when its header is there
    """

    __slots__ = ("_error", "_pending", "_wanted", "max_packet_size", "version")

    def __init__(self, version: int = 5, max_packet_size: int = 268_435_460) -> None:
        self.version = version
        self.max_packet_size = max_packet_size
        self._pending = bytearray()
        self._wanted = 2
        self._error: MqttError | None = None

    def receive_data(self, data: bytes) -> list[Packet]:
        """All packets that `data` completes. Raises MqttError. Packets before the fault are returned first; the next call
        raises the error, also a call with b"". Every later call raises it again."""
        if self._error is not None:
            raise self._error
        self._pending += data
        if len(self._pending) < self._wanted:
            return []
        chunk = bytes(self._pending)
        packets: list[Packet] = []
        pos = 0
        try:
            pos = self._decode_chunk(chunk, packets)
        except MqttError as error:
            self._error = error
            if not packets:
                raise
            return packets
        del self._pending[:pos]
        return packets

    def _decode_chunk(self, chunk: bytes, packets: list[Packet]) -> int:
        """Append the whole packets of the chunk; the position behind them."""
        end = len(chunk)
        pos = 0
        while True:
            self._wanted = 2
            if pos + 2 > end:
                return pos
            size, body = decode_varint(chunk, pos + 1, end)
            if size < 0:
                self._wanted = end - pos + 1
                return pos
            packet_end = body + size
            if packet_end - pos > self.max_packet_size:
                raise MqttError(
                    0x95, f"packet of {packet_end - pos} bytes, at most {self.max_packet_size} (Maximum Packet Size)"
                )
            if packet_end > end:
                self._wanted = packet_end - pos
                return pos
            packet = decode_packet(chunk[pos], chunk, body, packet_end, self.version)
            if isinstance(packet, Connect):
                self.version = packet.protocol_version
            packets.append(packet)
            pos = packet_end
