"""Blocks of an event log -> Arrow record batches with the columns of data source `mqtt`.

A batch has at most `rows_max` rows and about `bytes_max` bytes, or one row. So no column comes near the 2 GiB that
offsets of an Arrow array can express, whatever the size of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker.errors import MqttError
from broker.event_log.block import RETAIN_FLAG
from broker.event_log.records import Extra, decode_extra
from broker.event_log.selection import Selection
from broker.event_log.staged_rows import MARKER
from pipeline.narrow import ALL, EVERYTHING, Narrow
from pipeline.schema import ARROW_SCHEMA, schema_of
from pipeline.sections import BlockFault, Integers, Sections, binary_at, read_sections, spans

ROWS_MAX: Final = 32_768
BYTES_MAX: Final = 32 << 20
# Of a row: columns of fixed size, offsets of arrays, node and log.
_ROW_BYTES: Final = 128
_QOS_BITS: Final = 3


class FrameFault(Exception):
    """Blocks that cannot be decoded; the text names node, log and offset."""


class Frames:
    """Decodes the blocks of one log.

    topics            topic filters, valid ones; () for all topics
    include_pipeline  whether records that a pipeline published are wanted
    columns           names of those of the batches, the others are not decoded; () for all
    narrow            what else is wanted
    """

    def __init__(
        self,
        node: str,
        log_id: str,
        topics: Sequence[str] = (),
        include_pipeline: bool = False,
        rows_max: int = ROWS_MAX,
        bytes_max: int = BYTES_MAX,
        columns: Sequence[str] = (),
        narrow: Narrow = ALL,
    ) -> None:
        self._node = node
        self._log_id = log_id
        self._include_pipeline = include_pipeline
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._schema = schema_of(columns)
        self._narrow = narrow
        self._selection = Selection([topic_filter.encode() for topic_filter in topics]) if topics else None

    def decode(self, blocks: bytes, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The wanted records of start <= offset < end. Raises FrameFault."""
        try:
            sections = read_sections(blocks)
            sections.trim(start, end)
            self._leave_out(sections)
            extras = _Extras(sections)
            if not self._include_pipeline:
                # A client may send the marker, too; the node's own publishes have no client id.
                has_client = pc.binary_length(sections.publishers).to_numpy()[0::3] > 0
                sections.keep(~extras.has_marker[sections.extra] | has_client[sections.publisher])
            if len(sections):
                yield from self._batches(blocks, sections, extras)
        except (BlockFault, MqttError, pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise FrameFault(
                f"node {self._node}, log {self._log_id}, read from offset {start}: {error}. The log is damaged there, "
                "or it was written by another version"
            ) from error

    def _leave_out(self, sections: Sections) -> None:
        """Facts from the sections and the dictionary of topics."""
        narrow = self._narrow
        if self._selection is not None or not narrow.takes_all_topics:
            wanted = np.array([self._has(topic) for topic in sections.topics.to_pylist()], np.bool_)
            sections.keep(wanted[sections.topic])
        if narrow.times_ns != EVERYTHING:
            sections.keep((sections.time_ns >= narrow.times_ns.low) & (sections.time_ns < narrow.times_ns.high))
        if narrow.qos != EVERYTHING:
            qos = sections.flags & _QOS_BITS
            sections.keep((qos >= narrow.qos.low) & (qos < narrow.qos.high))
        if narrow.retain is not None:
            sections.keep((sections.flags & RETAIN_FLAG != 0) == narrow.retain)

    def _has(self, topic: bytes) -> bool:
        return (self._selection is None or self._selection.has(topic)) and self._narrow.has_topic(topic.decode())

    def _batches(self, blocks: bytes, sections: Sections, extras: _Extras) -> Iterator[pa.RecordBatch]:
        topics = sections.topics.cast(pa.string())
        names = sections.publishers.cast(pa.string())
        names = pc.if_else(pc.equal(names, ""), None, names)
        row_bytes = sections.row_bytes + _ROW_BYTES
        rows = np.cumsum(sections.count)
        size = np.cumsum(sections.count * row_bytes)
        begin = 0
        while begin < rows[-1]:
            # The section of row `begin`, and the first row that does not fit any more.
            first = int(np.searchsorted(rows, begin, "right"))
            full = size[first] - (rows[first] - begin) * row_bytes[first] + self._bytes_max
            last = min(int(np.searchsorted(size, full, "right")), len(rows) - 1)
            end = int(rows[last] - max(0, -(-(size[last] - full) // row_bytes[last])))
            end = max(begin + 1, min(end, begin + self._rows_max))
            last = int(np.searchsorted(rows, end, "left"))
            count = sections.count[first : last + 1].copy()
            count[-1] -= rows[last] - end
            skipped = sections.count[first] - (rows[first] - begin)
            count[0] -= skipped
            yield self._batch(blocks, sections, slice(first, last + 1), count, int(skipped), topics, names, extras)
            begin = end

    def _batch(
        self,
        blocks: bytes,
        sections: Sections,
        which: slice,
        count: Integers,
        skipped: int,
        topics: pa.StringArray,
        names: pa.StringArray,
        extras: _Extras,
    ) -> pa.RecordBatch:
        """The rows of sections `which`, `count` records of each; of the first one after `skipped` records."""
        offset = sections.offset[which].copy()
        at = sections.at[which].copy()
        record_size = sections.record_size[which]
        offset[0] += skipped
        at[0] += skipped * record_size[0]
        section = np.repeat(np.arange(len(count)), count)
        number = spans(np.zeros_like(count), count)  # of the record in its section
        payload_size = sections.payload_size[which]
        payload_at = (at + record_size - payload_size)[section] + number * record_size[section]
        time_ns = sections.time_ns[which][section]
        flags = sections.flags[which][section]
        publisher = 3 * sections.publisher[which][section]
        extra = sections.extra[which][section]
        rows = len(section)
        made: dict[str, Callable[[], pa.Array]] = {
            "node": lambda: pa.repeat(self._node, rows),
            "log": lambda: pa.repeat(self._log_id, rows),
            "offset": lambda: pa.array(offset[section] + number),
            "time": lambda: pa.array(time_ns),
            "ts": lambda: pa.array(time_ns // 1000, pa.timestamp("us", tz="UTC")),
            "topic": lambda: topics.take(pa.array(sections.topic[which][section])),
            "payload": lambda: binary_at(blocks, payload_at, payload_size[section]),
            "qos": lambda: pa.array((flags & _QOS_BITS).astype(np.int32)),
            "retain": lambda: pa.array(flags & RETAIN_FLAG != 0),
            "client_id": lambda: names.take(pa.array(publisher)),
            "user_name": lambda: names.take(pa.array(publisher + 1)),
            "origin": lambda: names.take(pa.array(publisher + 2)),
        }
        arrays = [
            made[name]() if name in made else extras.column(name, extra)  # as they are asked for
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Extras:
    """The extras that sections use, decoded once each. Index -1 is that of records without one."""

    _NAMES: Final = ("content_type", "response_topic", "correlation_data", "user_properties", "expiry")

    def __init__(self, sections: Sections) -> None:
        used = np.unique(sections.extra[sections.extra >= 0])
        decoded: list[Extra | None] = [None] * (len(sections.extras) + 1)
        for index, extra in zip(used.tolist(), sections.extras.take(pa.array(used)).to_pylist(), strict=True):
            decoded[index] = decode_extra(extra)
        self.has_marker = np.array(
            [extra is not None and any(key == MARKER for key, _ in extra.user_properties) for extra in decoded],
            np.bool_,
        )
        self._is_empty = not len(used)
        if not self._is_empty:
            none = (None,) * len(self._NAMES)
            rows = [
                (*extra[:3], extra.user_properties or None, extra.expiry) if extra is not None else none
                for extra in decoded
            ]
            self._columns = {
                name: pa.array(column, ARROW_SCHEMA.field(name).type)
                for name, column in zip(self._NAMES, zip(*rows, strict=True), strict=True)
            }

    def column(self, name: str, extra: Integers) -> pa.Array:
        """A column of rows with these indices."""
        if self._is_empty or not (extra >= 0).any():
            return pa.nulls(len(extra), ARROW_SCHEMA.field(name).type)
        column = self._columns[name]
        return column.take(pa.array(np.where(extra >= 0, extra, len(column) - 1)))
