"""Rows that a pipeline has staged: blocks (broker/event_log/block.py) of rows that have no marker, offset and time yet.

All sections have the delta 0 and the one publisher, whose texts are empty. Extras have no expiry, and User Properties only.
Every row that a pipeline publishes passes here, so the module is compiled.
"""

# compiled with mypyc
from __future__ import annotations

from array import array
from typing import Final, NamedTuple

from broker.codec.properties import USER_PROPERTY, encode_publish_properties, publish_properties_to_dict
from broker.errors import MqttError
from broker.event_log.block import (
    HEADER_BYTES,
    NO_EXPIRY,
    RETAIN_FLAG,
    SECTION_BYTES,
    SECTION_FIELDS,
    Block,
    BlockHeader,
    encode_block,
    encode_extra,
)
from broker.event_log.records import EXPIRY_BYTES, QOS_BITS, BlockFault, block_texts, section_fields
from broker.event_log.staged_rows import MARKER, NUMBER_DIGITS, marker_properties
from broker.routing.names import check_topic_name
from broker.slices import SLICE_STEPS

ROWS_MAX: Final = SLICE_STEPS
"""Rows of a block: what is done with all of them at once fits into a slice."""
USER_PROPERTIES_MAX: Final = 1000  # of one row
_FLAGS: Final = frozenset({0, 1, 2, RETAIN_FLAG, RETAIN_FLAG | 1, RETAIN_FLAG | 2})
_TOPIC: Final = 2
_PAYLOAD_SIZE: Final = 4
_RECORD_SIZE: Final = 5
_EXTRA: Final = 6
_FLAGS_FIELD: Final = 7


class RowFault(ValueError):
    """A row that cannot be published. The text names the field and says what would be right; `row` counts from 0 in the
    block."""

    def __init__(self, row: int, text: str) -> None:
        super().__init__(text)
        self.row = row


class RowLimits(NamedTuple):
    """packet_bytes_max  of the whole PUBLISH packet, marker included
    levels_max        levels of a topic name
    """

    packet_bytes_max: int
    levels_max: int
    retain_available: bool


