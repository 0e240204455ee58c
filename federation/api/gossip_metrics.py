"""Metrics of the gossip and the membership."""

from __future__ import annotations

from broker.metrics.metric import Metric, counter, counters, gauge, gauges
from federation.serf.serf import Serf


def gossip_metrics(serf: Serf) -> list[Metric]:
    """Metrics of one node's gossip. The awareness is that of SWIM's Lifeguard."""
    found = serf.counters
    awareness = serf.gossip.membership.awareness
    statuses: dict[str, int] = {"ALIVE": 0, "LEAVING": 0, "LEFT": 0, "FAILED": 0}
    for member in serf.members():
        statuses[member.status.name] = statuses.get(member.status.name, 0) + 1
    return [
        gauges(
            "gmqtt_gossip_members",
            "Members that this node knows, by status.",
            "status",
            statuses.items(),
        ),
        gauge(
            "gmqtt_gossip_health_score",
            "Awareness of this node: 0 is healthy.",
            awareness.score,
        ),
        counter("gmqtt_gossip_packets_received_total", "Packets of gossip that came in.", found.packets_received),
        counter("gmqtt_gossip_packets_sent_total", "Packets of gossip that were sent.", found.packets_sent),
        counter(
            "gmqtt_gossip_send_errors_total",
            "Packets of gossip that could not be sent, or were reported as undeliverable.",
            found.send_errors,
        ),
        counter("gmqtt_gossip_probes_sent_total", "Probes of other members.", found.probes_sent),
        counter("gmqtt_gossip_probes_failed_total", "Probes without an answer in time.", found.probes_failed),
        counter("gmqtt_gossip_suspicions_total", "Members that were suspected.", found.suspicions),
        counter("gmqtt_gossip_refutations_total", "Suspicions of this node that it refuted.", found.refutations),
        counters(
            "gmqtt_gossip_dropped_total",
            "Input and messages of the gossip that were dropped, by reason.",
            "reason",
            [(str(reason), count) for reason, count in found.dropped.items()],
        ),
    ]
