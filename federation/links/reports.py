"""Reports of the links and queues of a node that nobody asks for: metrics, and messages below $SYS when a status changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from broker.message import Message
from broker.metrics.metric import Kind, Metric, counter, gauge, gauges
from federation.links.queues import Queues
from federation.links.status import FIGURES, LinkState, LinkStatus

EVENT_PREFIX: Final = "$SYS/broker/federation-links/"
CHANGED: Final = "federation_link_status"
REMOVED: Final = "federation_link_removed"
LABELS: Final = ("id", "upstream", "type")


def link_metrics(statuses: Sequence[LinkStatus], now: float) -> list[Metric]:
    """Metrics of the links of this node."""
    states = dict.fromkeys((state.value for state in LinkState), 0)
    for status in statuses:
        states[status.state.value] += 1
    found = [(_labels(status), status) for status in statuses]
    dropped = {
        (*labels, reason): float(count) for labels, status in found for reason, count in status.dropped.items() if count
    }

    return [
        Metric(
            "gmqtt_links",
            Kind.GAUGE,
            "Links of this node, by status.",
            ("status",),
            {(state,): float(count) for state, count in states.items()},
        ),
        Metric(
            "gmqtt_link_running",
            Kind.GAUGE,
            "1 while the upstream has answered recently.",
            LABELS,
            {labels: float(status.state is LinkState.RUNNING) for labels, status in found},
        ),
        Metric(
            "gmqtt_link_status_seconds",
            Kind.GAUGE,
            "Seconds since the status of a link has changed.",
            LABELS,
            {labels: max(0.0, now - status.since) for labels, status in found},
        ),
        *(
            Metric(
                figure.metric,
                figure.kind,
                figure.text,
                LABELS,
                {labels: float(value) for labels, status in found if (value := getattr(status, figure.field)) >= 0},
            )
            for figure in FIGURES
        ),
        Metric(
            "gmqtt_link_dropped_total",
            Kind.COUNTER,
            "Messages of a link that were dropped, by reason.",
            (*LABELS, "reason"),
            dropped,
        ),
    ]


def _labels(status: LinkStatus) -> tuple[str, ...]:
    return status.link_id, status.upstream, status.kind


class LinkEvents:
    """Remembers what was told of each link: `changes` gives a message for each link with another status, epoch or error."""

    def __init__(self) -> None:
        self._told: dict[str, LinkStatus] = {}

    def changes(self, statuses: Sequence[LinkStatus]) -> list[Message]:
        """QoS 0 messages that are not retained. A link that is missing was removed, or moved to another node."""
        messages: list[Message] = []
        present = {status.link_id: status for status in statuses}
        for link_id, status in present.items():
            before = self._told.get(link_id)
            if before is None or _told_of(before) != _told_of(status):
                messages.append(_event(CHANGED, status, "" if before is None else before.state.value))
        for link_id, before in self._told.items():
            if link_id not in present:
                messages.append(_event(REMOVED, before, before.state.value))
        self._told = present
        return messages


def _told_of(status: LinkStatus) -> tuple[object, ...]:
    # A queue link pauses and goes on with each job that a consumer takes.
    state = LinkState.RUNNING if status.state is LinkState.PAUSED else status.state
    return state, status.epoch, status.last_error


def _event(event: str, status: LinkStatus, before: str) -> Message:
    fields = {
        "event": event,
        "id": status.link_id,
        "type": status.kind,
        "upstream": status.upstream,
        "status": status.state.value,
        "before": before,
        "node": status.node,
        "epoch": status.epoch,
        "uri": status.uri,
        "error": status.last_error,
    }
    return Message(f"{EVENT_PREFIX}{status.link_id}".encode(), json.dumps(fields).encode(), 0, False)


def queue_metrics(queues: Queues, now: float) -> list[Metric]:
    """Metrics of the queues of this node."""
    rows = queues.rows(now)
    names = [(row.group.decode(), row) for row in rows]
    lending = queues.lending
    return [
        gauge("gmqtt_group_queues", "Shared groups that have a queue.", len(rows)),
        gauges(
            "gmqtt_group_queue_messages",
            "Messages that wait in the queue of a shared group.",
            "group",
            [(name, row.messages) for name, row in names],
        ),
        gauges(
            "gmqtt_group_queue_bytes",
            "Bytes of messages that wait in the queue of a shared group.",
            "group",
            [(name, row.bytes) for name, row in names],
        ),
        counter("gmqtt_group_queues_refused_total", "Shared groups that got no queue: too many.", queues.refused),
        counter(
            "gmqtt_jobs_lent_total",
            "Jobs of shared groups that went to other nodes and domains.",
            lending.lent,
        ),
        counter(
            "gmqtt_jobs_returned_total",
            "Jobs that another node or domain has refused, and that came back.",
            lending.returned,
        ),
    ]