class StagedBlock:
    """The rows of a whole block.

    fields   SECTION_FIELDS numbers for each section, or after `separate` for each row
    topics   names, in the order of their indices
    extras   as the log has them
    """

    def __init__(self, data: bytes, at: int, header: BlockHeader) -> None:
        """Raises BlockFault when the parts of the block are not as long as its tables say."""
        self.records = header.records
        self._data = data
        self._end = at + header.size
        tables_end = at + HEADER_BYTES + header.sections * SECTION_BYTES
        tables_end += 4 * (header.topics + 3 * header.publishers + header.extras)
        if tables_end > self._end:
            raise BlockFault(f"the tables of a block end {tables_end - self._end} bytes behind it")
        topics, publishers, extras, heap_at = block_texts(data, at, header)
        self.fields = section_fields(data, at, header)
        self.topics = topics
        self.extras = extras
        self._heap_at = heap_at
        self._publishers = publishers

    @property
    def has_retained(self) -> bool:
        return max(self.fields[_FLAGS_FIELD::SECTION_FIELDS]) >= RETAIN_FLAG

    @property
    def heap_bytes(self) -> int:
        return self._end - self._heap_at

    def heap(self, at: int, size: int) -> bytes:
        """`size` bytes of the heap from its byte `at` on."""
        at += self._heap_at
        return self._data[at : at + size]

    def separate(self) -> None:
        """Give each row a section of its own."""
        if len(self.fields) == self.records * SECTION_FIELDS:
            return
        fields = array("I")
        for at in range(0, len(self.fields), SECTION_FIELDS):
            section = self.fields[at : at + SECTION_FIELDS]
            count = section[1]
            section[1] = 1
            fields.extend(section * count)
        self.fields = fields

    # --- checks ---

    def check(self, query: str, limits: RowLimits) -> None:
        """Raise BlockFault for a block that has no rows as they are staged, and RowFault for a row that MQTT cannot carry."""
        fields = self.fields
        counts = fields[1::SECTION_FIELDS]
        if self.records > ROWS_MAX:
            raise BlockFault(f"a block has {self.records} rows, may have at most {ROWS_MAX}")
        if not fields or sum(counts) != self.records or min(counts) == 0:
            raise BlockFault("the sections of a block have not as many records as its header says")
        if self._publishers != [b"", b"", b""] or max(fields[3::SECTION_FIELDS]) > 0:
            raise BlockFault("a block of rows has one publisher, whose texts are empty")
        if max(fields[0::SECTION_FIELDS]) > 0:
            raise BlockFault("the rows of a block have times; the node sets them")
        sizes = fields[_PAYLOAD_SIZE::SECTION_FIELDS]
        if sizes != fields[_RECORD_SIZE::SECTION_FIELDS]:
            raise BlockFault("a record of the heap has more than its payload")
        heap_size = sum(sizes) if len(sizes) == self.records else self._heap_size()
        if heap_size != self.heap_bytes:
            raise BlockFault(f"the payloads of a block have {heap_size} bytes, its heap has {self.heap_bytes}")
        topics = fields[_TOPIC::SECTION_FIELDS]
        extras = fields[_EXTRA::SECTION_FIELDS]
        if max(topics) >= len(self.topics) or max(extras) > len(self.extras):
            raise BlockFault("a section names a topic or an extra that the block does not have")
        self._check_flags(limits)
        for index, topic in enumerate(self.topics):
            fault = _topic_fault(topic, limits.levels_max)
            if fault:
                raise RowFault(self._first_row(_TOPIC, index), f"topic: {fault}")
        for index, extra in enumerate(self.extras):
            fault = _extra_fault(extra)
            if fault:
                raise RowFault(self._first_row(_EXTRA, index + 1), f"properties{fault}")
        self._check_sizes(query, limits.packet_bytes_max)

    def _heap_size(self) -> int:
        fields = self.fields
        return sum([fields[at + 1] * fields[at + _RECORD_SIZE] for at in range(0, len(fields), SECTION_FIELDS)])

    def _first_row(self, field: int, value: int) -> int:
        """The first row with this value."""
        row = 0
        for at in range(0, len(self.fields), SECTION_FIELDS):
            if self.fields[at + field] == value:
                break
            row += self.fields[at + 1]
        return row

    def _check_flags(self, limits: RowLimits) -> None:
        for flags in set(self.fields[_FLAGS_FIELD::SECTION_FIELDS]):
            if flags not in _FLAGS:
                qos = flags & QOS_BITS
                text = f"qos is {qos}, may be 0, 1 or 2" if qos == QOS_BITS else f"flags are {flags}"
                raise RowFault(self._first_row(_FLAGS_FIELD, flags), text)
            if flags >= RETAIN_FLAG and not limits.retain_available:
                row = self._first_row(_FLAGS_FIELD, flags)
                raise RowFault(row, "retain must be false: mqtt.retain_available is false")

    def _check_sizes(self, query: str, packet_bytes_max: int) -> None:
        fields = self.fields
        topic = max([len(name) for name in self.topics])
        extra = max([len(each) for each in self.extras], default=0)
        if packet_bytes(query, topic, extra, max(fields[_PAYLOAD_SIZE::SECTION_FIELDS])) <= packet_bytes_max:
            return
        row = 0
        for at in range(0, len(fields), SECTION_FIELDS):
            topic = len(self.topics[fields[at + _TOPIC]])
            extra = len(self.extras[fields[at + _EXTRA] - 1]) if fields[at + _EXTRA] else 0
            check_packet_bytes(row, query, topic, extra, fields[at + _PAYLOAD_SIZE], packet_bytes_max)
            row += fields[at + 1]


def check_large(query: str, data: bytes, header: BlockHeader, limits: RowLimits) -> None:
    """Check a block that is larger than a request by its first part: it has one row, which the limits allow. Raises
    BlockFault, RowFault."""
    if header.records != 1:
        raise BlockFault(
            f"a block of {header.records} rows is larger than a request; give a large row a block of its own"
        )
    counts = header.topics, header.publishers, header.extras
    if header.sections != 1 or counts[:2] != (1, 1) or counts[2] > 1:
        raise BlockFault("a block of one row has one section, one topic, one publisher and at most one extra")
    sizes_at = HEADER_BYTES + SECTION_BYTES
    texts_at = sizes_at + 4 * (4 + header.extras)
    if len(data) < texts_at:
        raise BlockFault(f"the first part of a block has {len(data)} bytes, and must have all its tables")
    sizes = array("I", data[sizes_at:texts_at])
    payload = section_fields(data, 0, header)[_PAYLOAD_SIZE]
    size = texts_at + sum(sizes) + payload
    if size != header.size:
        raise BlockFault(f"the parts of a block make {size} bytes, its header says {header.size}")
    check_packet_bytes(0, query, sizes[0], sizes[4] if header.extras else 0, payload, limits.packet_bytes_max)


