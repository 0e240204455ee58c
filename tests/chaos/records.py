"""The records of a node's log, read over gRPC, and the rows of an archive, read as Spark's sink log says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import grpc
import pyarrow.parquet as pq

from broker.event_log.pb import event_log_pb2 as pb
from broker.event_log.pb.event_log_pb2_grpc import EventLogStub
from broker.event_log.records import records
from oracle import Row
from waiting import DEADLINE

READ_BYTES: Final = 4 * 2**20
OPTIONS: Final = [("grpc.max_receive_message_length", 64 * 2**20)]
COLUMNS: Final = [name for name in Row._fields if name not in ("node", "user_properties")]


def read_log(address: str) -> list[Row]:
    """All records that the node at this API address serves now, decoded one by one."""
    found: list[Row] = []
    with grpc.insecure_channel(address, OPTIONS) as channel:
        stub: Any = EventLogStub(channel)
        log = stub.Describe(pb.DescribeLogRequest(), timeout=DEADLINE)
        at = log.first_offset
        while at < log.next_offset:
            request = pb.ReadLogRequest(
                log_id=log.log_id, start_offset=at, end_offset=log.next_offset, max_bytes=READ_BYTES
            )
            answer = stub.Read(request, timeout=DEADLINE)
            for record in records(answer.blocks):
                if at <= record.offset < log.next_offset:
                    properties = tuple(record.user_properties)
                    fields = {**record._asdict(), "user_properties": properties, "time": record.time_ns}
                    del fields["time_ns"]
                    found.append(Row(node=log.node, log=log.log_id, **fields))
            at = answer.next_offset
    return found


def log_end(address: str) -> tuple[str, int]:
    """Log id, and offset of the next record."""
    with grpc.insecure_channel(address, OPTIONS) as channel:
        stub: Any = EventLogStub(channel)
        log = stub.Describe(pb.DescribeLogRequest(), timeout=DEADLINE)
        return log.log_id, log.next_offset


def archive_files(folder: Path) -> list[Path]:
    """The files that Spark's sink log names; others in the folder are of batches that were not committed.

    `_spark_metadata` has a file for each batch, and from time to time one with all batches until then."""
    log = folder / "_spark_metadata"
    batches = sorted((int(path.name.partition(".")[0]), path) for path in log.iterdir() if path.name[0].isdigit())
    found: dict[str, None] = {}
    for _, path in batches:
        version, *lines = path.read_text().splitlines()
        assert version == "v1", f"{path} has version {version}"
        if path.name.endswith(".compact"):
            found.clear()
        found.update(dict.fromkeys(json.loads(line)["path"] for line in lines))
    return [Path(unquote(name.removeprefix("file://"))) for name in found]


def read_archive(folder: Path) -> list[Row]:
    rows: list[Row] = []
    for path in archive_files(folder):
        rows += _rows_of_file(path)
    return rows


def _rows_of_file(path: Path) -> Iterator[Row]:
    """The rows of one Parquet file; `node` may stand in the names of its folders."""
    names = dict(part.split("=", 1) for part in path.parts if "=" in part)
    table = pq.read_table(path, partitioning=None)
    nodes = table["node"].to_pylist() if "node" in table.column_names else [unquote(names["node"])] * table.num_rows
    columns = [table[name].to_pylist() for name in COLUMNS]
    for node, lists, *values in zip(nodes, table["user_properties"].to_pylist(), *columns, strict=True):
        properties = tuple((pair["key"], pair["value"]) for pair in lists or ())
        yield Row(node=node, user_properties=properties, **dict(zip(COLUMNS, values, strict=True)))
