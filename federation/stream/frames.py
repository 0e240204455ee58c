"""Frames: the events inside a batch of the direct stream (docs/protocol-extensions.md).

A PUBLISH_BLOCK holds as many events as it has packets, every other frame holds one. The module knows nothing of event ids,
nodes and queues.

    kind u8 | flags u8 | length u32 | body          integers are big endian
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be, write_i16_be, write_i32_be, write_i64_be

from broker.codec.reader import decode_publish
from broker.codec.wire import decode_varint
from broker.codec.writer import encode_publish
from broker.errors import MqttError
from broker.message import Message
from broker.origin import carried_properties
from broker.routing.carried import carried_message
from broker.routing.retained import STAMP_BYTES

HEADER_SIZE: Final = 6

SUBSCRIBE: Final = 1
UNSUBSCRIBE: Final = 2
PUBLISH_BLOCK: Final = 3
PUBLISH: Final = 4
RETAINED: Final = 5
STATE_BEGIN: Final = 6
STATE_END: Final = 7
INTEREST_DIGEST: Final = 8
RETAINED_DIGEST: Final = 9
RETAINED_STAMPS: Final = 10
GROUP_COPY: Final = 12
COPIES_ENDED: Final = 13
SESSION: Final = 20  # federation/sessions/wire.py

HAS_EXTENSIONS: Final = 0x01  # the body begins with an extension area
# Of RETAINED, for nodes that do not read stamps.
IS_NEWS: Final = 0x02  # the present value of a topic: it is stored in any case
IS_WRITTEN_THERE: Final = 0x04  # it is stored unless clients of the reading node have changed the topic, too
ONLY_THESE: Final = 0x02  # of RETAINED_STAMPS: there is no room for topics beside those that are listed
MUST_UNDERSTAND: Final = 0xF0  # a reader that does not know one of these flags skips the frame

BLOCK_HEAD_SIZE: Final = 5  # of a PUBLISH_BLOCK's body: version u8, count u32
BLOCK_HEADER_SIZE: Final = HEADER_SIZE + BLOCK_HEAD_SIZE
EXPIRY_PROPERTY: Final = b"\x02\0\0\0\0"  # Message Expiry Interval, its four bytes to be filled in
GROUPS_MAX: Final = 65_535
NO_NUMBER: Final = bytes(8)  # of a copy for a group
# Types of the extension area.
STAMP: Final = 3  # of PUBLISH and RETAINED: the stamp of the change
LINK_INTEREST: Final = 6  # of SUBSCRIBE: the interest of links in the filter (federation/links/bridging/routes.py)
MEMBERS: Final = 7  # of SUBSCRIBE: how many members of the group the node has, u32


class FrameError(Exception):
    """The other node's bytes are no frame. The text says what is wrong."""


def encode_extension(number: int, value: bytes) -> bytes:
    """An extension area with one value."""
    size = len(value)
    return (size + 3).to_bytes(2, "big") + bytes((number,)) + size.to_bytes(2, "big") + value


def encode_frame(kind: int, body: bytes, flags: int = 0) -> bytes:
    return bytes((kind, flags)) + len(body).to_bytes(4, "big") + body


def encode_interest(kind: int, share_name: bytes, topic_filter: bytes, note: bytes = b"") -> bytes:
    """SUBSCRIBE or UNSUBSCRIBE: share_length u16 | share_name | topic_filter."""
    body = len(share_name).to_bytes(2, "big") + share_name + topic_filter
    if not note:
        return encode_frame(kind, body)
    number = MEMBERS if share_name else LINK_INTEREST
    return encode_frame(kind, encode_extension(number, note) + body, HAS_EXTENSIONS)


def interest_note(data: bytes, flags: int, start: int, share_name: bytes) -> bytes:
    """The note of a SUBSCRIBE whose body begins at `start`, b"" for none."""
    if not flags & HAS_EXTENSIONS:
        return b""
    return extension(data, start, MEMBERS if share_name else LINK_INTEREST)


def encode_digest(time: float, digests: bytes) -> bytes:
    """RETAINED_DIGEST: time u64, Unix milliseconds | the digests of all parts. time: of the sending node's own clock."""
    return encode_frame(RETAINED_DIGEST, max(0, int(time * 1000)).to_bytes(8, "big") + digests)


def encode_stamps(low: int, high: int, listed: list[tuple[int, int]], only_these: bool) -> bytes:
    """RETAINED_STAMPS: low u64 | high u64, then hash u64 | stamp of 16 bytes for each topic with a hash from low to high."""
    parts = [low.to_bytes(8, "big"), high.to_bytes(8, "big")]
    for key, stamp in listed:
        parts.append(key.to_bytes(8, "big"))
        parts.append(stamp.to_bytes(STAMP_BYTES, "big"))
    return encode_frame(RETAINED_STAMPS, b"".join(parts), ONLY_THESE if only_these else 0)


