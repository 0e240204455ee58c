"""What others are told about the links of a node without asking: metrics, and messages below $SYS when a status changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from broker.message import Message
from broker.metrics.metric import Kind, Metric
from federation.links.status import LinkState, LinkStatus

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

    def one(name: str, kind: Kind, text: str, values: dict[tuple[str, ...], float]) -> Metric:
        return Metric(f"gmqtt_link_{name}", kind, text, LABELS, values)

    return [
        Metric(
            "gmqtt_links",
            Kind.GAUGE,
            "Links of this node, by status.",
            ("status",),
            {(state,): float(count) for state, count in states.items()},
        ),
        one(
            "running",
            Kind.GAUGE,
            "1 while the upstream has answered recently.",
            {labels: float(status.state is LinkState.RUNNING) for labels, status in found},
        ),
        one(
            "status_seconds",
            Kind.GAUGE,
            "Seconds since the status of a link has changed.",
            {labels: max(0.0, now - status.since) for labels, status in found},
        ),
        one(
            "round_trip_seconds",
            Kind.GAUGE,
            "Time from a question to the upstream to its answer, the last time.",
            {labels: status.round_trip for labels, status in found if status.round_trip >= 0},
        ),
        one(
            "lag_seconds",
            Kind.GAUGE,
            "Age of the oldest message in flight on a link.",
            {labels: status.lag for labels, status in found if status.lag >= 0},
        ),
        one(
            "in_flight",
            Kind.GAUGE,
            "Messages of a link that are not acknowledged.",
            {labels: float(status.in_flight) for labels, status in found},
        ),
        one(
            "waiting",
            Kind.GAUGE,
            "Messages that wait for a link, where that is known here.",
            {labels: float(status.waiting) for labels, status in found if status.waiting >= 0},
        ),
        one(
            "oldest_waiting_seconds",
            Kind.GAUGE,
            "Age of the oldest message that waits for a link, where that is known here.",
            {labels: status.oldest_waiting for labels, status in found if status.oldest_waiting >= 0},
        ),
        one(
            "subscriptions",
            Kind.GAUGE,
            "Filters of a link that are subscribed at the upstream.",
            {labels: float(status.subscriptions) for labels, status in found},
        ),
        one(
            "epoch",
            Kind.GAUGE,
            "Epoch of this node as the owner of a link.",
            {labels: float(status.epoch) for labels, status in found},
        ),
        one(
            "received_total",
            Kind.COUNTER,
            "Messages that a link got from its upstream.",
            {labels: float(status.received) for labels, status in found},
        ),
        one(
            "sent_total",
            Kind.COUNTER,
            "Messages that a link pushed to its upstream.",
            {labels: float(status.sent) for labels, status in found},
        ),
        one(
            "reconnects_total",
            Kind.COUNTER,
            "Connections of a link after the first.",
            {labels: float(status.reconnects) for labels, status in found},
        ),
        one(
            "sessions_lost_total",
            Kind.COUNTER,
            "Sessions of a link that the upstream did not have any more.",
            {labels: float(status.sessions_lost) for labels, status in found},
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
