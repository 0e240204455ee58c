"""Rows of a DataFrame as rows that a node publishes: their columns, and checks that name a row that is not right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from broker.codec.wire import STRING_BYTES_MAX
from broker.errors import MqttError
from broker.event_log.pb import event_log_pb2 as pb
from broker.routing.names import check_topic_name
from pipeline.errors import PipelineError

# A node takes requests of 4 MiB; larger rows fit into none.
ROW_BYTES_MAX: Final = (4 << 20) - (64 << 10)
REQUEST_BYTES: Final = 1 << 20  # of rows in a request, unless one row has more
REQUEST_ROWS: Final = 5_000
QOS_DEFAULT: Final = 1
_TOPICS_KNOWN_MAX: Final = 100_000

# Types as DataFrame.dtypes names them.
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "payload": ("binary", "string"),
    "qos": ("tinyint", "smallint", "int", "bigint"),
    "retain": ("boolean",),
    "properties": ("array<struct<key:string,value:string>>",),
}
NEEDED: Final = ("topic", "payload")


class RowError(PipelineError):
    """A row that cannot be published; the text names it."""


def check_columns(types: Mapping[str, str]) -> None:
    """Raise PipelineError for columns (name -> type) that the sink does not take."""
    known = "; ".join(f"{name} {' or '.join(kinds)}" for name, kinds in COLUMNS.items())
    for name in NEEDED:
        if name not in types:
            raise PipelineError(f"column {name} is missing. The sink takes: {known}")
    for name, kind in types.items():
        if name not in COLUMNS:
            raise PipelineError(f"column {name} is unknown to the sink; leave it out with select. It takes: {known}")
        if kind not in COLUMNS[name]:
            raise PipelineError(f"column {name} is {kind}, and must be {' or '.join(COLUMNS[name])}")


class Rows:
    """Turns batches into requests. `place` says in errors where the rows are."""

    def __init__(self, place: str) -> None:
        self.count = 0  # rows that were taken
        self._place = place
        self._topics: set[str] = set()  # that are right

    def requests(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[pb.SinkRow]]:
        """The rows in order, in portions for one request each. Raises RowError."""
        rows: list[pb.SinkRow] = []
        size = 0
        for batch in batches:
            for row in self._rows(batch):
                row_bytes = row.ByteSize()
                if rows and (size + row_bytes > REQUEST_BYTES or len(rows) >= REQUEST_ROWS):
                    yield rows
                    rows, size = [], 0
                rows.append(row)
                size += row_bytes
        if rows:
            yield rows

    def _rows(self, batch: pa.RecordBatch) -> Iterator[pb.SinkRow]:
        names = batch.schema.names
        nothing: list[Any] = [None] * batch.num_rows
        columns = (batch[name].to_pylist() if name in names else nothing for name in COLUMNS)
        for topic, payload, qos, retain, properties in zip(*columns, strict=True):
            self._check_topic(topic)
            if payload is None:
                raise self._fault("payload is NULL; an empty one is X''")
            content = payload.encode() if isinstance(payload, str) else payload
            if qos is not None and not 0 <= qos <= 2:
                raise self._fault(f"qos is {qos}, may be 0, 1 or 2")
            row = pb.SinkRow(
                topic=topic,
                payload=content,
                qos=QOS_DEFAULT if qos is None else qos,
                retain=bool(retain),
                properties=self._properties(properties) if properties else None,
            )
            if row.ByteSize() > ROW_BYTES_MAX:
                raise self._fault(
                    f"it has {row.ByteSize()} bytes (payload {len(content)}), a node takes {ROW_BYTES_MAX}"
                )
            yield row
            self.count += 1

    def _check_topic(self, topic: str | None) -> None:
        if topic in self._topics:
            return
        if topic is None:
            raise self._fault("topic is NULL")
        try:
            check_topic_name(topic.encode())
        except MqttError as error:
            raise self._fault(str(error)) from None
        if len(self._topics) >= _TOPICS_KNOWN_MAX:
            self._topics.clear()
        self._topics.add(topic)

    def _properties(self, properties: list[dict[str, str | None] | None]) -> list[pb.SinkProperty]:
        found = []
        for index, pair in enumerate(properties):
            key, value = (None, None) if pair is None else (pair["key"], pair["value"])
            if key is None or value is None:
                raise self._fault(f"properties[{index}] has a NULL; key and value are texts")
            for text in (key, value):
                if len(text.encode()) > STRING_BYTES_MAX:
                    raise self._fault(f"properties[{index}] has a text of more than {STRING_BYTES_MAX} bytes")
            found.append(pb.SinkProperty(key=key, value=value))
        return found

    def _fault(self, text: str) -> RowError:
        return RowError(f"row {self.count} of {self._place}: {text}. Nothing of the batch was published")
