"""Event logs and their records as text for people, and as JSON: `gmqttctl log describe`, `tail` and `export`."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

from broker.event_log.pb import event_log_pb2 as pb
from broker.event_log.records import Record
from gmqttctl.connection import read_connection
from gmqttctl.text import aligned, duration, instant, printable, size
from pipeline.cluster import Cluster

LOG_ID_SHOWN: Final = 8  # characters
PAYLOAD_SHOWN: Final = 200  # characters of a payload on a line for people


def record_line(node: str, record: Record) -> str:
    """One record for people: time, node, offset, QoS, topic, payload."""
    try:
        payload = printable(record.payload.decode())
    except UnicodeDecodeError:
        payload = f"0x{record.payload[: PAYLOAD_SHOWN // 2].hex()}"
    if len(payload) > PAYLOAD_SHOWN or len(record.payload) > PAYLOAD_SHOWN:
        payload = f"{payload[:PAYLOAD_SHOWN]}… ({len(record.payload)} bytes)"
    retain = " retain" if record.retain else ""
    place = f"{instant(record.time_ns)} {node} {record.offset} qos {record.qos}{retain}"
    return f"{place} {printable(record.topic)} {payload}"


def record_fields(node: str, log_id: str, record: Record) -> dict[str, Any]:
    """One record for JSON, with the columns of the data source. `payload` is text; a payload or correlation data that is
    not UTF-8 is base64 in `payload_base64`, `correlation_data_base64`. What the publisher did not give is left out."""
    fields: dict[str, Any] = {
        "node": node,
        "log": log_id,
        "offset": record.offset,
        "time": record.time_ns,
        "ts": instant(record.time_ns),
        "topic": record.topic,
        **_binary("payload", record.payload),
        "qos": record.qos,
        "retain": record.retain,
    }
    given = {
        "client_id": record.client_id,
        "user_name": record.user_name,
        "content_type": record.content_type,
        "response_topic": record.response_topic,
        "expiry": record.expiry,
        "origin": record.origin,
    }
    fields.update({name: value for name, value in given.items() if value is not None})
    if record.correlation_data is not None:
        fields.update(_binary("correlation_data", record.correlation_data))
    if record.user_properties:
        fields["user_properties"] = [{"key": key, "value": value} for key, value in record.user_properties]
    return fields


def _binary(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


# --- a log as a whole ---


def describe_logs(connection: Mapping[str, str]) -> dict[str, Any]:
    """All members, the logs of those that answer first. Raises PipelineError when no node with a log answers."""
    with closing(Cluster(read_connection(connection))) as cluster:
        members = cluster.ask()
        nodes = {
            name: (state.address, cluster.client(state).describe()) for name, state in sorted(members.nodes.items())
        }
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
        "gaps": [{"first_offset": gap.first_offset, "end_offset": gap.end_offset} for gap in found.gaps],
        "parents": [{"log": parent.log_id, "end_offset": parent.end_offset} for parent in found.parents],
    }


def description_lines(found: Mapping[str, Any]) -> list[str]:
    """The result of `describe_logs` for people."""
    nodes = found["nodes"]
    rows = [("node", "log", "records", "offsets", "size", "first", "last", "state")]
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
    holds = [("group", "query", "node", "offset", "lag", "held")]
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
            f"{node['node']}: segment {damaged['file'] or damaged['first_offset']} was set aside: {damaged['fault']}"
            for damaged in node["damaged"]
        ]
        lines += [
            f"{node['node']}: the records of offsets {gap['first_offset']} to {gap['end_offset'] - 1} are lost"
            for gap in node["gaps"]
        ]
    return lines