def packet_bytes(query: str, topic: int, extra: int, payload: int) -> int:
    """Bytes of the PUBLISH packet of a row with the longest marker; `topic`, `extra` and `payload` in bytes."""
    properties = max(0, extra - EXPIRY_BYTES) + 1 + 2 + len(MARKER) + 2 + len(query) + 2 * (1 + NUMBER_DIGITS)
    size = 2 + topic + 2 + _varint_bytes(properties) + properties + payload
    return size + 1 + _varint_bytes(size)


def _varint_bytes(value: int) -> int:
    """Of a Variable Byte Integer [MQTT5 1.5.5]."""
    return 1 + (value >= 1 << 7) + (value >= 1 << 14) + (value >= 1 << 21)


def check_packet_bytes(row: int, query: str, topic: int, extra: int, payload: int, packet_bytes_max: int) -> None:
    size = packet_bytes(query, topic, extra, payload)
    if size > packet_bytes_max:
        raise RowFault(
            row, f"payload of {payload} bytes makes a packet of {size}, mqtt.max_packet_size is {packet_bytes_max}"
        )


def _topic_fault(topic: bytes, levels_max: int) -> str:
    """Return what is wrong with a topic name; "" for nothing."""
    try:
        check_topic_name(topic)
    except MqttError as error:
        return error.text
    levels = topic.count(b"/") + 1
    return f"{levels} levels, mqtt.max_topic_levels is {levels_max}" if levels > levels_max else ""


def _extra_fault(extra: bytes) -> str:
    """Return what is wrong with the properties of a row; "" for nothing."""
    try:
        found = publish_properties_to_dict(extra[EXPIRY_BYTES:])
        pairs = found.get(USER_PROPERTY, [])
        assert isinstance(pairs, list)
        if encode_extra(NO_EXPIRY, encode_publish_properties(user_properties=pairs)) != extra:
            return ": they are no User Properties without an expiry"
    except MqttError as error:
        return f": {error.text}"
    if len(pairs) > USER_PROPERTIES_MAX:
        return f" has {len(pairs)} pairs, may have at most {USER_PROPERTIES_MAX}"
    for index, (key, _) in enumerate(pairs):
        if key == MARKER:
            return f"[{index}]: the node sets {MARKER} itself; leave it out"
    return ""


class MarkedRows(Block):
    """The rows of a staged block as the log has them, each with its marker. `first` is the number of the first row."""

    def __init__(self, staged: StagedBlock, prefix: str, first: int) -> None:
        super().__init__()
        self._staged = staged
        self._prefix = prefix
        self._first = first
        self.records = staged.records
        # At least what the block takes: it is to bound what waits.
        extra = max([len(extra) for extra in staged.extras], default=EXPIRY_BYTES)
        extra += len(marker_properties(prefix, first + staged.records))
        self.size += staged.records * (SECTION_BYTES + 4 + extra) + staged.heap_bytes
        self.size += 12 + sum([4 + len(topic) for topic in staged.topics])

    def take_parts(self, offset: int, earlier: int = 0) -> tuple[bytes, bytes]:
        staged = self._staged
        staged.separate()
        fields = staged.fields
        count = staged.records
        extras = self._extras()
        fields[_EXTRA::SECTION_FIELDS] = array("I", range(1, count + 1))
        sizes = array("I", [len(topic) for topic in staged.topics])
        sizes.extend((0, 0, 0))
        sizes.extend([len(extra) for extra in extras])
        return encode_block(
            fields.tobytes(),
            sizes.tobytes(),
            staged.topics + extras,
            staged.heap(0, staged.heap_bytes),
            (len(staged.topics), 1, count),
            count,
            offset,
            self.time_ns,
            0,
            earlier,
        )

    def _extras(self) -> list[bytes]:
        """Those of all rows, with their markers."""
        staged = self._staged
        own = staged.fields[_EXTRA::SECTION_FIELDS]
        found: list[bytes] = []
        none = encode_extra(NO_EXPIRY, b"")
        prefix = self._prefix
        number = self._first
        digits = 0
        begin = b""
        for index in own:
            text = str(number).encode()
            if len(text) != digits:
                digits = len(text)
                begin = marker_properties(prefix, number)[:-digits]
            found.append((staged.extras[index - 1] if index else none) + begin + text)
            number += 1
        return found
