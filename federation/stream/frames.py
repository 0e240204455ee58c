"""Frames: the events inside a batch of the batched stream (docs/protocol-extensions.md).

One frame is one event and has one event id. It knows nothing of ids, nodes and queues.

    kind u8 | flags u8 | length u32 | body          integers are big endian
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i32_be

from broker.codec.reader import decode_publish
from broker.codec.wire import decode_varint, encode_varint
from broker.errors import MqttError
from broker.message import NEVER, Message

HEADER_SIZE: Final = 6

SUBSCRIBE: Final = 1
UNSUBSCRIBE: Final = 2
PUBLISH_BLOCK: Final = 3
PUBLISH: Final = 4
RETAINED: Final = 5
STATE_BEGIN: Final = 6
STATE_END: Final = 7

HAS_EXTENSIONS: Final = 0x01  # the body begins with an extension area
IS_WRITTEN_THERE: Final = 0x04  # of RETAINED: clients of the sending node published it, nobody changed it since
IS_NEWS: Final = 0x02  # of RETAINED: the value of a topic whose message an outbox has dropped, not one of long ago
MUST_UNDERSTAND: Final = 0xF0  # a reader that does not know one of these flags skips the frame

BLOCK_HEADER_SIZE: Final = HEADER_SIZE + 5
GROUPS_MAX: Final = 65_535


class FrameError(Exception):
    """The other node's bytes are no frame. The text says what is wrong."""


def encode_frame(kind: int, body: bytes, flags: int = 0) -> bytes:
    return bytes((kind, flags)) + len(body).to_bytes(4, "big") + body


def encode_interest(kind: int, share_name: bytes, topic_filter: bytes) -> bytes:
    """SUBSCRIBE or UNSUBSCRIBE: share_length u16 | share_name | topic_filter."""
    return encode_frame(kind, len(share_name).to_bytes(2, "big") + share_name + topic_filter)


def encode_block_header(version: int, count: int, size: int) -> bytes:
    """Head of a PUBLISH_BLOCK whose `count` packets take `size` bytes: version u8 | count u32 | packets."""
    writer = BytesWriter()  # compiled, less than half of what int.to_bytes or struct cost
    writer.append(PUBLISH_BLOCK)
    writer.append(0)
    write_i32_be(writer, size + 5)
    writer.append(version)
    write_i32_be(writer, count)
    return writer.getvalue()


def encode_packet(message: Message, version: int) -> bytes:
    """The message as a PUBLISH (packet id 1) without its expiry: version 4 only for one without properties."""
    topic = message.topic
    payload = message.payload
    first = 0x30 | message.qos << 1
    if message.retain:
        first |= 1
    topic_size = len(topic)
    tail = b""
    if message.qos:
        tail = b"\0\1"
    if version == 5:
        properties = message.properties
        tail += encode_varint(len(properties)) + properties if properties else b"\0"
    size = 2 + topic_size + len(tail) + len(payload)
    if size < 128:
        header = bytes((first, size, topic_size >> 8, topic_size & 255))
    else:
        header = bytes((first,)) + encode_varint(size) + topic_size.to_bytes(2, "big")
    return b"".join((header, topic, tail, payload))


def encode_expiring_packet(message: Message) -> bytes:
    """As encode_packet, version 5, with a Message Expiry Interval to be filled in: see expiry_offset."""
    properties = b"\x02\0\0\0\0" + message.properties
    tail = b"\0\1" if message.qos else b""
    tail += encode_varint(len(properties)) + properties
    topic = message.topic
    size = 2 + len(topic) + len(tail) + len(message.payload)
    first = 0x30 | message.qos << 1 | (1 if message.retain else 0)
    header = bytes((first,)) + encode_varint(size) + len(topic).to_bytes(2, "big")
    return b"".join((header, topic, tail, message.payload))


def expiry_offset(message: Message) -> int:
    """Where the four bytes of the expiry begin in bytes that end with encode_expiring_packet(message), counted from
    their end (negative)."""
    return -4 - len(message.properties) - len(message.payload)


