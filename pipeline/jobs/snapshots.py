"""Snapshots of the subscriptions of all nodes, as Parquet files NODE/TIME.parquet. `matrix` joins the log with them.

A snapshot that equals the one before is not written again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote, unquote

import grpc
import pyarrow as pa
import pyarrow.parquet as pq

from broker.api.pb import admin_pb2
from broker.api.pb.admin_pb2_grpc import SubscriptionServiceStub
from gmqttctl.channel import open_channel
from gmqttctl.connection import Connection, read_connection
from pipeline.client import ANSWER_SECONDS
from pipeline.cluster import Cluster
from pipeline.durable import publish_file
from pipeline.errors import NodeError
from pipeline.registry import Context, Option, works
from pipeline.subscriptions import Subscription

FOLDER: Final = "snapshots"
PAGE_ROWS: Final = 1000  # the most that a node gives
SCHEMA: Final = pa.schema([("node", pa.string()), ("client", pa.string()), ("filter", pa.string())])


@dataclass(frozen=True)
class SnapshotOptions:
    keep: Annotated[float, Option("snapshots that are older are removed", 1.0, is_duration=True)] = 2_592_000.0


def ask(node: str, address: str, connection: Connection) -> list[Subscription]:
    """Return what the clients of a node subscribe to now. Raises NodeError."""
    found: set[Subscription] = set()  # a client that comes meanwhile moves others to the next page
    with open_channel(address, connection) as channel:
        service = SubscriptionServiceStub(channel)
        page = 1
        while True:
            request = admin_pb2.ListSubscriptionRequest(page_size=PAGE_ROWS, page=page)
            try:
                answer: Any = service.List(request, timeout=ANSWER_SECONDS, metadata=connection.metadata)
            except grpc.RpcError as error:
                raise NodeError(node, f"gave no subscriptions at {address}: {error.details()}") from error
            found.update(Subscription(node, each.client_id, each.topic_name) for each in answer.subscriptions)
            if len(answer.subscriptions) < PAGE_ROWS:
                return sorted(found)
            page += 1


def write(folder: Path, node: str, time_ns: int, subscriptions: list[Subscription]) -> bool:
    """Write a snapshot unless it equals the last one; whether it was written."""
    place = folder / quote(node, safe="")
    place.mkdir(parents=True, exist_ok=True)
    times = snapshot_times(place)
    if times and read_snapshot(place, times[-1]) == subscriptions:
        return False
    part = place / f".{time_ns}"
    columns = list(zip(*subscriptions, strict=True)) or [(), (), ()]
    pq.write_table(pa.table([pa.array(each, pa.string()) for each in columns], SCHEMA), part)
    publish_file(part, place / f"{time_ns}.parquet")
    return True


def snapshot_times(place: Path) -> list[int]:
    return sorted(int(path.stem) for path in place.glob("*.parquet"))


def read_snapshot(place: Path, time_ns: int) -> list[Subscription]:
    table = pq.read_table(place / f"{time_ns}.parquet")
    return [Subscription(**each) for each in table.to_pylist()]


def read_snapshots(folder: Path, since_ns: int = 0) -> dict[str, dict[int, list[Subscription]]]:
    """node -> time -> subscriptions: what was taken since then, and the last one before."""
    found = {}
    for place in sorted(folder.glob("*")):
        times = snapshot_times(place)
        before = [each for each in times if each <= since_ns][-1:]
        found[unquote(place.name)] = {
            each: read_snapshot(place, each) for each in (*before, *(each for each in times if each > since_ns))
        }
    return {node: times for node, times in found.items() if times}


def remove_old(folder: Path, before_ns: int) -> None:
    """Remove what was taken before, except for the last one of each node: it may still be valid."""
    for place in folder.glob("*"):
        for each in snapshot_times(place)[:-1]:
            if each < before_ns:
                (place / f"{each}.parquet").unlink()


def take(folder: Path, connection: Connection, now_ns: int) -> Iterator[str]:
    """Take a snapshot of each node; a line for each. Raises PipelineError when no node answers."""
    with closing(Cluster(connection)) as cluster:
        members = cluster.ask()
    for name, reason in sorted(members.away.items()):
        yield f"{name}: no snapshot, it is away ({reason})"
    for name in sorted(members.without_log):
        yield f"{name}: no snapshot, it keeps no event log"
    for node, state in sorted(members.nodes.items()):
        subscriptions = ask(node, state.address, connection)
        what = "written" if write(folder, node, now_ns, subscriptions) else "as before"
        yield f"{node}: {len(subscriptions)} subscriptions, {what}"


@works("snapshots", SnapshotOptions)
def work(context: Context, options: SnapshotOptions) -> list[str]:
    """Snapshots of the subscriptions of all nodes, for `matrix`; run it with --every."""
    folder = context.folder / FOLDER
    now_ns = time.time_ns()
    lines = list(take(folder, read_connection(context.source), now_ns))
    remove_old(folder, now_ns - round(options.keep * 1e9))
    return lines
