"""Reports on the links and queues of a node for operators: rows of the API, metrics, lines of the log, messages below $SYS."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from broker.message import NEVER, Message
from broker.metrics.metric import Kind, Metric, counter, counters, gauge, gauges
from federation.links.bridging.bridging import LinkBridging
from federation.links.handshake import Note
from federation.links.link import Link
from federation.links.links import Links
from federation.links.ownership import Ownership
from federation.links.pb import link_status_pb2 as pb
from federation.links.queues import Queues
from federation.links.status import FIGURES, TIMES, LinkState, LinkStatus, next_step

FAILED: Final = (LinkState.ERROR, LinkState.BLOCKED)


class LinkLog:
    """Tells of each change of a link once. `log` takes the lines."""

    def __init__(self, log: Any, links: Links) -> None:
        self._log = log
        self._links = links
        self._told: dict[str, tuple[LinkState, str]] = {}
        self._details: dict[str, dict[str, str]] = {}
        self._notes: dict[str, tuple[Note, ...]] = {}
        self._sessions_lost: dict[str, int] = {}

    def changed(self, ownership: Ownership | None, now: float) -> None:
        """Links may have changed. `ownership` knows the other nodes that run links; None while the node starts or stops."""
        links = self._links
        movable = links.plans()  # links for queues run on every node
        for link_id, link in links.by_id.items():
            if link_id in movable and link_id not in links.epochs:
                self._tell_ending(link_id, link, ownership)
            else:
                self._tell_lost_sessions(link_id, link)
                self._tell_state(link_id, link, now)
        for link_id in [link_id for link_id in self._told if link_id not in links.by_id]:
            details = self._details.pop(link_id)
            del self._told[link_id]
            self._notes.pop(link_id, None)
            self._sessions_lost.pop(link_id, None)
            if link_id not in movable:
                self._log.info("link removed: nothing needs it any more", **details)
            elif node := _runs_on(ownership, link_id):
                self._log.info("link has moved to another node", **details, to=node)
            else:
                self._log.info("link has stopped", **details)

    def _tell_ending(self, link_id: str, link: Link, ownership: Ownership | None) -> None:
        """The node stops, or another one runs the link soon; nothing has failed."""
        told = (LinkState.DRAINING, "")
        if self._told.get(link_id) != told:
            self._told[link_id] = told
            self._details[link_id] = _details(link)
            if node := _runs_on(ownership, link_id):
                self._log.info("link moves to another node", **_details(link), to=node)

    def _tell_lost_sessions(self, link_id: str, link: Link) -> None:
        if link.sessions_lost > self._sessions_lost.get(link_id, 0):
            self._log.warning("link session lost, with what waited in it", **_details(link))
        self._sessions_lost[link_id] = link.sessions_lost

    def _tell_state(self, link_id: str, link: Link, now: float) -> None:
        state, error = told = link.state, link.last_error
        before = self._told.get(link_id)
        if before == told or (before is not None and before[0] in FAILED and state is LinkState.STARTING):
            return  # another try of a link that has failed is told by what becomes of it
        self._told[link_id] = told
        details = self._details[link_id] = _details(link)
        if state is LinkState.INVALID:
            self._log.error("link invalid", **details, error=error)
        elif state in FAILED:
            seconds = round(max(0.0, link.next_timeout() - now), 1)
            self._log.warning(f"link {state.value}", **details, error=error, next_try_seconds=seconds)
        else:
            self._log.info(f"link {state.value}", **details)
            if state is LinkState.RUNNING:
                self._tell_notes(link_id, link.notes, details)

    def _tell_notes(self, link_id: str, notes: tuple[Note, ...], details: dict[str, str]) -> None:
        """Tell what the upstream grants less, when that is something else than the last time."""
        before = self._notes.get(link_id, ())
        self._notes[link_id] = notes
        for note in notes:
            if note not in before:
                tell = self._log.warning if note.is_warning else self._log.info
                tell("the upstream grants less than asked", **details, note=note.text)


def _runs_on(ownership: Ownership | None, link_id: str) -> str:
    """Return the other node that runs a link, or is about to; "" where none is known."""
    owner = None if ownership is None else ownership.owner(link_id)
    return "" if ownership is None or owner is None or owner.node == ownership.node else owner.node


def _details(link: Link) -> dict[str, str]:
    return {"upstream": link.plan.upstream.name, "id": link.plan.link_id, "uri": link.address.redacted()}


NANOSECONDS: Final = 1_000_000_000


def link_row(status: LinkStatus, now: float, wall_time: Callable[[float], float]) -> pb.Link:
    """`wall_time` gives the Unix seconds of a monotonic instant."""

    def timestamp(at: float) -> Timestamp | None:
        if at == NEVER:
            return None
        seconds, nanos = divmod(int(wall_time(at) * NANOSECONDS), NANOSECONDS)
        return Timestamp(seconds=seconds, nanos=nanos)

    fields: dict[str, Any] = {shown: timestamp(getattr(status, field)) for field, shown in TIMES}
    fields |= {figure.shown: _known(getattr(status, figure.field)) for figure in FIGURES}
    return pb.Link(
        id=status.link_id,
        type=status.kind,
        direction=status.direction,
        upstream=status.upstream,
        upstream_name=status.upstream_name,
        mapping=status.mapping,
        policies=[
            pb.LinkPolicy(name=name, pattern=pattern)
            for name, pattern in zip(status.policies, status.patterns, strict=True)
        ],
        status=status.state.value,
        uri=status.uri,
        local_connection=status.local_connection,
        node=status.node,
        next_step=next_step(status, now),
        error=status.last_error,
        dropped={reason: count for reason, count in status.dropped.items() if count},
        notes=status.notes,
        **fields,
    )


def _known(figure: float) -> float | None:
    """None for a negative one."""
    if figure < 0:
        return None
    return round(figure, 6) if isinstance(figure, float) else figure


def in_order(rows: Iterable[pb.Link]) -> list[pb.Link]:
    """Sorted by upstream, type, id and node."""
    return sorted(rows, key=lambda row: (row.upstream, row.type, row.id, row.node))


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
    consumers = queues.consumers
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
            consumers.sent,
        ),
        counter(
            "gmqtt_jobs_returned_total",
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
