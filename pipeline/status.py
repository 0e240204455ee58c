"""The progress of the queries of a folder, beside what the nodes have, and what they kept aside: `gmqttctl pipeline
status`. No Spark is started.

A checkpoint of Spark has a file `offsets/N` for each batch that was planned (a version, the batch's metadata, then one line
for each source) and a file `commits/N` for each one that is done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from broker.event_log.block import read_header
from gmqttctl.connection import read_connection
from gmqttctl.text import aligned, duration, printable
from pipeline.aside import aside_text, kept_aside
from pipeline.cluster import Cluster, Members
from pipeline.errors import NodeError, PipelineError
from pipeline.offsets import NodeState, Offsets, decode_offsets

# Offsets of a source that read nothing yet.
NOTHING: Final = ("-", "")
LOST: Final = "its log id changed"


@dataclass(frozen=True)
class Lag:
    """offset   next one that the query reads; `messages` are between there and the node's next one
    seconds   from the first message that was not read to the node's time; None when it is not known
    state     "ok", or why the lag is not known
    """

    query: str
    node: str
    offset: int | None
    messages: int | None
    seconds: float | None
    state: str


@dataclass(frozen=True)
class Checkpoint:
    """batch        last one that is done, -1 before the first
    offsets       where the next one begins
    watermark_ms  Unix ms; 0 for queries without windows
    done_at       when the batch was done
    """

    query: str
    batch: int
    offsets: Offsets
    watermark_ms: int
    done_at: datetime | None


def read_checkpoints(folder: Path) -> list[Checkpoint]:
    """Of all queries in a folder. Raises PipelineError."""
    base = folder / "checkpoints"
    if not base.is_dir():
        raise PipelineError(f"{folder} has no checkpoints: no pipeline ran there")
    return [read_checkpoint(place) for place in sorted(base.iterdir()) if place.is_dir()]


def read_checkpoint(place: Path) -> Checkpoint:
    """Raises PipelineError."""
    batch = max((int(path.name) for path in (place / "commits").glob("[0-9]*")), default=-1)
    if batch < 0:
        return Checkpoint(place.name, -1, {}, 0, None)
    path = place / "offsets" / str(batch)
    try:
        _, metadata, *sources = path.read_text(encoding="utf-8").splitlines()
        watermark_ms = int(json.loads(metadata)["batchWatermarkMs"])
        found = [json.loads(source) for source in sources if source not in NOTHING]
        done_at = datetime.fromtimestamp((place / "commits" / str(batch)).stat().st_mtime, UTC)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PipelineError(f"{path} is no offset file of Spark: {error}") from None
    return Checkpoint(place.name, batch, decode_offsets(found[0]) if found else {}, watermark_ms, done_at)


def lags(checkpoint: Checkpoint, members: Members, cluster: Cluster) -> list[Lag]:
    """One for each node that the query or the cluster knows."""
    found = []
    for node in sorted(checkpoint.offsets.keys() | members.nodes.keys()):
        position, state = checkpoint.offsets.get(node), members.nodes.get(node)
        if state is None:
            why = members.away.get(node)
            reason = f"away ({why})" if why else "no member"
            found.append(Lag(checkpoint.query, node, position.offset if position else None, None, None, reason))
        elif position is None:
            count = state.next_offset - state.first_offset
            found.append(Lag(checkpoint.query, node, None, count, None, "not read yet" if count else "ok"))
        elif (carried := state.carry(position)) is None:
            found.append(Lag(checkpoint.query, node, position.offset, None, None, LOST))
        else:
            count = max(0, state.next_offset - carried.offset)
            gone = state.first_offset - carried.offset
            seconds = 0.0 if not count else None if gone > 0 else seconds_behind(cluster, state, carried.offset)
            text = f"{gone} messages are gone" if gone > 0 else "ok"
            if carried.offset < position.offset:
                text = f"messages from offset {carried.offset} on may be others than those that were read"
            found.append(Lag(checkpoint.query, node, carried.offset, count, seconds, text))
    return found


def seconds_behind(cluster: Cluster, state: NodeState, offset: int) -> float | None:
    """From the time of the block that has this offset, or comes next, to the node's time."""
    client = cluster.client(state)
    try:
        for _, _, blocks in client.read(state.log_id, offset, state.next_offset, max_bytes=1):
            if blocks and (header := read_header(blocks)) is not None:
                return max(0.0, (client.describe().now_ns - header.time_ns) / 1e9)
    except NodeError:
        pass
    return None


def status(folder: Path, connection: Mapping[str, str]) -> dict[str, Any]:
    """Raises PipelineError."""
    checkpoints = read_checkpoints(folder)
    with closing(Cluster(read_connection(connection))) as cluster:
        members = cluster.ask()
        return {
            "queries": [
                {
                    "query": each.query,
                    "batch": each.batch,
                    "done_at": each.done_at.isoformat(timespec="seconds") if each.done_at else None,
                    "watermark": _instant(each.watermark_ms),
                    "aside": kept_aside(folder / each.query),
                    "nodes": [asdict(lag) for lag in lags(each, members, cluster)],
                }
                for each in checkpoints
            ]
        }


def _instant(milliseconds: int) -> str | None:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds") if milliseconds else None


def status_lines(found: Mapping[str, Any]) -> list[str]:
    """The result of `status` for people."""
    rows = [("query", "batch", "watermark", "node", "offset", "lag", "behind", "state", "aside")]
    for query in found["queries"]:
        rows += [
            (
                query["query"],
                str(query["batch"]),
                query["watermark"] or "",
                printable(lag.get("node", "")),
                _number(lag.get("offset")),
                _number(lag.get("messages")),
                "" if lag.get("seconds") is None else duration(lag["seconds"]),
                lag.get("state", ""),
                aside_text(query["aside"]) if not index else "",
            )
            for index, lag in enumerate(query["nodes"] or [{}])
        ]
    return aligned(rows)


def _number(value: int | None) -> str:
    return "" if value is None else str(value)
