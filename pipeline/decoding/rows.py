"""Messages -> rows with the columns of a declared schema. A message whose payload does not decode keeps it, with the reason.

The columns of the messages stay Arrow arrays; payloads are decoded one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.decoding.formats import decoder
from pipeline.decoding.paths import Undecodable, find
from pipeline.decoding.schemas import MESSAGE_COLUMNS, DeclaredSchema
from pipeline.decoding.values import TYPES
from pipeline.schema import ARROW_SCHEMA

DECODED: Final = "decoded"
UNDECODED: Final = "undecoded"
REASON_MAX: Final = 200  # characters
# Of messages whose payload was changed on the way here: what is decoded instead of it, or why not.
RESOLVED: Final = "resolved"
FAULT: Final = "fault"


def row_schema(schema: DeclaredSchema) -> pa.Schema:
    """All columns of the rows may be NULL: what did not decode has no values."""
    return pa.schema(
        [
            *(ARROW_SCHEMA.field(name).with_nullable(True) for name in MESSAGE_COLUMNS),
            *(pa.field(each.name, TYPES[each.type].arrow) for each in schema.columns),
            pa.field("payload", pa.binary()),
            pa.field("reason", pa.string()),
            pa.field("outcome", pa.string()),
        ]
    )


class RowDecoder:
    """Raises SchemaError when it is made."""

    def __init__(self, schema: DeclaredSchema) -> None:
        self.schema = row_schema(schema)
        self._columns = [(each, TYPES[each.type]) for each in schema.columns]
        self._decode = decoder(schema)

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(self.batch, batches)

    def batch(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """A row for each message, in order."""
        names = messages.schema.names
        payloads = messages[RESOLVED if RESOLVED in names else "payload"].to_pylist()
        faults = messages[FAULT].to_pylist() if FAULT in names else [None] * len(payloads)
        values: list[list[Any]] = [[] for _ in self._columns]
        nothing = [None] * len(self._columns)
        reasons: list[str | None] = []
        for payload, fault in zip(payloads, faults, strict=True):
            row, reason = (nothing, fault) if fault is not None else self.row(payload)
            for column, value in zip(values, row, strict=True):
                column.append(value)
            reasons.append(None if reason is None else reason[:REASON_MAX])
        reason_array = pa.array(reasons, pa.string())
        is_decoded = pc.is_null(reason_array)
        arrays = [
            *(messages[name].cast(self.schema.field(name).type) for name in MESSAGE_COLUMNS),
            *(pa.array(found, type_.arrow) for found, (_, type_) in zip(values, self._columns, strict=True)),
            pc.if_else(is_decoded, None, messages["payload"].cast(pa.binary())),
            reason_array,
            pc.if_else(is_decoded, DECODED, UNDECODED),
        ]
        return pa.record_batch(arrays, schema=self.schema)

    def row(self, payload: bytes) -> tuple[list[Any], str | None]:
        """(values of the declared columns, None), or (NULLs, why it does not decode)."""
        row: list[Any] = []
        try:
            tree = self._decode(payload)
            for column, type_ in self._columns:
                try:
                    value = find(tree, column.steps)
                    if value is None and column.required:
                        raise Undecodable("is required and missing")
                    row.append(None if value is None else type_.fit(value))
                except Undecodable as reason:
                    raise Undecodable(f"column {column.name} {column.type}: {reason}") from None
        except Undecodable as reason:
            return [None] * len(self._columns), str(reason)
        return row, None
