"""The event logs of all nodes, described: `gmqttctl log describe`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.event_log.pb import event_log_pb2 as pb
from gmqttctl.connection import read_connection
from gmqttctl.text import aligned, duration, instant, printable, size
from pipeline.cluster import Cluster

LOG_ID_SHOWN: Final = 8  # characters


def describe_logs(connection: Mapping[str, str]) -> dict[str, Any]:
    """All members, the logs of those that answer first. Raises PipelineError when no node with a log answers."""
    cluster = Cluster(read_connection(connection))
    try:
        members = cluster.ask()
        nodes = {
            name: (state.address, cluster.client(state).describe()) for name, state in sorted(members.nodes.items())
        }
    finally:
        cluster.close()
    return {
        "nodes": [_node_fields(address, found) for address, found in nodes.values()],
        "away": [{"node": name, "reason": reason} for name, reason in sorted(members.away.items())],
        "without_log": sorted(members.without_log),
    }


def _node_fields(address: str, found: pb.LogDescription) -> dict[str, Any]:
    return {
        "node": found.node,
        "address": address,
        "log": found.log_id,
        "records": found.next_offset - found.first_offset,
        "first_offset": found.first_offset,
        "next_offset": found.next_offset,
        "first_time_ns": found.first_time_ns,
        "last_time_ns": found.last_time_ns,
        "now_ns": found.now_ns,
        "bytes": found.bytes,
        "segments": found.segments,
        "stopped": found.stopped,
        "records_lost": found.records_lost,
        "holds_released": found.holds_released,
        "holds": [
            {
                "group": hold.group,
                "query": hold.query,
                "offset": hold.offset,
                "lag": found.next_offset - hold.offset,
                "held_at_ns": hold.held_at_ns,
            }
            for hold in found.holds
        ],
        "damaged": [
            {"file": damaged.file, "first_offset": damaged.first_offset, "fault": damaged.fault}
            for damaged in found.damaged
        ],
    }


def description_lines(found: Mapping[str, Any]) -> list[str]:
    """The result of `describe_logs` for people."""
    nodes = found["nodes"]
    rows = [("NODE", "LOG", "RECORDS", "OFFSETS", "SIZE", "FIRST", "LAST", "STATE")]
    for node in nodes:
        state = f"not written: {node['stopped']}" if node["stopped"] else "ok"
        rows.append(
            (
                printable(node["node"]),
                node["log"][:LOG_ID_SHOWN],
                f"{node['records']:,}",
                f"{node['first_offset']}…{node['next_offset']}",
                size(node["bytes"]),
                instant(node["first_time_ns"]),
                instant(node["last_time_ns"]),
                state,
            )
        )
    rows += [(printable(away["node"]), *"-" * 6, f"away: {away['reason']}") for away in found["away"]]
    rows += [(printable(name), *"-" * 6, "keeps no log") for name in found["without_log"]]
    lines = aligned(rows)
    holds = [("GROUP", "QUERY", "NODE", "OFFSET", "LAG", "HELD")]
    holds += [
        (
            printable(hold["group"]),
            printable(hold["query"]),
            printable(node["node"]),
            str(hold["offset"]),
            f"{hold['lag']:,}",
            f"{duration((node['now_ns'] - hold['held_at_ns']) / 1e9)} ago",
        )
        for node in nodes
        for hold in node["holds"]
    ]
    if len(holds) > 1:
        lines += ["", *aligned(holds)]
    for node in nodes:
        if node["records_lost"]:
            lines += [
                "",
                f"{node['node']}: {node['records_lost']:,} records were not logged since its start (`on_full`)",
            ]
        if node["holds_released"]:
            lines += [
                "",
                f"{node['node']}: {node['holds_released']} holds were released since its start (setting `hold`)",
            ]
        lines += [
            f"{node['node']}: segment {damaged['file']} was set aside: {damaged['fault']}"
            for damaged in node["damaged"]
        ]
    return lines