def fill_expiry(data: bytes, offset: int, expires_at: float, now: float) -> bytes:
    """The bytes with the seconds that are left; 0 is over."""
    remaining = expires_at - now
    seconds = 0
    if remaining > 0:
        seconds = int(min(remaining + 0.999, 4_294_967_295.0))
    return data[:offset] + seconds.to_bytes(4, "big") + data[offset + 4 :]


def encode_groups(groups: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """count u16, then share_length u16 | share_name | filter_length u16 | topic_filter for each."""
    if not groups:
        return b"\0\0"
    parts = [len(groups).to_bytes(2, "big")]
    for share_name, topic_filter in groups:
        parts.append(len(share_name).to_bytes(2, "big"))
        parts.append(share_name)
        parts.append(len(topic_filter).to_bytes(2, "big"))
        parts.append(topic_filter)
    return b"".join(parts)


def body_start(data: bytes, flags: int, start: int, end: int) -> int:
    """Where the body begins behind its extension area: length u16, then type u8 | length u16 | value for each."""
    if not flags & HAS_EXTENSIONS:
        return start
    if start + 2 > end:
        raise FrameError("frame ends inside the length of its extensions")
    after = start + 2 + (data[start] << 8) + data[start + 1]
    if after > end:
        raise FrameError(f"extensions of {after - start - 2} bytes in a frame that has {end - start - 2} left")
    return after


def decode_interest(data: bytes, start: int, end: int) -> tuple[bytes, bytes]:
    """(share_name, topic_filter), not checked for the rules of MQTT."""
    share_end = start + 2
    if share_end <= end:
        share_end += (data[start] << 8) + data[start + 1]
    if share_end > end:
        raise FrameError("interest frame ends inside its share name")
    return data[start + 2 : share_end], data[share_end:end]


def decode_block_header(data: bytes, start: int, end: int) -> tuple[int, int]:
    """(version, count) of a PUBLISH_BLOCK; its packets follow at start + 5."""
    if start + 5 > end:
        raise FrameError(f"publish block of {end - start} bytes, has at least 5")
    version = data[start]
    if version not in (4, 5):
        raise FrameError(f"publish block of MQTT level {version}, may be 4 or 5")
    return version, data[start + 1] << 24 | data[start + 2] << 16 | data[start + 3] << 8 | data[start + 4]


def decode_groups(data: bytes, start: int, end: int) -> tuple[tuple[tuple[bytes, bytes], ...], int]:
    """(groups, position after them)."""
    if start + 2 > end:
        raise FrameError("publish frame ends inside its groups")
    count = (data[start] << 8) + data[start + 1]
    pos = start + 2
    if count == 0:
        return (), pos
    groups: list[tuple[bytes, bytes]] = []
    for _ in range(count):
        share_name, pos = _decode_string(data, pos, end)
        topic_filter, pos = _decode_string(data, pos, end)
        groups.append((share_name, topic_filter))
    return tuple(groups), pos


def _decode_string(data: bytes, pos: int, end: int) -> tuple[bytes, int]:
    start = pos + 2
    if start > end:
        raise FrameError("publish frame ends inside its groups")
    stop = start + (data[pos] << 8) + data[pos + 1]
    if stop > end:
        raise FrameError("publish frame ends inside its groups")
    return data[start:stop], stop


def decode_packet(data: bytes, pos: int, end: int, version: int, now: float) -> tuple[Message, int]:
    """(message, position after its packet) of the PUBLISH at `pos`. Raises FrameError."""
    if pos + 2 > end or data[pos] >> 4 != 3:
        raise FrameError("publish frame without a PUBLISH packet")
    try:
        size, start = decode_varint(data, pos + 1, end)
        if size < 0 or start + size > end:
            raise FrameError(f"PUBLISH packet is longer than its frame, {end - pos} bytes are left")
        publish = decode_publish(data[pos], data, start, start + size, version)
    except MqttError as error:
        raise FrameError(error.text) from None
    if publish.topic_alias:
        raise FrameError("PUBLISH packet with a topic alias: aliases are of one client's connection")
    expires_at = NEVER
    if publish.message_expiry_interval >= 0:
        expires_at = now + publish.message_expiry_interval
    message = Message(publish.topic, publish.payload, publish.qos, publish.retain, publish.properties, expires_at)
    return message, start + size
