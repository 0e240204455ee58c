"""Sink `mqtt`: tasks stage rows on one node, and a commit makes that node publish them, once for each (query, batch).

A batch that Spark runs again after a crash is staged again under another attempt, and its commit publishes what was not
published yet, or nothing.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from broker.event_log.pb import event_log_pb2 as pb
from pipeline.client import NodeClient
from pipeline.errors import NodeError, PipelineError
from pipeline.options import SinkOptions
from pipeline.rows import Rows, check_columns
from pipeline.sink_node import NODE_PATIENCE_SECONDS, kept_node

# Local properties that Spark sets for the tasks of a stream, and keeps over restarts from a checkpoint.
QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
_ATTEMPT_BITS: Final = 63

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The rows that one task staged."""

    query: str
    batch: int
    partition: int
    attempt: int
    rows: int


class Sink:
    """The base of the writers of batches and of streams. The rows name their batch, whatever `batchId` Spark gives."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns({field.name: field.dataType.simpleString() for field in schema.fields})
        self._options = options
        self._node, self._address = kept_node(options)

    def _client(self) -> NodeClient:
        return NodeClient(self._address, self._options.connection, self._node, NODE_PATIENCE_SECONDS)

    def _stage(self, query: str, batch: int, batches: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        # Spark counts attempts anew after a restart; rows of an attempt that was cut short must not be among these.
        attempt = secrets.randbits(_ATTEMPT_BITS)
        rows = Rows(f"partition {partition}, batch {batch} of query {query}")
        with self._client() as client:
            client.stage(query, batch, partition, attempt, rows.blocks(batches))
        return Staged(query, batch, partition, attempt, rows.count)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int = 0) -> None:
        staged = [message for message in messages if isinstance(message, Staged)]
        if not any(message.rows for message in staged):
            return
        with self._client() as client:
            client.commit(
                pb.CommitRequest(
                    query=staged[0].query,
                    batch=staged[0].batch,
                    partitions=[
                        pb.StagedPartition(partition=each.partition, attempt=each.attempt, rows=each.rows)
                        for each in sorted(staged, key=lambda each: each.partition)
                    ],
                )
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int = 0) -> None:
        """Spark calls this also when the commit failed; a commit that was begun stays, and goes on with the next try."""
        for message in messages:
            if isinstance(message, Staged):
                try:
                    with NodeClient(self._address, self._options.connection, self._node) as client:
                        client.abort(message.query, message.batch)
                except NodeError as error:
                    _log.warning("rows of batch %d of query %s stay staged: %s", message.batch, message.query, error)
                return


class MqttWriter(Sink, DataSourceArrowWriter):
    """`df.write.format("mqtt")`: the query is option `jobId`, the batch is option `batchId`."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._stage(self._options.job_id, self._options.batch_id, iterator)


class MqttStreamWriter(Sink, DataSourceStreamArrowWriter):
    """`df.writeStream.format("mqtt")`: query and batch are Spark's."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_PROPERTY) if context is not None else None
        batch = context.getLocalProperty(BATCH_PROPERTY) if context is not None else None
        if not query or not batch:
            raise PipelineError(
                f"Spark does not tell the task its {QUERY_PROPERTY} and {BATCH_PROPERTY}; this needs pyspark 4.3"
            )
        return self._stage(query, int(batch), iterator)
