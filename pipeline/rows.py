"""Rows of a DataFrame as blocks that a node publishes: their columns, and checks that name a row that is not right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from broker.codec.properties import encode_publish_properties
from broker.codec.wire import VARINT_MAX
from broker.errors import MqttError
from broker.event_log.block import NO_EXPIRY, RETAIN_FLAG, SECTION_BYTES, SECTION_FIELDS, encode_block, encode_extra
from broker.routing.names import check_topic_name
from pipeline.errors import PipelineError

BLOCK_ROWS: Final = 2_000  # the most that a node takes
BLOCK_BYTES: Final = 1 << 20  # of a block, unless one row has more
QOS_DEFAULT: Final = 1
_ROW_BYTES: Final = SECTION_BYTES + 8  # beside its texts, in a block whose rows have nothing in common
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
_NO_EXTRA: Final = b""


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


class Texts:
    """A column of texts or bytes: `data` of all rows, and where each begins and ends in it. A NULL has no bytes."""

    def __init__(self, column: pa.Array) -> None:
        column = column.cast(pa.large_binary())
        _, offsets, data = column.buffers()
        first = column.offset
        self.ends = np.frombuffer(offsets, np.int64)[first : first + len(column) + 1]
        self.sizes = np.diff(self.ends)
        self.data = data

    def bytes_of(self, start: int, end: int) -> bytes:
        """Those of the rows start..end - 1."""
        first = int(self.ends[start])
        size = int(self.ends[end]) - first
        return self.data.slice(first, size).to_pybytes() if size else b""


class Rows:
    """Turns batches into blocks. `place` says in errors where the rows are."""

    def __init__(self, place: str) -> None:
        self.count = 0  # rows that were taken
        self._place = place
        self._topics: set[bytes] = set()  # that are right

    def blocks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
        """The rows in order. Raises RowError."""
        for batch in batches:
            if batch.num_rows:
                yield from self._blocks(batch)

    def _blocks(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        names = batch.schema.names
        topics, payload = batch["topic"], batch["payload"]
        self._check_nulls(topics, "topic is NULL")
        self._check_nulls(payload, "payload is NULL; an empty one is X''")
        payloads = Texts(payload)
        self._check(
            payloads.sizes > VARINT_MAX, "payload of {} bytes; a packet of MQTT has at most 268435455", payloads.sizes
        )
        flags = self._flags(batch, names)
        extras = self._extras(batch["properties"]) if "properties" in names else []
        sizes = _ROW_BYTES + Texts(topics).sizes + payloads.sizes
        if extras:
            sizes += [len(extra) for extra in extras]
        behind = np.cumsum(sizes)
        start = 0
        while start < batch.num_rows:
            before = int(behind[start - 1]) if start else 0
            end = int(np.searchsorted(behind, before + BLOCK_BYTES, "right"))
            end = min(max(end, start + 1), start + BLOCK_ROWS)
            yield self._block(topics.slice(start, end - start), payloads, flags, extras, start, end)
            self.count += end - start
            start = end

    def _block(
        self,
        topics: pa.Array,
        payloads: Texts,
        flags: npt.NDArray[np.uint32],
        extras: list[bytes],
        start: int,
        end: int,
    ) -> bytes:
        """The rows start..end - 1 of a batch; `topics` are theirs."""
        distinct = topics.dictionary_encode()
        names = distinct.dictionary.cast(pa.binary()).to_pylist()
        indices = distinct.indices.to_numpy()
        for index, name in enumerate(names):
            if name not in self._topics:
                self._check_topic(name, indices, index)
        fields = np.zeros((end - start, SECTION_FIELDS), np.uint32)
        fields[:, 1] = 1
        fields[:, 2] = indices
        fields[:, 4] = fields[:, 5] = payloads.sizes[start:end]
        fields[:, 7] = flags[start:end]
        own: dict[bytes, int] = {}
        if extras:
            fields[:, 6] = [own.setdefault(extra, len(own) + 1) if extra else 0 for extra in extras[start:end]]
        texts = [*names, *own]
        sizes = [*map(len, names), 0, 0, 0, *map(len, own)]
        counts = len(names), 1, len(own)
        heap = payloads.bytes_of(start, end)
        parts = encode_block(fields.tobytes(), np.array(sizes, np.uint32).tobytes(), texts, heap, counts, end - start)
        return b"".join(parts)

    # --- columns ---

    def _flags(self, batch: pa.RecordBatch, names: list[str]) -> npt.NDArray[np.uint32]:
        """QoS and RETAIN of each row."""
        flags = np.full(batch.num_rows, QOS_DEFAULT, np.uint32)
        if "qos" in names:
            qos = pc.fill_null(batch["qos"], QOS_DEFAULT).to_numpy(zero_copy_only=False)
            self._check((qos < 0) | (qos > 2), "qos is {}, may be 0, 1 or 2", qos)
            flags = qos.astype(np.uint32)
        if "retain" in names:
            flags[pc.fill_null(batch["retain"], False).to_numpy(zero_copy_only=False)] |= RETAIN_FLAG
        return flags

    def _extras(self, properties: pa.Array) -> list[bytes]:
        """Of each row; _NO_EXTRA for none. The list is empty when no row has one."""
        if not pc.any(pc.fill_null(pc.list_value_length(properties), 0).cast(pa.bool_())).as_py():
            return []
        return [self._extra(pairs, row) if pairs else _NO_EXTRA for row, pairs in enumerate(properties.to_pylist())]

    def _extra(self, pairs: list[dict[str, str | None] | None], row: int) -> bytes:
        found: list[tuple[str, str]] = []
        for index, pair in enumerate(pairs):
            key, value = (None, None) if pair is None else (pair["key"], pair["value"])
            if key is None or value is None:
                raise self._fault(row, f"properties[{index}] has a NULL; key and value are texts")
            found.append((key, value))
        try:
            return encode_extra(NO_EXPIRY, encode_publish_properties(user_properties=found))
        except MqttError as error:
            raise self._fault(row, f"properties: {error.text}") from None

    # --- faults ---

    def _check_nulls(self, column: pa.Array, text: str) -> None:
        if column.null_count:
            raise self._fault(pc.index(pc.is_null(column), True).as_py(), text)

    def _check(self, wrong: npt.NDArray[np.bool_], text: str, values: npt.NDArray[Any]) -> None:
        if wrong.any():
            row = int(np.argmax(wrong))
            raise self._fault(row, text.format(values[row]))

    def _check_topic(self, name: bytes, indices: npt.NDArray[Any], index: int) -> None:
        try:
            check_topic_name(name)
        except MqttError as error:
            raise self._fault(int(np.argmax(indices == index)), error.text) from None
        if len(self._topics) >= _TOPICS_KNOWN_MAX:
            self._topics.clear()
        self._topics.add(name)

    def _fault(self, row: int, text: str) -> RowError:
        """`row` counts from the first that was not taken."""
        return RowError(f"row {self.count + row} of {self._place}: {text}. Nothing of the batch was published")
