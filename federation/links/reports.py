"""Reports on the links and queues of a node for operators: rows of the API, metrics, lines of the log, messages below $SYS."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from broker.alarm import ERROR, WARN, Alarm
from broker.message import NEVER, Message
from broker.metrics.metric import Kind, Metric, counter, counters, gauge, gauges
from federation.definitions.policy import ApplyTo
from federation.links.bridging.bridging import LinkBridging
from federation.links.handshake import Note
from federation.links.ownership import Ownership
from federation.links.pb import link_status_pb2 as pb
from federation.links.queues import Queues
from federation.links.status import DOWN, FIGURES, LinkState, LinkStatus, has_state, next_step

FAILED: Final = (LinkState.ERROR, LinkState.BLOCKED)
FAULTS: Final = (LinkState.ERROR.value, LinkState.INVALID.value)
NANOSECONDS: Final = 1_000_000_000


class LogLine(NamedTuple):
    """`level` is the method of a logger."""

    level: str
    event: str
    details: dict[str, Any]


class LinkLog:
    """Remembers what the log says of each link: a row with the notes of the last time when the link ran."""

    def __init__(self) -> None:
        self._reported: dict[str, LinkStatus] = {}

    def changes(
        self, rows: Sequence[LinkStatus], plans: Container[str], ownership: Ownership, now: float
    ) -> list[LogLine]:
        """A line for each change that is not reported yet. `plans`: the links that one node of the cluster runs; `ownership`
        knows which one."""
        lines: list[LogLine] = []
        present = {row.link_id: row for row in rows if row.upstream_name}
        for row in present.values():
            lines += self._lines_of(row, ownership, now)
        for link_id in [link_id for link_id in self._reported if link_id not in present]:
            row = self._reported.pop(link_id)
            node = _runs_on(ownership, link_id)
            if link_id not in plans:
                lines.append(_line("info", "link removed: nothing needs it any more", row))
            elif node:
                lines.append(_line("info", "link has moved to another node", row, to=node))
            else:
                lines.append(_line("info", "link has stopped", row))
        return lines

    def _lines_of(self, row: LinkStatus, ownership: Ownership, now: float) -> list[LogLine]:
        lines: list[LogLine] = []
        before = self._reported.get(row.link_id)
        if row.plan.kind == ApplyTo.TOPICS.value and row.epoch == 0:
            # The node stops, or another one runs the link soon; nothing has failed.
            row = replace(row, state=LinkState.DRAINING, last_error="")
        elif row.sessions_lost > (0 if before is None else before.sessions_lost):
            lines.append(_line("warning", "link session lost, with what waited in it", row))
        notes: tuple[Note, ...] = ()
        if before is not None:
            notes = before.notes
            is_retry = before.state in FAILED and row.state is LinkState.STARTING  # reported by what becomes of it
            if is_retry or (before.state, before.last_error) == (row.state, row.last_error):
                self._reported[row.link_id] = replace(before, sessions_lost=row.sessions_lost)
                return lines
        event = f"link {row.state.value}"
        if row.state is LinkState.DRAINING:
            if node := _runs_on(ownership, row.link_id):
                lines.append(_line("info", "link moves to another node", row, to=node))
        elif row.state is LinkState.INVALID:
            lines.append(_line("error", event, row, error=row.last_error))
        elif row.state in FAILED:
            seconds = round(max(0.0, row.deadline - now), 1)
            lines.append(_line("warning", event, row, error=row.last_error, next_try_seconds=seconds))
        else:
            lines.append(_line("info", event, row))
        if row.state is LinkState.RUNNING:
            for note in row.notes:
                if note not in notes:
                    level = "warning" if note.is_warning else "info"
                    lines.append(_line(level, "the upstream grants less than asked", row, note=note.text))
            notes = row.notes
        self._reported[row.link_id] = replace(row, notes=notes)
        return lines


def _line(level: str, event: str, row: LinkStatus, **details: Any) -> LogLine:
    return LogLine(level, event, {"upstream": row.plan.upstream.name, "id": row.link_id, "uri": row.uri, **details})


def _runs_on(ownership: Ownership, link_id: str) -> str:
    """Return the other node that runs a link, or is about to; "" where none is known."""
    owner = ownership.owner(link_id)
    return "" if owner is None or owner.node == ownership.node else owner.node


def link_row(status: LinkStatus, now: float, wall_time: Callable[[float], float]) -> pb.Link:
    """`wall_time` gives the Unix seconds of a monotonic instant."""

    def timestamp(at: float) -> Timestamp | None:
        if at == NEVER:
            return None
        seconds, nanos = divmod(int(wall_time(at) * NANOSECONDS), NANOSECONDS)
        return Timestamp(seconds=seconds, nanos=nanos)

    plan = status.plan
    figures: dict[str, Any] = {figure.name: _known(getattr(status, figure.name)) for figure in FIGURES}
    return pb.Link(
        id=plan.link_id,
        type=plan.kind,
        direction=plan.upstream.direction.value,
        upstream=plan.upstream.name,
        upstream_name=status.upstream_name,
        mapping="; ".join(plan.upstream.exchange),
        policies=[pb.LinkPolicy(name=policy.name, pattern=policy.pattern) for policy in plan.policies],
        status=status.state.value,
        uri=status.uri,
        local_connection=status.local_connection,
        node=status.node,
        since=timestamp(status.since),
        changed=timestamp(status.changed_at),
        deadline=timestamp(status.deadline),
        next_step=next_step(status, now),
        error=status.last_error,
        error_at=timestamp(status.error_at),
        answered=timestamp(status.answered_at),
        dropped={reason: count for reason, count in status.dropped.items() if count},
        notes=[note.text for note in status.notes],
        **figures,
    )


def _known(figure: float) -> float | None:
    """None for a negative one."""
    if figure < 0:
        return None
    return round(figure, 6) if isinstance(figure, float) else figure


def in_order(rows: Iterable[pb.Link]) -> list[pb.Link]:
    """Sorted by upstream, type, id and node."""
    return sorted(rows, key=lambda row: (row.upstream, row.type, row.id, row.node))


def link_alarms(links: pb.ListLinksResponse) -> list[Alarm]:
    """Return what is wrong with the links of the cluster."""
    found = [Alarm(WARN, f"node {name} does not tell its links") for name in links.unanswered]
    for link in links.links:
        if has_state(link.status, DOWN):
            text = f"link {link.id} to {link.upstream} is {link.status}: {link.error or link.next_step}"
            found.append(Alarm(ERROR if link.status in FAULTS else WARN, text))
    return found


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
                {labels: float(value) for labels, status in found if (value := getattr(status, figure.name)) >= 0},
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
    return status.link_id, status.plan.upstream.name, status.plan.kind


class LinkEvents:
    """Remembers what was reported of each link: `changes` gives a message for each link with another status, epoch or error."""

    def __init__(self) -> None:
        self._reported: dict[str, LinkStatus] = {}

    def changes(self, statuses: Sequence[LinkStatus]) -> list[Message]:
        """QoS 0 messages that are not retained. A link that is missing was removed, or moved to another node."""
        messages: list[Message] = []
        present = {status.link_id: status for status in statuses}
        for link_id, status in present.items():
            before = self._reported.get(link_id)
            if before is None or _reported_of(before) != _reported_of(status):
                messages.append(_event(CHANGED, status, "" if before is None else before.state.value))
        for link_id, before in self._reported.items():
            if link_id not in present:
                messages.append(_event(REMOVED, before, before.state.value))
        self._reported = present
        return messages


def _reported_of(status: LinkStatus) -> tuple[object, ...]:
    # A queue link pauses and goes on with each job that a consumer takes.
    state = LinkState.RUNNING if status.state is LinkState.PAUSED else status.state
    return state, status.epoch, status.last_error


def _event(event: str, status: LinkStatus, before: str) -> Message:
    fields = {
        "event": event,
        "id": status.link_id,
        "type": status.plan.kind,
        "upstream": status.plan.upstream.name,
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
    consumers = queues.consumers
    return [
        gauge("gmqtt_group_queues", "Shared groups that have a queue.", len(rows)),
        gauges(
            "gmqtt_group_queue_messages",
            "Messages that wait in the queue of a shared group.",
            "group",
            [(row.group, row.messages) for row in rows],
        ),
        gauges(
            "gmqtt_group_queue_bytes",
            "Bytes of messages that wait in the queue of a shared group.",
            "group",
            [(row.group, row.bytes) for row in rows],
        ),
        counter("gmqtt_group_queues_refused_total", "Shared groups that got no queue: too many.", queues.refused),
        counter(
            "gmqtt_jobs_sent_total",
            "Jobs of shared groups that went to other nodes and domains.",
            consumers.sent,
        ),
        counter(
            "gmqtt_jobs_requeued_total",
            "Jobs that another node or domain has refused, and that came back.",
            consumers.requeued,
        ),
    ]


def bridging_metrics(bridging: LinkBridging) -> list[Metric]:
    """Metrics of links that connect here, and of messages with an origin."""
    return [
        counter(
            "gmqtt_links_refused_total",
            "Clients that asked to be a link of another domain, and whose account does not have the role.",
            bridging.refused,
        ),
        counters(
            "gmqtt_link_messages_skipped_total",
            "Messages that a link of another domain did not get: that domain was in their path, or allows no more hops.",
            "reason",
            [("path", bridging.home.path_skipped), ("hops", bridging.home.hops_skipped)],
        ),
        counter(
            "gmqtt_link_pages_evicted_total",
            "Pages of numbers of messages from other domains that made room: copies of these count as new.",
            bridging.home.duplicates.evicted,
        ),
        counter(
            "gmqtt_retained_deletions_forgotten_total",
            "Deletions of retained messages that made room: an older message that waits for a link may bring one back.",
            bridging.home.deletions.forgotten,
        ),
    ]
