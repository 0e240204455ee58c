"""Metrics of the queues of shared groups."""

from __future__ import annotations

from broker.metrics.metric import Metric, counter, gauge, gauges
from federation.links.queues import Queues


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
