"""Dashboards for Grafana as JSON, from tables of their panels. scripts/build_docs writes them to deploy/grafana."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

COLUMNS: Final = 24  # of Grafana's grid
PANEL_WIDTH: Final = 8
PANEL_HEIGHT: Final = 8
PLACE: Final = '{job=~"$job", instance=~"$instance"'


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph. `queries`: PromQL by legend; a metric in it is written `name[…]` or `name`, and gets the labels of the page's
    variables where `%` stands."""

    title: str
    unit: str  # of Grafana: short, Bps, bytes, s, reqps …
    queries: dict[str, str]
    text: str = ""


def rate(metric: str, by: str = "instance", where: str = "") -> str:
    return f"sum by ({by}) (rate({metric}%{where}[$__rate_interval]))"


def total(metric: str, by: str = "instance", where: str = "") -> str:
    return f"sum by ({by}) ({metric}%{where})"


def highest(metric: str, by: str) -> str:
    return f"max by ({by}) ({metric}%)"


NODES: Final = (
    Panel("Ready", "short", {"{{instance}}": "up%"}, "1: Prometheus reaches the node."),
    Panel("Clients", "short", {"{{instance}}": total("gmqtt_clients_current")}),
    Panel(
        "Sessions",
        "short",
        {
            "{{instance}} connected": total("gmqtt_sessions_active_current"),
            "{{instance}} away": total("gmqtt_sessions_inactive_current"),
        },
    ),
    Panel("Messages received", "cps", {"{{instance}} QoS {{qos}}": rate("gmqtt_messages_received_total", "instance, qos")}),
    Panel("Messages sent", "cps", {"{{instance}} QoS {{qos}}": rate("gmqtt_messages_sent_total", "instance, qos")}),
    Panel("Messages dropped", "cps", {"{{instance}} {{reason}}": rate("gmqtt_messages_dropped_total", "instance, reason")}),
    Panel("Messages that wait for clients", "short", {"{{instance}}": total("gmqtt_messages_queued_current")}),
    Panel("Publishers that are held", "cps", {"{{instance}}": rate("gmqtt_publishers_held_total")}),
    Panel("Bytes", "Bps", {
        "{{instance}} in": rate("gmqtt_packets_received_bytes_total"),
        "{{instance}} out": rate("gmqtt_packets_sent_bytes_total"),
    }),
    Panel("CPU", "percentunit", {"{{instance}}": rate("process_cpu_seconds_total")}, "One node uses at most one core."),
    Panel("Memory", "bytes", {"{{instance}}": total("gmqtt_memory_bytes_current")}),
    Panel("Longest wait of the event loop", "s", {"{{instance}}": highest("gmqtt_loop_lag_longest_seconds", "instance")}),
    Panel("Commits of the store", "cps", {"{{instance}}": rate("gmqtt_store_commits_total")}),
    Panel("Time in the store", "percentunit", {"{{instance}}": rate("gmqtt_store_seconds_total")}),
    Panel("Connections refused", "cps", {
        "{{instance}} refused": rate("gmqtt_connections_refused_total"),
        "{{instance}} protocol errors": rate("gmqtt_protocol_errors_total"),
        "{{instance}} handshakes failed": rate("gmqtt_handshakes_failed_total"),
    }),
)  # fmt: skip

FEDERATION: Final = (
    Panel("Members", "short", {"{{instance}} {{status}}": total("gmqtt_gossip_members", "instance, status")}),
    Panel("Members that are suspected", "short", {"{{instance}}": total("gmqtt_gossip_suspected")}),
    Panel("Health score", "short", {"{{instance}}": total("gmqtt_gossip_health_score")}, "Lifeguard's: 0 is healthy."),
    Panel("Messages to other nodes", "cps", {"{{instance}}": rate("gmqtt_messages_to_nodes_total")}),
    Panel("Messages from other nodes", "cps", {"{{instance}}": rate("gmqtt_messages_from_nodes_total")}),
    Panel("Lag of event streams", "s", {"{{instance}} to {{node}}": highest("gmqtt_federation_lag_seconds", "instance, node")}),
    Panel("Outboxes", "bytes", {"{{instance}} for {{node}}": total("gmqtt_federation_outbox_bytes", "instance, node")}),
    Panel("Round trip", "s", {
        "{{instance}} to {{node}}": highest("gmqtt_federation_round_trip_seconds", "instance, node"),
    }),
    Panel("Events dropped", "cps", {"{{instance}}": rate("gmqtt_federation_dropped_total")}),
    Panel("Stores without enough copies", "short", {
        "{{instance}}": "gmqtt_copies_wanted% - gmqtt_copies_whole%",
    }, "0: each store has the copies that the configuration wants."),
    Panel("Seconds short of copies", "s", {"{{instance}}": total("gmqtt_copies_short_seconds")}),
    Panel("Sessions that moved", "cps", {
        "{{instance}} {{direction}}": rate("gmqtt_federation_sessions_moved_total", "instance, direction"),
    }),
)  # fmt: skip

