"""Sink `mqtt`: tasks stage rows on one node, and a commit makes that node publish them, once for each (query, batch).

A batch that Spark runs again after a crash is staged again under another attempt, and its commit publishes what was not
published yet, or nothing.

A query keeps the node that publishes its rows: only that node knows which batches it published. A stream writes the node's name
into its checkpoint folder, so that it finds the node again after a restart, whatever its options say then.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from broker.event_log.pb import event_log_pb2 as pb
from pipeline.client import NodeClient
from pipeline.cluster import Cluster
from pipeline.durable import replace_text
from pipeline.errors import NodeError, OptionError, PipelineError
from pipeline.options import SinkOptions
from pipeline.rows import Rows, check_columns
from pipeline.stream_task import batch_of_task

NODE_FILE: Final = "mqtt-sink.json"
NODE_PATIENCE_SECONDS: Final = 60.0  # a batch waits for its node, which may be restarted
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
        rows = sum(each.rows for each in staged)
        with self._client() as client:
            answer = client.commit(
                pb.CommitRequest(
                    query=staged[0].query,
                    batch=staged[0].batch,
                    partitions=[
                        pb.StagedPartition(partition=each.partition, attempt=each.attempt, rows=each.rows)
                        for each in sorted(staged, key=lambda each: each.partition)
                    ],
                )
            )
        if answer.was_committed and answer.rows != rows:  # records that were lost since, or an older checkpoint
            _log.warning(
                "batch %d of query %s was published before, with %d rows; it has %d now, which are not published",
                staged[0].batch,
                staged[0].query,
                answer.rows,
                rows,
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
        return self._stage(*batch_of_task(), iterator)


# --- the node ---


def kept_node(options: SinkOptions) -> tuple[str, str]:
    """(name, address) of the node that publishes. Raises PipelineError.

    Of a stream the name is that of the checkpoint folder; the first call chooses it and writes it there.
    """
    with closing(Cluster(options.connection)) as cluster:
        file = _node_file(options)
        kept = read_node(file) if file is not None else ""
        if kept and options.node and kept != options.node:
            raise OptionError(
                "node",
                options.node,
                f"is not {kept}, which published the earlier batches of this query ({file}); "
                "to change the node give the query a checkpoint folder of its own",
            )
        name = kept or options.node
        if not name and options.job_id:
            name = _first_server(options)
        if not kept:
            members = cluster.ask()
            name = name or next(iter(members.nodes))
            known = members.nodes.keys() | members.away.keys()
            if name not in known:
                raise OptionError("node", name, f"is no member; there are {', '.join(sorted(known))}")
        members = cluster.wait_for({name}, NODE_PATIENCE_SECONDS)
        if file is not None and not kept:
            write_node(file, name)
        return name, members.nodes[name].address


def _first_server(options: SinkOptions) -> str:
    """The node behind the first of `servers`: a batch write has no checkpoint, and its second run must find the same node.
    Raises NodeAway."""
    with NodeClient(options.connection.servers[0], options.connection, patience=NODE_PATIENCE_SECONDS) as client:
        return client.describe().node


def _node_file(options: SinkOptions) -> Path | None:
    """None where option `node` names the node, and a restart finds it there."""
    folder = urlsplit(options.checkpoint)
    if options.job_id or (options.node and folder.scheme not in ("", "file")):
        return None
    if not options.checkpoint:
        if options.node:
            return None
        raise OptionError("checkpointLocation", "", "is not given as an option of this query; give it, or option node")
    if folder.scheme not in ("", "file"):
        raise OptionError("node", "", f"is empty, and the checkpoint {options.checkpoint} is no folder of this machine")
    return Path(unquote(folder.path), NODE_FILE)


def read_node(file: Path) -> str:
    """The node's name; "" when the file is not there. Raises PipelineError."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise PipelineError(f"{file} cannot be read: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("node"), str) or not found["node"]:
        raise PipelineError(f'{file} has {found!r}, and should have {{"node": NAME}}')
    return str(found["node"])


def write_node(file: Path, node: str) -> None:
    """On disk when the call returns. Raises PipelineError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(file, json.dumps({"node": node}))
    except OSError as error:
        raise PipelineError(f"the checkpoint folder {file.parent} cannot be written: {error}") from None