def encode_block_header(version: int, count: int, size: int) -> bytes:
    """Head of a PUBLISH_BLOCK whose `count` packets take `size` bytes: version u8 | count u32 | packets."""
    writer = BytesWriter()  # compiled, less than half of what int.to_bytes or struct cost
    writer.append(PUBLISH_BLOCK)
    writer.append(0)
    write_i32_be(writer, size + 5)
    writer.append(version)
    write_i32_be(writer, count)
    return writer.getvalue()


def encode_packet(message: Message, version: int, property_prefix: bytes = b"") -> bytes:
    """The message as a PUBLISH (packet id 1) without its expiry: version 4 only for one without properties. Its origin is
    the last property."""
    return encode_publish(
        version,
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        False,
        1 if message.qos else 0,
        property_prefix + carried_properties(message.properties, message.origin),
    )


def encode_expiring_packet(message: Message) -> bytes:
    """As encode_packet, version 5, with a Message Expiry Interval to be filled in: see expiry_offset."""
    return encode_packet(message, 5, EXPIRY_PROPERTY)


def expiry_offset(message: Message) -> int:
    """Return where the four bytes of the expiry begin in bytes that end with encode_expiring_packet(message), counted
    from their end (negative)."""
    return -4 - len(carried_properties(message.properties, message.origin)) - len(message.payload)


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


class CopyHead:
    """number  of the copy at the node that chose, 0 where it does not wait for the end
    hops, key  as of GroupCopy
    """

    __slots__ = ("hops", "key", "number", "share_name", "topic_filter")

    def __init__(self, number: int, hops: int, key: int, share_name: bytes, topic_filter: bytes) -> None:
        self.number = number
        self.hops = hops
        self.key = key
        self.share_name = share_name
        self.topic_filter = topic_filter


def encode_copy_head(number: int, hops: int, key: int, share_name: bytes, topic_filter: bytes) -> bytes:
    """The body of a GROUP_COPY in front of its PUBLISH packet: number u64 | hops u8 | key u32 | share_length u16 | share_name |
    filter_length u16 | topic_filter. number and key are below 2^63 and 2^31."""
    writer = BytesWriter()
    write_i64_be(writer, number)
    writer.append(hops)
    write_i32_be(writer, key)
    write_i16_be(writer, len(share_name))
    writer.write(share_name)
    write_i16_be(writer, len(topic_filter))
    writer.write(topic_filter)
    return writer.getvalue()


def decode_copy_head(data: bytes, pos: int, end: int) -> tuple[CopyHead, int]:
    """(head, position of the PUBLISH packet behind it). Raises FrameError."""
    if pos + 13 > end:
        raise FrameError(f"copy for a group of {end - pos} bytes, has at least 13")
    number = int.from_bytes(data[pos : pos + 8], "big")
    hops = data[pos + 8]
    key = int.from_bytes(data[pos + 9 : pos + 13], "big")
    share_name, at = _decode_string(data, pos + 13, end)
    topic_filter, at = _decode_string(data, at, end)
    return CopyHead(number, hops, key, share_name, topic_filter), at


def is_awaited_copy(kind: int, data: bytes, start: int) -> bool:
    """Return whether a frame, whose body begins at `start`, is a GROUP_COPY with a number."""
    return kind == GROUP_COPY and data[start : start + 8] != NO_NUMBER


def encode_copies_ended(numbers: list[int]) -> bytes:
    """COPIES_ENDED: number u64 of each copy."""
    return encode_frame(COPIES_ENDED, b"".join([number.to_bytes(8, "big") for number in numbers]))


def decode_copy_numbers(data: bytes, start: int, end: int) -> list[int]:
    """The numbers of the body of a COPIES_ENDED. Raises FrameError."""
    if (end - start) % 8:
        raise FrameError(f"numbers of copies in {end - start} bytes, each has 8")
    return [int.from_bytes(data[pos : pos + 8], "big") for pos in range(start, end, 8)]


def body_start(data: bytes, flags: int, start: int, end: int) -> int:
    """Return where the body begins behind its extension area: length u16, then type u8 | length u16 | value for
    each."""
    if not flags & HAS_EXTENSIONS:
        return start
    if start + 2 > end:
        raise FrameError("frame ends inside the length of its extensions")
    after = start + 2 + (data[start] << 8) + data[start + 1]
    if after > end:
        raise FrameError(f"extensions of {after - start - 2} bytes in a frame that has {end - start - 2} left")
    return after


