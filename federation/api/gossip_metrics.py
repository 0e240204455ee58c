"""Metrics of the gossip and the membership."""

from __future__ import annotations

from typing import Final

from broker.metrics.metric import Kind, Metric, counter, counters, gauge, gauges
from federation.api.gossip_health import DCUR, PCUR, queue_lengths, suspected_count
from federation.serf.events import Member
from federation.serf.serf import Serf
from federation.tags import TAG_ZONE

# Attributes of Counters that are metrics, with their help.
_TOTALS: Final = {
    "packets_received": "Packets of gossip that came in.",
    "packets_sent": "Packets of gossip that were sent.",
    "send_errors": "Packets of gossip that could not be sent, or were reported as undeliverable.",
    "probes_sent": "Probes of other members.",
    "probes_failed": "Probes without an answer in time.",
    "suspicions": "Members that were suspected.",
    "refutations": "Suspicions of this node that it refuted.",
    "coordinate_resets": "Times that the network coordinate of this node became invalid and began anew.",
    "user_events_sent": "User events of this node.",
    "user_events_received": "User events of any node, each counted once.",
    "queries_sent": "Queries of this node.",
    "queries_received": "Queries of any node, each counted once.",
    "query_responses_received": "Acks and responses to queries of this node.",
    "query_responses_late": "Acks and responses to queries that were over.",
    "query_responses_repeated": "Acks and responses that came more than once; relays send them again.",
}


def gossip_metrics(serf: Serf, now: float) -> list[Metric]:
    """Metrics of one node's gossip. The awareness is that of SWIM's Lifeguard."""
    found = serf.counters
    awareness = serf.gossip.membership.awareness
    statuses: dict[str, int] = {"ALIVE": 0, "LEAVING": 0, "LEFT": 0, "FAILED": 0}
    members = serf.members()
    for member in members:
        statuses[member.status.name] = statuses.get(member.status.name, 0) + 1
    merged_at = serf.gossip.exchanges.merges.merged_at
    round_trips = [(name, serf.coordinates.round_trip(name) or 0.0) for name in serf.coordinates.known]
    return [
        gauges("gmqtt_gossip_members", "Members that this node knows, by status.", "status", statuses.items()),
        gauge("gmqtt_gossip_health_score", "Awareness of this node: 0 is healthy.", awareness.score),
        gauge("gmqtt_gossip_suspected", "Members that are suspected now.", suspected_count(serf)),
        gauge("gmqtt_gossip_asked_queries", "Queries of this node under way.", len(serf.asked_queries)),
        gauges(
            "gmqtt_gossip_queue_length",
            "Messages that wait to be sent to other members, by queue.",
            "queue",
            queue_lengths(serf).items(),
        ),
        *_member_metrics(members, serf, now),
        gauges(
            "gmqtt_gossip_round_trip_seconds",
            "Estimated time to a member and back, by its network coordinate.",
            "node",
            round_trips,
        ),
        gauge(
            "gmqtt_gossip_coordinate_error",
            "How little the network coordinate of this node is trusted, from 1.5 down to 0.",
            serf.coordinates.own.error,
        ),
        *(
            []
            if merged_at is None
            else [
                gauge(
                    "gmqtt_gossip_push_pull_age_seconds",
                    "Time since states were exchanged with another member.",
                    max(0.0, now - merged_at),
                )
            ]
        ),
        *(counter(f"gmqtt_gossip_{name}_total", text, getattr(found, name)) for name, text in _TOTALS.items()),
        counters(
            "gmqtt_gossip_dropped_total",
            "Input and messages of the gossip that were dropped, by reason.",
            "reason",
            [(str(reason), count) for reason, count in found.dropped.items()],
        ),
    ]


def _member_metrics(members: list[Member], serf: Serf, now: float) -> list[Metric]:
    """Return what `GET /v1/federation/members` shows of each member, as one sample of each."""
    info: dict[tuple[str, ...], float] = {
        (
            member.name,
            member.status.name,
            member.tags.get(TAG_ZONE, ""),
            str(member.versions[PCUR]),
            str(member.versions[DCUR]),
        ): 1.0
        for member in members
    }
    labels = ("node", "status", "zone", "gossip_version", "serf_version")
    return [
        Metric(
            "gmqtt_gossip_member_info", Kind.GAUGE, "1 for each member, with its zone and its versions.", labels, info
        ),
        gauges(
            "gmqtt_gossip_member_suspected",
            "Whether a member is suspected now.",
            "node",
            [(member.name, float(serf.is_suspected(member.name))) for member in members],
        ),
        gauges(
            "gmqtt_gossip_member_status_age_seconds",
            "Time since the status of a member changed.",
            "node",
            [(member.name, max(0.0, now - member.since)) for member in members],
        ),
    ]