LINKS: Final = (
    Panel("Links", "short", {"{{instance}} {{status}}": total("gmqtt_links", "instance, status")}),
    Panel("Running", "short", {"{{id}}": highest("gmqtt_link_running", "id")}),
    Panel("Lag", "s", {"{{id}}": highest("gmqtt_link_lag_seconds", "id")}),
    Panel("Received from upstreams", "cps", {"{{id}}": rate("gmqtt_link_received_total", "id")}),
    Panel("Sent to upstreams", "cps", {"{{id}}": rate("gmqtt_link_sent_total", "id")}),
    Panel("Waiting", "short", {"{{id}}": highest("gmqtt_link_waiting", "id")}),
    Panel("Reconnects", "cps", {"{{id}}": rate("gmqtt_link_reconnects_total", "id")}),
    Panel("Dropped", "cps", {"{{id}}": rate("gmqtt_link_dropped_total", "id")}),
    Panel("Messages in queues of groups", "short", {"{{instance}}": total("gmqtt_group_queue_messages")}),
)

PIPELINES: Final = (
    Panel("Records", "cps", {"{{instance}}": rate("gmqtt_event_log_next_offset")}, "Written to the event log."),
    Panel("Size of the log", "bytes", {"{{instance}}": total("gmqtt_event_log_bytes")}),
    Panel("Segments", "short", {"{{instance}}": total("gmqtt_event_log_segments")}),
    Panel("Lag of the slowest reader with a hold", "short", {
        "{{instance}} {{group}} {{query}}": highest("gmqtt_event_log_hold_lag_records", "instance, group, query"),
    }),
    Panel("Records lost", "short", {"{{instance}}": total("gmqtt_event_log_records_lost_total")}),
    Panel("Missing records", "short", {"{{instance}}": total("gmqtt_event_log_missing_records")}),
)  # fmt: skip

DASHBOARDS: Final = (
    ("gmqttd-nodes", "gmqttd: nodes", NODES),
    ("gmqttd-federation", "gmqttd: federation", FEDERATION),
    ("gmqttd-links", "gmqttd: links", LINKS),
    ("gmqttd-pipelines", "gmqttd: event log and pipelines", PIPELINES),
)


def expressions() -> list[str]:
    """All queries, without the labels of a page."""
    return [
        query.replace("%", "") for _, _, panels in DASHBOARDS for panel in panels for query in panel.queries.values()
    ]


def dashboards() -> dict[str, str]:
    """The text of each file by its path."""
    return {
        f"deploy/grafana/{uid}.json": json.dumps(_dashboard(uid, title, panels), indent=1) + "\n"
        for uid, title, panels in DASHBOARDS
    }


def _dashboard(uid: str, title: str, panels: tuple[Panel, ...]) -> dict[str, Any]:
    return {
        "uid": uid,
        "title": title,
        "tags": ["gmqttd"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), _variable("job", "up"), _variable("instance", 'up{job=~"$job"}')]},
        "links": [{"type": "dashboards", "tags": ["gmqttd"], "title": "gmqttd", "keepTime": True}],
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(label: str, metric: str) -> dict[str, Any]:
    query = f"label_values({metric.replace('up', 'gmqtt_clients_connected_total', 1)}, {label})"
    return {
        "name": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": query,
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    columns = COLUMNS // PANEL_WIDTH
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": {
            "x": number % columns * PANEL_WIDTH,
            "y": number // columns * PANEL_HEIGHT,
            "w": PANEL_WIDTH,
            "h": PANEL_HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 8}}, "overrides": []},
        "options": {"tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": labelled(query), "legendFormat": legend}
            for index, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def labelled(query: str) -> str:
    """The query with the labels of the page's variables."""
    return query.replace("%", PLACE + "}")