def extension(data: bytes, start: int, number: int) -> bytes:
    """The value of one type in the extension area at `start`, whose end `body_start` has found; b"" when it is not there."""
    end = start + 2 + (data[start] << 8) + data[start + 1]
    pos = start + 2
    while pos + 3 <= end:
        value_at = pos + 3
        after = value_at + (data[pos + 1] << 8) + data[pos + 2]
        if after > end:
            raise FrameError("extension is longer than the area")
        if data[pos] == number:
            return data[value_at:after]
        pos = after
    return b""


def decode_interest(data: bytes, start: int, end: int) -> tuple[bytes, bytes]:
    """(share_name, topic_filter), not checked for the rules of MQTT."""
    share_end = start + 2
    if share_end <= end:
        share_end += (data[start] << 8) + data[start + 1]
    if share_end > end:
        raise FrameError("interest frame ends inside its share name")
    return data[start + 2 : share_end], data[share_end:end]


def decode_stamp(value: bytes) -> int:
    """0 for a change without a stamp."""
    if value and len(value) != STAMP_BYTES:
        raise FrameError(f"stamp of {len(value)} bytes, has {STAMP_BYTES}")
    return int.from_bytes(value, "big")


def decode_digest(data: bytes, start: int, end: int) -> tuple[float, bytes]:
    """(Unix seconds, digests)."""
    if end < start + 8:
        raise FrameError("digest frame ends inside its time")
    return int.from_bytes(data[start : start + 8], "big") / 1000, data[start + 8 : end]


def decode_stamps(data: bytes, start: int, end: int) -> tuple[int, int, dict[int, int]]:
    """(low, high, stamps by hash)."""
    size = 8 + STAMP_BYTES
    if end < start + 16 or (end - start - 16) % size:
        raise FrameError(f"list of stamps of {end - start} bytes")
    listed: dict[int, int] = {}
    for pos in range(start + 16, end, size):
        listed[int.from_bytes(data[pos : pos + 8], "big")] = int.from_bytes(data[pos + 8 : pos + size], "big")
    return int.from_bytes(data[start : start + 8], "big"), int.from_bytes(data[start + 8 : start + 16], "big"), listed


def count_events(data: bytes, kind: int, flags: int, start: int, end: int) -> int:
    """Return how many event ids the frame takes whose body is data[start:end]. Also of one that must be skipped."""
    if kind != PUBLISH_BLOCK:
        return 1
    if flags & HAS_EXTENSIONS:
        start = body_start(data, flags, start, end)
    if start + BLOCK_HEAD_SIZE > end:
        raise FrameError(f"publish block of {end - start} bytes, has at least {BLOCK_HEAD_SIZE}")
    count: int = read_i32_be(data, start + 1)
    if count <= 0:
        raise FrameError("publish block without packets")
    return count


def decode_block_version(data: bytes, start: int) -> int:
    """MQTT level of the packets of a PUBLISH_BLOCK that count_events has seen; they follow at start + BLOCK_HEAD_SIZE."""
    version = data[start]
    if version not in (4, 5):
        raise FrameError(f"publish block of MQTT level {version}, may be 4 or 5")
    return version


def skip_packets(data: bytes, pos: int, end: int, count: int) -> int:
    """The position after `count` packets; `end` where fewer are left. Raises FrameError."""
    while count > 0 and pos < end:
        size, start = _packet_size(data, pos, end)
        pos = start + size
        count -= 1
    return pos


def count_packets(data: bytes, pos: int, end: int) -> int:
    """Return how many packets begin in data[pos:end]. What cannot be read counts as one more."""
    count = 0
    while pos < end:
        count += 1
        try:
            size, start = _packet_size(data, pos, end)
        except FrameError:
            return count
        pos = start + size
    return count


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


def _packet_size(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """(size, start) of the body of the PUBLISH at `pos`. Raises FrameError."""
    if pos + 2 > end or data[pos] >> 4 != 3:
        raise FrameError("publish frame without a PUBLISH packet")
    try:
        size, start = decode_varint(data, pos + 1, end)
    except MqttError as error:
        raise FrameError(error.text) from None
    if size < 0 or start + size > end:
        raise FrameError(f"PUBLISH packet is longer than its frame, {end - pos} bytes are left")
    return size, start


def decode_packet(data: bytes, pos: int, end: int, version: int, now: float) -> tuple[Message, int]:
    """(message, position after its packet) of the PUBLISH at `pos`. Raises FrameError."""
    size, start = _packet_size(data, pos, end)
    try:
        publish = decode_publish(data[pos], data, start, start + size, version)
    except MqttError as error:
        raise FrameError(error.text) from None
    if publish.topic_alias:
        raise FrameError("PUBLISH packet with a topic alias: aliases are of one client's connection")
    return carried_message(publish, now), start + size
