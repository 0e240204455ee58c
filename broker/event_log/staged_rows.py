"""Rows that a pipeline publishes: what MQTT can carry of them, their form while they are staged, and their mark in the log.

A staged file is a sequence of frames, one for each call of Stage. All integers are little endian:

    frame   magic, checksum of all that follows the checksum, bytes of the rows, number of rows
    row     u32 bytes of the payload, u32 bytes of the properties, u16 bytes of the topic, u8 flags (QoS | RETAIN << 2);
            topic, properties as in a PUBLISH packet without their length [MQTT5 3.3.2.3], payload
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from broker.codec.properties import USER_PROPERTY, encode_publish_properties
from broker.codec.wire import encode_string, encode_varint
from broker.errors import MqttError
from broker.event_log.block import RETAIN_FLAG, SECTION_FIELDS
from broker.event_log.records import block_headers, block_texts, section_fields
from broker.routing.names import check_topic_name

FRAME_MAGIC: Final = 0x524C4D47  # "GMLR"
FRAME: Final = struct.Struct("<IIII")
FRAME_CHECKED_FROM: Final = 8
ROW: Final = struct.Struct("<IIHB")

MARKER: Final = "gmqttd-pipeline"
"""User property of what a pipeline publishes: QUERY/BATCH/ROW."""
_MARKER_BEGIN: Final = bytes((USER_PROPERTY,)) + encode_string(MARKER.encode())
NUMBER_DIGITS: Final = 20  # of a batch or a row in the marker, at most
USER_PROPERTIES_MAX: Final = 1000  # of one row


class RowFault(ValueError):
    """A row that cannot be published. The text names the field and says what would be right."""


class RowLimits(NamedTuple):
    """packet_bytes_max  of the whole PUBLISH packet, marker included
    levels_max        levels of a topic name
    """

    packet_bytes_max: int
    levels_max: int
    retain_available: bool


class Row(NamedTuple):
    topic: bytes
    properties: bytes
    payload: bytes
    qos: int
    retain: bool


def marker_prefix(query: str, batch: int) -> str:
    return f"{query}/{batch}/"


def encode_row(
    query: str,
    topic: str,
    payload: bytes,
    qos: int,
    retain: bool,
    user_properties: Sequence[tuple[str, str]],
    limits: RowLimits,
) -> bytes:
    """A row as it is staged. Raises RowFault."""
    name = topic.encode()
    try:
        check_topic_name(name)
    except MqttError as error:
        raise RowFault(f"topic: {error.text}") from None
    levels = name.count(b"/") + 1
    if levels > limits.levels_max:
        raise RowFault(f"topic has {levels} levels, mqtt.max_topic_levels is {limits.levels_max}")
    if qos > 2:
        raise RowFault(f"qos is {qos}, may be 0, 1 or 2")
    if retain and not limits.retain_available:
        raise RowFault("retain must be false: mqtt.retain_available is false")
    properties = _properties(user_properties)
    marker_size = 1 + 2 + len(MARKER) + 2 + len(query) + 2 * (1 + NUMBER_DIGITS)
    properties_size = len(properties) + marker_size
    size = 2 + len(name) + 2 + len(encode_varint(properties_size)) + properties_size + len(payload)
    size += 1 + len(encode_varint(size))
    if size > limits.packet_bytes_max:
        raise RowFault(
            f"payload of {len(payload)} bytes makes a packet of {size}, mqtt.max_packet_size is {limits.packet_bytes_max}"
        )
    flags = qos | RETAIN_FLAG if retain else qos
    return b"".join((ROW.pack(len(payload), len(properties), len(name), flags), name, properties, payload))


def _properties(user_properties: Sequence[tuple[str, str]]) -> bytes:
    if not user_properties:
        return b""
    if len(user_properties) > USER_PROPERTIES_MAX:
        raise RowFault(f"properties has {len(user_properties)} pairs, may have at most {USER_PROPERTIES_MAX}")
    for index, (key, _) in enumerate(user_properties):
        if key == MARKER:
            raise RowFault(f"properties[{index}]: the node sets {MARKER} itself; leave it out")
    try:
        return encode_publish_properties(user_properties=list(user_properties))
    except MqttError as error:
        raise RowFault(f"properties: {error.text}") from None


def encode_frame(rows: Sequence[bytes]) -> bytes:
    """A frame of encoded rows."""
    body = b"".join(rows)
    checked = struct.pack("<II", len(body), len(rows)) + body
    return struct.pack("<II", FRAME_MAGIC, zlib.crc32(checked)) + checked


def read_frame_header(data: bytes) -> tuple[int, int] | None:
    """(bytes of the rows, number of rows) of the frame that these FRAME.size bytes begin; None when they begin none."""
    if len(data) < FRAME.size:
        return None
    magic, _, size, rows = FRAME.unpack_from(data)
    return (size, rows) if magic == FRAME_MAGIC else None


def frame_rows(frame: bytes) -> int:
    """Number of rows of a whole frame."""
    rows: int = FRAME.unpack_from(frame)[3]
    return rows


def is_whole_frame(frame: bytes) -> bool:
    """Whether a frame of the right size has its checksum."""
    checksum: int = FRAME.unpack_from(frame)[1]
    return zlib.crc32(memoryview(frame)[FRAME_CHECKED_FROM:]) == checksum


def rows_of(frame: bytes) -> Iterator[Row]:
    """The rows of a whole frame."""
    at = FRAME.size
    while at < len(frame):
        payload_size, properties_size, topic_size, flags = ROW.unpack_from(frame, at)
        topic_at = at + ROW.size
        properties_at = topic_at + topic_size
        payload_at = properties_at + properties_size
        at = payload_at + payload_size
        yield Row(
            frame[topic_at:properties_at],
            frame[properties_at:payload_at],
            frame[payload_at:at],
            flags & 3,
            bool(flags & RETAIN_FLAG),
        )


def marked_properties(properties: bytes, prefix: str, row: int) -> bytes:
    """Properties with the marker as the last one. `prefix` is of `marker_prefix`."""
    return properties + encode_publish_properties(user_properties=[(MARKER, f"{prefix}{row}")])


def marked_rows(blocks: bytes, prefix: str) -> Iterator[int]:
    """The rows of a batch in whole blocks of the log. A client's message with such a marker is none. Raises BlockFault."""
    wanted = prefix.encode()
    for at, header in block_headers(blocks):
        _, publishers, extras, _ = block_texts(blocks, at, header)
        sections = section_fields(blocks, at, header)
        for section in range(0, len(sections), SECTION_FIELDS):
            publisher, extra = sections[section + 3], sections[section + 6]
            if not extra or publishers[3 * publisher]:
                continue
            properties = extras[extra - 1]
            found = properties.rfind(_MARKER_BEGIN)
            if found < 0:
                continue
            value = properties[found + len(_MARKER_BEGIN) + 2 :]
            row = value.removeprefix(wanted)
            if row.isdigit() and len(row) < len(value):
                yield int(row)


class RowSet:
    """Rows of a batch, as ranges: they are logged in order, except after a fault."""

    def __init__(self) -> None:
        self.count = 0
        self._ranges: list[list[int]] = []  # first, end

    def add(self, row: int) -> None:
        if row in self:
            return
        self.count += 1
        for known in self._ranges:
            if known[1] == row:
                known[1] += 1
                return
        self._ranges.append([row, row + 1])

    def __contains__(self, row: int) -> bool:
        return any(first <= row < end for first, end in self._ranges)
