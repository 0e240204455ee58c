"""Readers of data source `mqtt`, driven as plain objects, as Spark drives them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadLimit

from event_log_node import EventLogNode
from pipeline.options import read_batch_options, read_stream_options
from pipeline.source import MqttReader, MqttStreamReader

Rows = dict[str, list[int]]  # node -> offsets


def rows_of(reader: MqttReader | MqttStreamReader, partitions: Any) -> Rows:
    found: Rows = {}
    for partition in partitions:
        for batch in reader.read(partition):
            assert isinstance(batch, pa.RecordBatch)
            for node, offset in zip(batch["node"].to_pylist(), batch["offset"].to_pylist(), strict=True):
                found.setdefault(node, []).append(offset)
    return found


def batch(node: EventLogNode, **options: str) -> Rows:
    reader = MqttReader(read_batch_options({"servers": node.address, **options}))
    return rows_of(reader, reader.partitions())


class Query:
    """What Spark does with a stream reader: batch after batch, each from the end of the one before."""

    def __init__(self, node: EventLogNode, **options: str) -> None:
        self.options = read_stream_options({"servers": node.address, "startingOffsets": "earliest", **options})
        self.reader = MqttStreamReader(self.options)
        self.at = self.reader.initialOffset()

    def batch(self, limit: ReadLimit | None = None) -> Rows:
        end = self.reader.latestOffset(self.at, limit or self.reader.getDefaultReadLimit())
        found = rows_of(self.reader, self.reader.partitions(self.at, end))
        self.at = end
        self.reader.commit(end)
        return found

    def restart(self) -> None:
        self.reader.stop()
        self.reader = MqttStreamReader(self.options)


def numbers(*span: int) -> list[int]:
    return list(range(*span))
