"""Payloads into columns by declared schemas: JSON, CBOR, MessagePack, Protobuf, Sparkplug B. One table for each schema.

A payload that does not decode stays in the table, in the partition `outcome=undecoded`, with its bytes and the reason.

The births of Sparkplug are state of the query, by node and part of its edge nodes. Spark saves it with each batch in the
checkpoint, and reads that of the batch before when it repeats one: a batch has the same rows each time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgpack  # type: ignore[import-untyped]
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from pipeline import delta_table, parquet_table
from pipeline.decoding.births import PARTS, EdgeNodes, Heard, heard_of, read_topic
from pipeline.decoding.paths import Undecodable
from pipeline.decoding.rows import FAULT, RESOLVED, RowDecoder, row_schema
from pipeline.decoding.schemas import MESSAGE_COLUMNS, SPARKPLUG, DeclaredSchema
from pipeline.errors import OptionError
from pipeline.jobs.archive import COMPRESSIONS, date_of
from pipeline.registry import PARQUET, TABLE_FORMATS, Context, Option, Query, streams, table_name
from pipeline.schema_file import load_schemas

FOLDER: Final = "decoded"
HEARD: Final = "heard binary"  # of EdgeNodes, as MessagePack
EDGE: Final = "edge string"
STATE: Final = "births binary"
RESOLVED_ROW: Final = (
    "node string, log string, offset bigint, time bigint, topic string, client_id string, payload binary, "
    f"{RESOLVED} binary, {FAULT} string"
)
RESOLVED_NAMES: Final = [each.split()[0] for each in RESOLVED_ROW.split(", ")]


@dataclass(frozen=True)
class DecodeOptions:
    schemas: Annotated[str, Option("YAML file that declares the schemas")] = ""
    format: Annotated[str, Option("of the tables", words=TABLE_FORMATS)] = TABLE_FORMATS[0]
    compression: Annotated[str, Option("of the Parquet files", words=COMPRESSIONS)] = "zstd"


class Births(StatefulProcessor):
    """Key: node and part of its edge nodes."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._heard = handle.getValueState("heard", HEARD)
        self._births = handle.getMapState("births", EDGE, STATE)

    def _stored(self, edge: str) -> bytes | None:
        state = self._births.getValue((edge,))
        return None if state is None else bytes(state[0])

    def _heard_before(self) -> dict[str, Heard]:
        """A checkpoint of before 27 November 2026 has births alone."""
        state = self._heard.get() if self._heard.exists() else None
        if state is None:
            return heard_of((edge, bytes(birth)) for (edge,), (birth,) in self._births.iterator())
        return {name: Heard(*each) for name, each in msgpack.unpackb(bytes(state[0])).items()}

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        frame = pd.concat(list(rows)).sort_values("offset")
        edges = EdgeNodes(self._heard_before(), self._stored)
        resolved: list[bytes | None] = []
        faults: list[str | None] = []
        for topic, payload, time_ns in zip(frame["topic"], frame["payload"], frame["time"], strict=True):
            try:
                resolved.append(edges.resolve(read_topic(topic), bytes(payload), int(time_ns)))
                faults.append(None)
            except Undecodable as reason:
                resolved.append(None)
                faults.append(str(reason))
        for name, edge in edges.changed.items():
            if edge.births:
                self._births.updateValue((name,), (edge.to_bytes(),))
            else:
                self._births.removeKey((name,))
        if edges.is_changed:
            self._heard.update((msgpack.packb(edges.heard),))
        yield frame.assign(**{RESOLVED: resolved, FAULT: faults})[RESOLVED_NAMES]


def resolve(messages: DataFrame) -> DataFrame:
    """Messages of Sparkplug with their metrics' names and data types, or why they have none."""
    levels = F.split("topic", "/")
    edge = F.concat_ws("/", F.try_element_at(levels, F.lit(2)), F.try_element_at(levels, F.lit(4)))
    columns = [name for name in MESSAGE_COLUMNS if name != "ts"]
    resolved = (
        messages.select(*columns, "payload", F.pmod(F.xxhash64(edge), F.lit(PARTS)).alias("part"))
        .groupBy("node", "part")
        .transformWithStateInPandas(Births(), RESOLVED_ROW, "Append", "None")
    )
    return resolved.withColumn("ts", F.timestamp_micros(F.floor(F.col("time") / F.lit(1000))))


def decode(messages: DataFrame, schema: DeclaredSchema) -> DataFrame:
    """Each message as a row with the columns of the schema. `messages` is a stream."""

    def batches(found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return RowDecoder(schema).batches(found)

    if schema.format == SPARKPLUG:
        messages = resolve(messages)
        more: tuple[str, ...] = (RESOLVED, FAULT)
    else:
        more = ()
    rows = messages.select(*MESSAGE_COLUMNS, "payload", *more).mapInArrow(
        batches, from_arrow_schema(row_schema(schema))
    )
    return rows.withColumn("date", date_of(F.col("time")))


@streams("decode", DecodeOptions)
def queries(context: Context, options: DecodeOptions) -> list[Query]:
    """Payloads into columns by declared schemas, a table for each; what does not decode is kept aside with the reason."""
    if "topics" in {name.lower() for name in context.source}:
        raise OptionError("topics", "", "is not for this job: each schema has a filter")
    found = []
    for schema in load_schemas(options.schemas):
        name = table_name(f"{FOLDER}-{schema.name}", options.format)
        check_columns = parquet_table.check_columns if options.format == PARQUET else delta_table.check_columns
        check_columns(Path(context.place(name)), row_schema(schema))
        rows = decode(context.stream(name, {"topics": json.dumps([schema.filter])}), schema)
        found.append(context.table(name, rows, ("outcome", "date"), options.compression, options.format))
    return found
